"""The settings are the protocol's, and bad ones are refused by name."""

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dstl_cli.config import (
    METHODS,
    QUALITIES,
    DenoiseConfig,
    LearnConfig,
    StandardConfig,
    check_sigma,
    matched_error_scale,
    named_config,
    paper_config,
)


def test_the_paper_preset_is_the_paper_protocol() -> None:
    config = paper_config()
    assert config == DenoiseConfig()
    assert (config.patch_size, config.stride, config.train_patches, config.error_scale) == (11, 1, 500, 1.04)
    assert (config.first_coefficients(11), config.most_coefficients(11)) == (12, 72)
    assert [config.rounds_at(sigma) for sigma in (5, 10, 20, 100)] == [20, 20, 20, 5]
    learn = config.learn
    assert (learn.method, learn.iterations, learn.homotopy_steps, learn.clip) == ("dsect", 20, 10, 1e-6)
    assert (learn.l1_weight, learn.logdet_weight, learn.freeze_at, learn.density) == (1e4, 32e6, None, None)
    assert learn.max_condition == 1.0
    assert learn.norm_for(121) == pytest.approx(np.sqrt(121 / 2))


def test_five_methods() -> None:
    assert METHODS == ("dct", "bresler", "conditioned", "sparse-bresler", "dsect")


def test_presets_take_changes_of_both_stages() -> None:
    config = paper_config(seed=3, patch_size=8, method="bresler", iterations=7)
    assert (config.seed, config.patch_size, config.learn.method, config.learn.iterations) == (3, 8, "bresler", 7)
    assert config.learn.l1_weight == 1e4
    given = paper_config(learn=LearnConfig(clip=0.5), iterations=7)
    assert (given.learn.clip, given.learn.iterations) == (0.5, 7)


def test_rounds() -> None:
    assert paper_config(method="dct").rounds_at(20) == 0
    assert paper_config(method="dct", rounds=3).rounds_at(20) == 0
    assert paper_config(rounds=3).rounds_at(100) == 3
    assert paper_config(rounds=0).rounds_at(20) == 0


@pytest.mark.parametrize("first_level", [1e-9, 0.1, 0.5, 1.0])
def test_a_patch_never_gets_more_coefficients_than_pixels(first_level: float) -> None:
    for size in range(1, 33):
        config = DenoiseConfig(patch_size=size, first_level=first_level)
        assert 0 <= config.first_coefficients(size) <= config.most_coefficients(size) <= size**2


def test_the_norm_asked_for_is_the_norm() -> None:
    assert LearnConfig(frobenius_norm=3.5).norm_for(121) == 3.5


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        LearnConfig().method = "dct"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        DenoiseConfig().seed = 1  # type: ignore[misc]


NAN, INF = float("nan"), float("inf")

BAD_LEARNING: list[tuple[str, Any]] = [
    ("method", "DCT"), ("method", ""), ("iterations", -1), ("max_condition", 0.999), ("max_condition", NAN),
    ("max_condition", -INF), ("frobenius_norm", 0.0), ("frobenius_norm", -1.0), ("frobenius_norm", NAN),
    ("frobenius_norm", INF), ("l1_weight", -1.0), ("l1_weight", NAN), ("l1_weight", INF), ("density", 0.0),
    ("density", 1.01), ("density", NAN), ("homotopy_steps", 0), ("clip", -1e-9), ("clip", NAN), ("clip", INF),
    ("freeze_at", 0), ("logdet_weight", 0.0), ("logdet_weight", -1.0), ("logdet_weight", NAN),
    ("logdet_weight", INF), ("tolerance", -0.1), ("tolerance", 1.0), ("tolerance", NAN),
]  # fmt: skip

BAD_DENOISING: list[tuple[str, Any]] = [
    ("patch_size", 0), ("patch_size", 33), ("stride", 0), ("stride", 12), ("error_scale", 0.0), ("error_scale", -1.0),
    ("error_scale", NAN), ("error_scale", INF), ("rounds", -1), ("train_patches", 0), ("first_level", 0.0),
    ("first_level", 1.01), ("first_level", NAN), ("seed", -1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_LEARNING)
def test_bad_learning_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*not .*\\.$") as caught:
        LearnConfig(**{name: value})
    assert str(value) in str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD_DENOISING)
def test_bad_denoising_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*not .*\\.$") as caught:
        DenoiseConfig(**{name: value})
    assert str(value) in str(caught.value)


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fast, standard, best, or the preset paper, not 'fast-and-good'"):
        named_config("fast-and-good")


def test_every_name_has_its_own_settings() -> None:
    assert named_config("paper", rounds=3) == paper_config(rounds=3)
    standard = named_config("standard", density=0.2)
    assert isinstance(standard, StandardConfig)
    assert (standard.patch_size, standard.max_condition, standard.density) == (11, 1.25, 0.2)
    assert named_config("fast").stride == 2  # type: ignore[union-attr]
    assert named_config("best").patch_size == 8


@pytest.mark.parametrize(
    ("name", "setting", "owners"),
    [("standard", "rounds", "paper"), ("fast", "density", "paper, standard, best"), ("best", "stride", "paper, fast")],
)
def test_a_setting_of_another_quality_is_named_with_its_owners(name: str, setting: str, owners: str) -> None:
    with pytest.raises(ValueError, match=rf"^{setting} is a setting of {owners}.*, not of {name}\.$"):
        named_config(name, **{setting: 1})
    with pytest.raises(TypeError, match="sharpness is not a setting"):
        named_config(name, sharpness=1)


@pytest.mark.parametrize("name", QUALITIES)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("patch_size", 0), ("patch_size", 33), ("method", "bm3d"), ("seed", -1), ("stride", 0), ("stride", 12),
     ("error_scale", 0.0), ("density", 0.0), ("density", 1.1), ("max_condition", 0.9), ("iterations", -1),
     ("train_patches", 0)],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_every_quality(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{setting} "):
        named_config(name, **{setting: value})


def test_fast_learns_nothing() -> None:
    with pytest.raises(ValueError, match="method must be dct or dsect"):
        named_config("fast", method="bresler")


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
