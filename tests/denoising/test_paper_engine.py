"""The paper's protocol removes noise, the same way each time, and takes whatever picture there is."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.denoising.paper import learn_in_rounds, make_coder
from dstl_cli.denoising.pipeline import Denoised, denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.settings import PaperSettings
from dstl_cli.denoising.survey import Request
from dstl_cli.learning.methods import METHODS, PAPER_METHODS
from dstl_cli.pixels.depth import Depth
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]

EVERY_METHOD = pytest.mark.parametrize("method", PAPER_METHODS)


def small(method: str = "dsect", *, given: Transform | None = None, jobs: int | None = None, **changes: Any) -> Request:
    """A request that takes a moment."""
    settings = {"method": method, **changes} if given is None else changes
    if given is None and METHODS[method].learns:
        settings = {"rounds": 2, "train_patches": 300} | settings
    return Request.named("paper", source=TransformSource(given), jobs=jobs, **settings)


def denoise_grey(
    image: NDArray[np.generic], sigma: float, request: Request, data_range: tuple[float, float] | None = None
) -> Denoised:
    """The result in double precision, neither rounded nor with other limits than those given."""
    return denoise_pixels(image, sigma, request, depth=Depth(np.dtype(np.float64), 1.0, False, data_range, False))


def denoised(image: NDArray[np.generic], sigma: float, request: Request) -> NDArray[np.floating[Any]]:
    return np.asarray(denoise_grey(image, sigma, request).pixels, dtype=np.float64)


def with_noise(clean: NDArray[np.uint8], sigma: float, seed: int = 0) -> Array:
    return clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)


def psnr(image: NDArray[Any], clean: NDArray[np.uint8]) -> float:
    return float(10 * np.log10(255**2 / np.mean((image.clip(0, 255) - clean) ** 2)))


# What it does.


@EVERY_METHOD
def test_every_method_gains_several_decibels(camera: NDArray[np.uint8], method: str) -> None:
    noisy = with_noise(camera, 20.0)
    result = denoise_grey(noisy, 20.0, small(method), (0.0, 255.0))
    image = result.pixels
    assert psnr(image, camera) > psnr(noisy, camera) + 4.0
    assert (image.dtype, image.shape) == (noisy.dtype, noisy.shape)
    assert result.record.transform is not None
    assert result.record.transform.method == method
    assert len(result.record.history) == (20 if METHODS[method].learns else 0)


@pytest.mark.parametrize("changes", [{"max_condition": 10.0}, {"density": 0.2}, {"stride": 4}, {"patch_size": 8}])
def test_settings_away_from_the_paper_gain_too(camera: NDArray[np.uint8], changes: dict[str, Any]) -> None:
    noisy = with_noise(camera, 20.0)
    image = denoise_grey(noisy, 20.0, small(**changes), (0.0, 255.0)).pixels
    assert psnr(image, camera) > psnr(noisy, camera) + 3.0


@pytest.mark.parametrize("method", ["conditioned", "dsect"])
@pytest.mark.parametrize("rho", [1.0, 5.0])
def test_the_transform_handed_over_keeps_its_bounds(camera: NDArray[np.uint8], method: str, rho: float) -> None:
    request = small(method, max_condition=rho, frobenius_norm=3.0, patch_size=6)
    transform = denoise_grey(with_noise(camera[:40, :40], 20.0), 20.0, request).record.transform
    assert transform is not None
    assert np.linalg.cond(transform.matrix) <= rho * (1 + 1e-6)
    assert np.linalg.norm(transform.matrix) == pytest.approx(3.0, rel=1e-9)


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:64, :64], 20.0)
    first, again, other = (
        denoise_grey(noisy, 20.0, request) for request in (small(jobs=1), small(jobs=3), small(seed=1))
    )
    assert first.pixels.tobytes() == again.pixels.tobytes()
    assert first.record.history == again.record.history
    assert first.pixels.tobytes() != other.pixels.tobytes()


def test_the_input_stays_as_it_was(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:40, :40], 20.0)
    before = noisy.copy()
    denoise_grey(noisy, 20.0, small(patch_size=6), (0.0, 255.0))
    np.testing.assert_array_equal(noisy, before)


def test_a_brighter_image_gives_the_same_result_brighter(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:48, :48], 20.0)
    result = denoised(noisy, 20.0, small(patch_size=6))
    brighter = denoised(noisy + 1000.0, 20.0, small(patch_size=6))
    np.testing.assert_allclose(brighter - 1000.0, result, atol=1e-3)


def test_a_turned_image_gives_the_same_result_turned(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:48, :40], 20.0)
    result = denoised(noisy, 20.0, small("dct", patch_size=8))
    turned = denoised(noisy[::-1].T, 20.0, small("dct", patch_size=8))
    np.testing.assert_allclose(turned.T[::-1], result, atol=1e-3)


def test_a_given_transform_is_used_as_it_is(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera[:40, :40], 20.0)
    transform = Transform.fixed(8)
    result = denoise_grey(noisy, 20.0, small(given=transform))
    assert result.record.transform is transform
    assert result.record.history == ()
    np.testing.assert_array_equal(result.pixels, denoised(noisy, 20.0, small("dct", patch_size=8)))


def test_learning_rounds_go_on_from_each_other(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera, 20.0)
    none, one, four = (
        learn_in_rounds(noisy, 20.0, small("bresler", rounds=rounds, patch_size=6).settings) for rounds in (0, 1, 4)
    )
    np.testing.assert_array_equal(none.transform.factor, np.eye(36))
    assert none.history == ()
    assert len(one.history) == len(four.history) == 20
    assert four.history[0].relative_error < one.history[0].relative_error


def test_the_coder_has_the_settings_of_the_protocol() -> None:
    coder = make_coder(Transform.fixed(11), 25.0, PaperSettings())
    assert coder.limit == pytest.approx(1.04**2 * 121)
    assert coder.most == 72
    # Phi is orthonormal: M = I / (1 + mu)^2 with mu = 0.01/sigma
    assert coder.smallest_weight == pytest.approx((1 + 0.01 / 25) ** -2, rel=1e-9)


# Hard but lawful input.


@EVERY_METHOD
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.0, 255.0, 1e6])
def test_a_constant_image_comes_back(method: str, value: float) -> None:
    result = denoised(np.full((19, 14), value), 5.0, small(method, patch_size=5))
    np.testing.assert_allclose(result, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rho", [1.5, 1000.0])
@pytest.mark.parametrize("method", ["conditioned", "dsect"])
def test_a_constant_image_comes_back_under_any_bound(method: str, rho: float) -> None:
    result = denoised(np.full((19, 14), 0.1), 5.0, small(method, patch_size=5, max_condition=rho))
    np.testing.assert_allclose(result, 0.1, rtol=1e-12)


@EVERY_METHOD
def test_a_constant_8_bit_image_comes_back_exactly(method: str) -> None:
    image = np.full((24, 17), 77, dtype=np.uint8)
    np.testing.assert_array_equal(denoise_grey(image, 20.0, small(method), (0.0, 255.0)).pixels, 77.0)


@EVERY_METHOD
def test_an_image_of_one_patch(camera: NDArray[np.uint8], method: str) -> None:
    image = camera[:11, :11]
    result = denoised(image, 10.0, small(method))
    assert result.shape == (11, 11)
    assert np.isfinite(result).all()
    assert np.abs(result.mean() - image.mean()) < 1e-6


@EVERY_METHOD
@pytest.mark.parametrize("patch_size", [1, 2, 3])
def test_tiny_patches_work(camera: NDArray[np.uint8], method: str, patch_size: int) -> None:
    result = denoised(with_noise(camera[:20, :20], 10.0), 10.0, small(method, patch_size=patch_size))
    assert np.isfinite(result).all()


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 1e4, 1e30])
def test_noise_far_from_the_scale_of_the_pixels(camera: NDArray[np.uint8], sigma: float) -> None:
    result = denoise_grey(camera[:30, :30], sigma, small(patch_size=5), (0.0, 255.0)).pixels
    assert np.isfinite(result).all()
    assert result.min() >= 0
    assert result.max() <= 255
