"""No option without effect: every quality x method x setting x source of the transform is refused, or changes pixels.

The seed is exempt: it promises the same bytes again, and is taken everywhere.
"""

from collections.abc import Mapping
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.survey import Request
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import learn_transform_on
from dstl_cli.learning.settings import PictureLearning
from dstl_cli.noise.model import WhiteChannel
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.ready import ready_transform
from dstl_cli.transforms.transform import Transform

SIGMA = 25.0
LEAST_EFFECT = 0.1  # grey levels: more than rounding
# Where a quality takes them, they make a run short; small patches are those of all canonical transforms.
SHORT: dict[str, Any] = {"patch_size": 8, "rounds": 2, "iterations": 3, "train_patches": 1600}
# Values other than the defaults and the above, far enough from both for an effect.
OTHER: dict[str, Any] = {
    "canonical": "haar",
    "patch_size": 6,
    "stride": 4,
    "error_scale": 0.8,
    "max_condition": 1.05,
    "density": 0.06,
    "iterations": 6,
    "rounds": 3,
    "train_patches": 1200,
    "first_level": 0.02,
    "frobenius_norm": 3.0,
    "l1_weight": 1e6,
    "l1_units": "energy",
    "homotopy_steps": 2,
    "clip": 0.05,
    "freeze_at": 1,
    "step_rule": "lipschitz",
    "logdet_weight": 1.0,
}
SOURCES = ("learnt", "given", "adapted")
EVERY_QUALITY = pytest.mark.parametrize("quality", QUALITIES.names)


@cache
def picture() -> NDArray[np.float64]:
    """A small part of a photograph with noise."""
    from skimage import data

    clean = np.asarray(data.camera()[64:208:2, 128:272:2], dtype=np.float64)
    return clean + SIGMA * np.random.default_rng(0).standard_normal(clean.shape)


@cache
def start() -> Transform:
    """What is given or adapted: learnt on the same picture from other patches."""
    learning = PictureLearning(patch_size=8, iterations=2, train_patches=1500, seed=7)
    plane = Plane.whole((picture() - picture().mean()).astype(np.float32))
    return learn_transform_on(plane, WhiteChannel(SIGMA), learning).transform


def accepted(quality: str, source: str, settings: Mapping[str, Any]) -> bool:
    """Whether a quality takes the settings; tests/cli/test_refused_options.py looks at the sentences."""
    try:
        QUALITIES[quality].make(settings, transform=source != "learnt", adapt=source == "adapted")
    except ValueError:
        return False
    return True


def short(quality: str, source: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings and those of a short run that are taken with them."""
    made = dict(settings)
    for key, value in SHORT.items():
        if key not in made and accepted(quality, source, made | {key: value}):
            made[key] = value
    return made


def denoised(quality: str, source: str, settings: Mapping[str, Any]) -> NDArray[Any]:
    given = None if source == "learnt" else start()
    origin = TransformSource(given, source == "adapted", ready_transform)
    return denoise_pixels(picture(), SIGMA, Request.named(quality, source=origin, **settings)).pixels


def differ(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return bool(np.abs(one - other).max() > LEAST_EFFECT)


def methods_of(quality: str, source: str) -> list[dict[str, Any]]:
    """The methods that a quality takes, as settings; none where it takes none."""
    choices = [{"method": name} for name in METHODS.names]
    return [choice for choice in choices if accepted(quality, source, choice)] or [{}]


def usual(quality: str, source: str) -> dict[str, Any]:
    """What is needed at least: to adapt, a method that learns."""
    learns = METHODS[QUALITIES[quality].default_method].learns
    return {} if learns or source != "adapted" else {"method": "procrustes"}


def cases() -> list[Any]:
    """Every quality with every source; that best learns, and how, is for the slow checks."""
    every = [(quality, source) for quality in QUALITIES.names for source in SOURCES]
    return [
        pytest.param(*case, marks=pytest.mark.slow if case[0] == "best" and case[1] != "given" else ())
        for case in every
    ]


@pytest.mark.parametrize(("quality", "source"), cases())
def test_every_setting_is_refused_or_changes_pixels(quality: str, source: str) -> None:
    if not accepted(quality, source, usual(quality, source)):
        return  # fast adapts nothing
    silent, taken = [], set()
    for method in methods_of(quality, source):
        before = denoised(quality, source, short(quality, source, method))
        for key in sorted(QUALITIES[quality].setting_names - {"method", "seed"}):
            settings = short(quality, source, method | {key: OTHER[key]})
            if accepted(quality, source, settings):
                taken.add(key)
                if not differ(denoised(quality, source, settings), before):
                    silent.append((method, key))
    assert silent == []
    if source == "learnt":
        assert taken == QUALITIES[quality].setting_names - {"method", "seed"}  # each has its effect somewhere


@EVERY_QUALITY
@pytest.mark.parametrize("source", SOURCES)
def test_every_method_is_refused_or_changes_pixels(quality: str, source: str) -> None:
    methods = [method for method in methods_of(quality, source) if method]
    results = [denoised(quality, source, short(quality, source, method)) for method in methods]
    assert len({result.tobytes() for result in results}) == len(methods)
    default = {"method": QUALITIES[quality].default_method}
    if default in methods:
        result = denoised(quality, source, short(quality, source, {}))
        np.testing.assert_array_equal(result, results[methods.index(default)])


@EVERY_QUALITY
def test_a_transform_is_used_and_adapting_changes_it(quality: str) -> None:
    every = [(source, usual(quality, source)) for source in SOURCES]
    taken = [(source, settings) for source, settings in every if accepted(quality, source, settings)]
    results = [denoised(quality, source, short(quality, source, settings)) for source, settings in taken]
    assert len(results) == (3 if QUALITIES[quality].learning else 2)
    assert all(differ(one, other) for one, other in combinations(results, 2))
