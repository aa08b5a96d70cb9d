"""The pipeline removes noise, the same way each time, and says no in one sentence where it cannot."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.config import METHODS, DenoiseConfig, paper_config
from dstl_cli.denoising import Tools, available_cores, denoise_grey, learn_on_picture, make_coder
from dstl_cli.transforms import Transform

Array = NDArray[np.float64]


def small(method: str = "dsect", **changes: Any) -> DenoiseConfig:
    """Settings that take a moment."""
    settings: dict[str, Any] = {"method": method, "rounds": 2, "train_patches": 300}
    return paper_config(**(settings | changes))


def with_noise(clean: NDArray[np.uint8], sigma: float, seed: int = 0) -> Array:
    return clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)


def psnr(image: NDArray[np.floating[Any]], clean: NDArray[np.uint8]) -> float:
    return float(10 * np.log10(255**2 / np.mean((image.clip(0, 255) - clean) ** 2)))


# What it does.


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gains_several_decibels(camera: NDArray[np.uint8], method: str) -> None:
    noisy = with_noise(camera, 20.0)
    result = denoise_grey(noisy, 20.0, small(method), data_range=(0.0, 255.0))
    assert psnr(result.image, camera) > psnr(noisy, camera) + 4.0
    assert result.image.dtype == np.float64
    assert result.image.shape == noisy.shape
    assert result.transform is not None
    assert result.transform.method == method
    assert len(result.history) == (0 if method == "dct" else 20)


@pytest.mark.parametrize("changes", [{"max_condition": 10.0}, {"density": 0.2}, {"stride": 4}, {"patch_size": 8}])
def test_settings_away_from_the_paper_gain_too(camera: NDArray[np.uint8], changes: dict[str, Any]) -> None:
    noisy = with_noise(camera, 20.0)
    result = denoise_grey(noisy, 20.0, small(**changes), data_range=(0.0, 255.0))
    assert psnr(result.image, camera) > psnr(noisy, camera) + 3.0


@pytest.mark.parametrize("method", ["conditioned", "dsect"])
@pytest.mark.parametrize("rho", [1.0, 5.0])
def test_the_transform_handed_over_keeps_its_bounds(camera: NDArray[np.uint8], method: str, rho: float) -> None:
    config = small(method, max_condition=rho, frobenius_norm=3.0, patch_size=6)
    transform = denoise_grey(with_noise(camera[:40, :40], 20.0), 20.0, config).transform
    assert transform is not None
    assert np.linalg.cond(transform.matrix) <= rho * (1 + 1e-6)
    assert np.linalg.norm(transform.matrix) == pytest.approx(3.0, rel=1e-9)


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:64, :64], 20.0)
    first = denoise_grey(noisy, 20.0, small(), Tools(jobs=1))
    again = denoise_grey(noisy, 20.0, small(), Tools(jobs=3))
    other = denoise_grey(noisy, 20.0, small(seed=1))
    assert first.image.tobytes() == again.image.tobytes()
    assert first.history == again.history
    assert first.image.tobytes() != other.image.tobytes()


def test_the_input_stays_as_it_was(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:40, :40], 20.0)
    before = noisy.copy()
    denoise_grey(noisy, 20.0, small(patch_size=6), data_range=(0.0, 255.0))
    np.testing.assert_array_equal(noisy, before)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_sigma_0_gives_the_same_pixels(camera: NDArray[np.uint8], dtype: type[np.generic]) -> None:
    image: NDArray[Any] = camera.astype(dtype)
    result = denoise_grey(image, 0.0, small())
    np.testing.assert_array_equal(result.image, image)
    assert result.transform is None
    result.image[0, 0] += 1
    assert image[0, 0] == camera[0, 0]


def test_a_brighter_image_gives_the_same_result_brighter(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:48, :48], 20.0)
    result = denoise_grey(noisy, 20.0, small(patch_size=6)).image
    brighter = denoise_grey(noisy + 1000.0, 20.0, small(patch_size=6)).image
    np.testing.assert_allclose(brighter - 1000.0, result, atol=1e-3)


def test_a_turned_image_gives_the_same_result_turned(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:48, :40], 20.0)
    result = denoise_grey(noisy, 20.0, small("dct", patch_size=8)).image
    turned = denoise_grey(noisy[::-1].T, 20.0, small("dct", patch_size=8)).image
    np.testing.assert_allclose(turned.T[::-1], result, atol=1e-3)


def test_a_given_transform_is_used_as_it_is(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:40, :40], 20.0)
    transform = Transform.dct(8)
    result = denoise_grey(noisy, 20.0, small("dsect"), Tools(transform))  # of another patch size than the settings
    assert result.transform is transform
    assert result.history == ()
    np.testing.assert_array_equal(result.image, denoise_grey(noisy, 20.0, small("dct", patch_size=8)).image)


def test_a_given_transform_of_small_patches_with_a_large_stride(camera: NDArray[np.uint8]) -> None:
    """The settings cannot see it, but pixels would be left uncovered: refused in a sentence."""
    noisy = with_noise(camera[:40, :40], 20.0)
    with pytest.raises(ValueError, match="stride"):
        denoise_grey(noisy, 20.0, small("dct", stride=9), Tools(Transform.dct(4)))


def test_learning_rounds_go_on_from_each_other(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera, 20.0)
    none, one, four = (learn_on_picture(noisy, 20.0, small("bresler", rounds=r, patch_size=6)) for r in (0, 1, 4))
    np.testing.assert_array_equal(none.transform.factor, np.eye(36))
    assert none.history == ()
    assert len(one.history) == len(four.history) == 20
    assert four.history[0].relative_error < one.history[0].relative_error


def test_the_coder_has_the_settings_of_the_protocol() -> None:
    coder = make_coder(Transform.dct(11), 25.0, DenoiseConfig())
    assert coder.limit == pytest.approx(1.04**2 * 121)
    assert coder.most == 72
    # Phi is orthonormal: M = I / (1 + mu)^2 with mu = 0.01/sigma
    assert coder.smallest_weight == pytest.approx((1 + 0.01 / 25) ** -2, rel=1e-9)


def test_available_cores_is_a_positive_number() -> None:
    assert available_cores() >= 1


# Hard but lawful input.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.0, 255.0, 1e6])
def test_a_constant_image_comes_back(method: str, value: float) -> None:
    result = denoise_grey(np.full((19, 14), value), 5.0, small(method, patch_size=5))
    np.testing.assert_allclose(result.image, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rho", [1.5, 1000.0])
@pytest.mark.parametrize("method", ["conditioned", "dsect"])
def test_a_constant_image_comes_back_under_any_bound(method: str, rho: float) -> None:
    result = denoise_grey(np.full((19, 14), 0.1), 5.0, small(method, patch_size=5, max_condition=rho))
    np.testing.assert_allclose(result.image, 0.1, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_8_bit_image_comes_back_exactly(method: str) -> None:
    image = np.full((24, 17), 77, dtype=np.uint8)
    np.testing.assert_array_equal(denoise_grey(image, 20.0, small(method), data_range=(0.0, 255.0)).image, 77.0)


@pytest.mark.parametrize("method", METHODS)
def test_an_image_of_one_patch(camera: NDArray[np.uint8], method: str) -> None:
    image = camera[:11, :11]
    result = denoise_grey(image, 10.0, small(method))
    assert result.image.shape == (11, 11)
    assert np.isfinite(result.image).all()
    assert np.abs(result.image.mean() - image.mean()) < 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("patch_size", [1, 2, 3])
def test_tiny_patches_work(camera: NDArray[np.uint8], method: str, patch_size: int) -> None:
    result = denoise_grey(with_noise(camera[:20, :20], 10.0), 10.0, small(method, patch_size=patch_size))
    assert np.isfinite(result.image).all()


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 1e4, 1e30])
def test_noise_far_from_the_scale_of_the_pixels(camera: NDArray[np.uint8], sigma: float) -> None:
    result = denoise_grey(camera[:30, :30], sigma, small(patch_size=5), data_range=(0.0, 255.0))
    assert np.isfinite(result.image).all()
    assert result.image.min() >= 0
    assert result.image.max() <= 255


# Bad input.


@pytest.mark.parametrize("sigma", [-1.0, -1e-9, np.nan, np.inf, -np.inf])
def test_bad_sigmas_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma must be a finite number of at least 0, not"):
        denoise_grey(np.zeros((20, 20)), sigma, small())


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (np.zeros((10, 30)), "patch of 11x11 pixels does not fit into an image with a side of 10"),
        (np.zeros((30, 10)), "patch of 11x11 pixels does not fit into an image with a side of 10"),
        (np.zeros((0, 0)), "image is empty"),
        (np.zeros((0, 20)), "image is empty"),
        (np.zeros((20, 20, 3)), "two axes, not 3"),
        (np.zeros(20), "two axes, not 1"),
        (np.zeros((20, 20), dtype=complex), "real numbers, not complex128"),
        (np.where(np.arange(400).reshape(20, 20) % 100 == 0, np.nan, 1.0), "4 pixels that are not finite"),
        (np.where(np.arange(400).reshape(20, 20) < 2, np.inf, 1.0), "2 pixels that are not finite"),
    ],
)
@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_bad_images_are_refused(image: NDArray[np.generic], sentence: str, sigma: float) -> None:
    with pytest.raises(ValueError, match=sentence):
        denoise_grey(image, sigma, small())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"max_condition": 0.99}, "max_condition must be at least 1, not 0.99"),
        ({"max_condition": np.nan}, "max_condition must be at least 1, not nan"),
        ({"frobenius_norm": 0.0}, "frobenius_norm must be positive and finite, not 0.0"),
        ({"frobenius_norm": -2.0}, "frobenius_norm must be positive and finite, not -2.0"),
        ({"patch_size": 0}, "patch_size must be between 1 and 32, not 0"),
        ({"first_level": 1.5}, "first_level must be above 0 and at most 1, not 1.5"),
    ],
)
def test_bad_settings_are_refused_before_any_work(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        small(**changes)
