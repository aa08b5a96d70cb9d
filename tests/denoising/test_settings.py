"""The settings are the protocol's, and bad ones are refused by name."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dstl_cli.base.checks import check_sigma
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.settings import PaperSettings, matched_error_scale
from dstl_cli.learning.settings import LearnSettings, first_coefficients, most_coefficients

NAN, INF = float("nan"), float("inf")


def settings_for(quality: str, given: Mapping[str, Any] | None = None) -> Any:
    """The settings of a quality or preset with some of them changed."""
    return QUALITIES[quality].make(given or {})


def test_the_paper_preset_is_the_paper_protocol() -> None:
    settings = settings_for("paper")
    assert (settings.patch_size, settings.stride, settings.train_patches, settings.error_scale) == (11, 1, 500, 1.04)
    assert (first_coefficients(11, settings.first_level), most_coefficients(11, settings.first_level)) == (12, 72)
    assert [settings.resolved([sigma], 11).rounds for sigma in (5, 10, 20, 50, 100)] == [20, 20, 20, 20, 5]
    learn = settings.learn
    assert (learn.method, learn.iterations, learn.homotopy_steps, learn.clip) == ("dsect", 20, 10, 1e-6)
    assert (learn.l1_weight, learn.logdet_weight, learn.freeze_at, learn.density) == (1e4, 32e6, None, None)
    assert (learn.l1_units, learn.step_rule, learn.max_condition) == ("absolute", "exact", 1.0)
    assert learn.norm_for(121) == pytest.approx(np.sqrt(121 / 2))


def test_paper_takes_changes_of_both_stages() -> None:
    settings = settings_for("paper", {"seed": 3, "patch_size": 8, "method": "bresler", "iterations": 7})
    assert (settings.seed, settings.patch_size, settings.learn.method, settings.learn.iterations) == (
        3,
        8,
        "bresler",
        7,
    )
    assert settings.learn.logdet_weight == LearnSettings().logdet_weight


def test_given_rounds_hold_at_any_noise() -> None:
    for rounds in (0, 3):
        assert settings_for("paper", {"rounds": rounds}).resolved([100.0], 11).rounds == rounds


@pytest.mark.parametrize("first_level", [1e-9, 0.1, 0.5, 1.0])
def test_a_patch_never_gets_more_coefficients_than_pixels(first_level: float) -> None:
    for size in range(1, 33):
        assert 0 <= first_coefficients(size, first_level) <= most_coefficients(size, first_level) <= size**2


def test_the_norm_asked_for_is_the_norm() -> None:
    assert LearnSettings(frobenius_norm=3.5).norm_for(121) == 3.5


@pytest.mark.parametrize("quality", QUALITIES.names)
def test_settings_cannot_be_changed_afterwards(quality: str) -> None:
    with pytest.raises(FrozenInstanceError):
        settings_for(quality).seed = 1


BAD_LEARNING: dict[str, list[Any]] = {
    "method": ["DCT", ""],
    "iterations": [-1],
    "max_condition": [0.999, NAN, -INF],
    "frobenius_norm": [0.0, -1.0, NAN, INF],
    "l1_weight": [-1.0, NAN, INF],
    "l1_units": ["watts"],
    "density": [0.0, 1.01, NAN],
    "homotopy_steps": [0],
    "clip": [-1e-9, NAN, INF],
    "freeze_at": [0],
    "step_rule": ["long"],
    "logdet_weight": [0.0, -1.0, NAN, INF],
}
BAD_DENOISING: dict[str, list[Any]] = {
    "patch_size": [0, 33],
    "stride": [0, 12],
    "error_scale": [0.0, -1.0, NAN, INF],
    "rounds": [-1],
    "train_patches": [0],
    "first_level": [0.0, 1.01, NAN],
    "seed": [-1],
}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (kind, name, value)
        for kind, bad in ((LearnSettings, BAD_LEARNING), (PaperSettings, BAD_DENOISING))
        for name, values in bad.items()
        for value in values
    ],
)
def test_bad_settings_are_refused_by_name(kind: type[Any], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*not .*\\.$") as caught:
        kind(**{name: value})
    assert str(value) in str(caught.value)


def test_unknown_qualities_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fast, standard, best, paper, not 'fast-and-good'"):
        settings_for("fast-and-good")


@pytest.mark.parametrize(
    ("name", "setting", "owners"),
    [
        ("standard", "rounds", "paper"),
        ("fast", "density", "standard, best, paper"),
        ("best", "stride", "fast, standard"),
    ],
)
def test_a_setting_of_another_quality_is_named_with_its_owners(name: str, setting: str, owners: str) -> None:
    with pytest.raises(ValueError, match=rf"^{setting} is a setting of {owners}.*, not of {name}\.$"):
        settings_for(name, {setting: 1})
    with pytest.raises(TypeError, match="sharpness is not a setting"):
        settings_for(name, {"sharpness": 1})


@pytest.mark.parametrize("name", QUALITIES.names)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("patch_size", 0),
        ("patch_size", 33),
        ("method", "bm3d"),
        ("canonical", "wavelet"),
        ("seed", -1),
        ("stride", 0),
        ("stride", 12),
        ("error_scale", 0.0),
        ("density", 0.0),
        ("density", 1.1),
        ("max_condition", 0.9),
        ("iterations", -1),
        ("train_patches", 0),
    ],
)
def test_settings_out_of_range_are_refused_by_every_quality(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{setting} "):
        settings_for(name, {setting: value})


@pytest.mark.parametrize(("canonical", "bad"), [("hadamard", 11), ("haar", 12)])
@pytest.mark.parametrize("name", QUALITIES.names)
def test_a_basis_has_only_some_patch_sizes(name: str, canonical: str, bad: int) -> None:
    method = {"method": "dct"} if name == "fast" else {}
    assert settings_for(name, method | {"canonical": canonical, "patch_size": 8}).canonical == canonical
    with pytest.raises(ValueError, match=f"^patch_size must be a power of two .*{canonical}"):
        settings_for(name, method | {"canonical": canonical, "patch_size": bad})


def test_the_error_scale_of_other_patch_sizes_is_as_likely() -> None:
    likely = [chi2.cdf(matched_error_scale(size) ** 2 * size**2, size**2) for size in (4, 8, 11, 16, 32)]
    assert matched_error_scale(11) == pytest.approx(1.04, abs=1e-12)
    np.testing.assert_allclose(likely, likely[2], atol=2e-3)


@pytest.mark.parametrize("sigma", [-1.0, NAN, INF, -INF])
def test_bad_sigmas_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma must be a finite number of at least 0, not"):
        check_sigma(sigma)


def test_good_sigmas_come_back_as_floats() -> None:
    assert [check_sigma(sigma) for sigma in (0, 2, 3.5, float(np.float32(4)))] == [0.0, 2.0, 3.5, 4.0]
