"""A quality is added in one place, and works from the command line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from dstl_cli.base.threads import Execution
from dstl_cli.cli.app import app
from dstl_cli.denoising.plan import Engine, Plan
from dstl_cli.denoising.qualities import QUALITIES, Quality
from dstl_cli.pixels.planes import Plane


@dataclass(frozen=True, kw_only=True)
class BlurSettings:
    """A toy: the mean of the picture, mixed in."""

    method: str = "dct"
    canonical: str = "dct"
    patch_size: int = 1
    seed: int = 0
    share: float | None = None

    def resolved(self, sigmas: Any, patch_size: int, coarse: bool = False) -> "BlurSettings":
        return replace(self, share=min(1.0, max(sigmas) / 40))


class BlurEngine(Engine):
    """Planes are counted from their mean, so that mixing it in is a factor."""

    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        share = np.float32(1 - plan.settings.share)
        return [replace(plane, values=share * plane.values) for plane in planes]


BLUR: Engine = BlurEngine()
BLUR_NAME = f"{__name__}:BLUR"


@pytest.fixture
def toy_quality() -> Iterator[str]:
    entry = Quality("blur", "a toy", BlurSettings, BLUR_NAME, methods=("dct",), coding=frozenset())
    QUALITIES.register(entry)
    yield entry.name
    QUALITIES.remove(entry.name)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    iio.imwrite(path, np.random.default_rng(0).integers(0, 255, (20, 30), dtype=np.uint8))
    return path


def dstl(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_toy_quality_works_from_the_command_line(toy_quality: str, picture: Path) -> None:
    done = dstl("denoise", picture, "--quality", toy_quality, "--sigma", 20, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["files"][0]["settings"]["share"] == 0.5
    noisy: NDArray[np.float64] = iio.imread(picture).astype(np.float64)
    expected = np.rint(0.5 * noisy + 0.5 * noisy.mean())
    np.testing.assert_array_equal(iio.imread(picture.with_name("a_denoised.png")), expected)
    assert toy_quality in dstl("denoise", "--help").output
    table = dstl("evaluate", picture, "--sigma", 10, "--quality", f"{toy_quality},fast", "--json")
    assert [row["method"] for row in json.loads(table.stdout)["rows"]] == [toy_quality, "fast"]


def test_what_a_toy_quality_does_not_use_is_refused(toy_quality: str) -> None:
    for option, value in (("--stride", 2), ("--method", "dsect"), ("--density", 0.5)):
        done = dstl("denoise", "missing.png", "--quality", toy_quality, option, value)
        assert done.exit_code == 2 or "not of blur" in str(done.exception) or "for blur" in str(done.exception)
    assert "blur" not in dstl("denoise", "--help").output or toy_quality == "blur"


def test_it_is_gone_afterwards(picture: Path) -> None:
    assert "blur" not in QUALITIES
    assert "must be one of fast, standard, best" in str(dstl("denoise", picture, "--quality", "blur").exception)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="There is a quality fast already"):
        QUALITIES.register(Quality("fast", "again", BlurSettings, BLUR_NAME))
