"""What `denoise` promises with nothing given: real photographs and micrographs, and clean pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data
from skimage.io import imread

from dstl_cli import denoise

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_noise"
MEANS = {
    ("photo", "fast"): 38.80,
    ("photo", "standard"): 38.95,
    ("microscopy", "fast"): 34.40,
    ("microscopy", "standard"): 34.60,
}  # dB
UNTOUCHED = 99.0  # dB, where the result is the picture itself
CLEAN = (
    "astronaut",
    "brick",
    "camera",
    "chelsea",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "moon",
    "page",
    "rocket",
    "text",
)

pytestmark = pytest.mark.slow


def psnr(clean: NDArray[Any], estimate: NDArray[Any]) -> float:
    error = float(np.mean((clean.astype(np.float64) - estimate) ** 2))
    return UNTOUCHED if error == 0 else float(10 * np.log10(255**2 / error))


def pairs(kind: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Noisy and clean."""
    for path in sorted((REAL / kind).glob("*_noisy.*")):
        yield imread(path), imread(path.with_name(path.name.replace("_noisy", "_clean")))


@pytest.mark.skipif(not REAL.is_dir(), reason="the real noisy pictures are not here")
@pytest.mark.parametrize(("kind", "quality"), MEANS)
def test_real_noise(kind: str, quality: str) -> None:
    """The mean, and that no picture loses."""
    before, after = np.transpose(
        [(psnr(clean, noisy), psnr(clean, denoise(noisy, quality=quality))) for noisy, clean in pairs(kind)]
    )
    assert after.mean() >= MEANS[kind, quality]
    assert (after - before).min() > -0.1


@pytest.mark.skipif(not REAL.is_dir(), reason="the real noisy pictures are not here")
def test_clean_partners_of_photographs_stay_as_they_are() -> None:
    assert np.mean([psnr(clean, denoise(clean, quality="fast")) for _, clean in pairs("photo")]) >= 50


def test_clean_pictures_stay_as_they_are() -> None:
    kept = [psnr(clean, denoise(clean)) for clean in (getattr(data, name)()[:640, :640] for name in CLEAN)]
    assert np.mean(kept) >= 44
    assert min(kept) >= 36
