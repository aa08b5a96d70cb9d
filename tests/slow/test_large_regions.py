"""The region law with the tiles, groups and windows that are used, on pictures larger than their windows."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.base.scratch import Memory
from dstl_cli.denoising import pipeline
from dstl_cli.denoising.pipeline import denoise_pixels, denoise_region, strips
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.settings import GroupSettings
from dstl_cli.denoising.survey import Request
from dstl_cli.pixels.planes import Box
from dstl_cli.transforms.ready import ready_transform

pytestmark = pytest.mark.slow

SETTINGS: dict[str, dict[str, Any]] = {
    "fast": {},
    "standard": {"iterations": 2},
    "paper": {"rounds": 1},
    "best": {},
}
SIDES = {"fast": (907, 1201), "standard": (907, 1201), "paper": (307, 1201), "best": (911, 937)}


def photograph(shape: tuple[int, int], colour: bool, dtype: str, sigma: float) -> NDArray[Any]:
    from skimage import data

    picture = data.astronaut() if colour else data.camera()
    pads = [(0, shape[0] - 512 if shape[0] > 512 else 0), (0, shape[1] - 512), (0, 0)][: picture.ndim]
    clean = np.pad(picture, pads, mode="symmetric")[: shape[0]]
    noisy = clean + sigma * np.random.default_rng(0).standard_normal(clean.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(dtype) if dtype == "uint8" else noisy.astype(dtype)


@pytest.mark.parametrize(
    ("quality", "colour", "dtype", "sigma"),
    [
        ("best", False, "uint8", 5.0),
        ("best", True, "uint8", 100.0),
        ("fast", False, "float32", 100.0),
        ("standard", True, "float64", 5.0),
        ("paper", False, "uint8", 100.0),
    ],
)
def test_however_a_large_picture_is_cut_it_has_the_same_bytes(
    quality: str, colour: bool, dtype: str, sigma: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    height, width = SIDES[quality]
    pixels = photograph((height, width), colour, dtype, sigma)
    request = Request.named(quality, source=TransformSource(ready=ready_transform), jobs=2, **SETTINGS[quality])
    if quality == "best":  # with smaller pictures first it looks four times as far: test_regions.py has that
        groups = GroupSettings.for_sigma(sigma, 3 if colour else 1, halvings=0)
        request = replace(request, settings=replace(request.settings, groups=groups))
    done = denoise_pixels(pixels, sigma, request)
    plan, whole = done.record.plan, done.pixels
    assert plan is not None

    smallest = 1.0
    result = np.zeros_like(whole)
    columns = [0, 301, width]
    for left, right in pairwise(columns):
        for top, bottom in pairwise([0, height // 2 + 3, height]):
            box = Box(top, left, bottom, right)
            seen = plan.window(box)
            window = pixels[seen.top : seen.bottom, seen.left : seen.right].copy()
            result[top:bottom, left:right] = denoise_region(window, box, plan, jobs=1 if top else 3)
            smallest = min(smallest, seen.shape[0] * seen.shape[1] / (height * width))
    assert result.tobytes() == whole.tobytes()
    for box in (Box(0, 0, 1, 1), Box(height - 1, width // 2, height, width // 2 + 2)):
        seen = plan.window(box)
        window = pixels[seen.top : seen.bottom, seen.left : seen.right].copy()
        part = denoise_region(window, box, plan, jobs=1)
        assert part.tobytes() == whole[box.top : box.bottom, box.left : box.right].tobytes()
        smallest = min(smallest, seen.shape[0] * seen.shape[1] / (height * width))
    assert smallest < 0.75

    memory = Memory(most=10_000, scratch=tmp_path)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1.0)
    assert len(strips(plan, memory)) == 1
    assert denoise_pixels(pixels, sigma, replace(request, memory=memory)).pixels.tobytes() == whole.tobytes()
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1e9)
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", 400 * width)
    assert len(strips(plan, Memory())) > 1 or quality == "paper"
    assert denoise_pixels(pixels, sigma, request).pixels.tobytes() == whole.tobytes()
    assert not list(tmp_path.iterdir())
