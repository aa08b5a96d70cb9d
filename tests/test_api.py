"""The Python interface: arrays in, arrays out, dtype and shape kept."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dstl_cli
from dstl_cli import Transform, denoise, estimate_noise, learn_transform
from dstl_cli.learning.methods import METHODS
from dstl_cli.measure.metrics import peak_signal_noise_ratio

psnr = partial(peak_signal_noise_ratio, data_range=255)

LEARNING: dict[str, Any] = {"patch_size": 6, "iterations": 5, "train_patches": 300}
SMALL = LEARNING | {"quality": "paper", "rounds": 2}
DCT: dict[str, Any] = {"quality": "paper", "method": "dct", "patch_size": 6}
UNIT = {"uint8": 1, "uint16": 257, "float32": 1, "float64": 1}


def with_noise(clean: NDArray[np.uint8], dtype: str, sigma: float = 20, seed: int = 0) -> NDArray[Any]:
    """The picture in a dtype, with noise of `sigma` on the 0-255 scale; integers rounded and clipped."""
    values = clean.astype(np.float64) + sigma * np.random.default_rng(seed).standard_normal(clean.shape)
    if np.dtype(dtype).kind == "u":
        values = np.rint(np.clip(values, 0, 255) * UNIT[dtype])
    return values.astype(dtype)


def cleaned(array: NDArray[Any], **settings: Any) -> NDArray[Any]:
    """`denoise` for arithmetic: its result has the type of what went in, whatever that is."""
    return np.asarray(denoise(array, **settings))


def in_colour(camera: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.dstack((camera, camera.T, camera[::-1]))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("colour", [False, True])
def test_denoise_keeps_dtype_and_shape_and_removes_noise(camera: NDArray[np.uint8], dtype: str, colour: bool) -> None:
    clean = in_colour(camera) if colour else camera
    noisy = with_noise(clean, dtype)
    before = noisy.copy()
    result = cleaned(noisy, sigma=20, **SMALL)
    assert (result.dtype, result.shape) == (noisy.dtype, noisy.shape)
    np.testing.assert_array_equal(noisy, before)
    assert not np.shares_memory(result, noisy)
    scale = UNIT[dtype]
    assert psnr(clean, result / scale) > psnr(clean, noisy / scale) + 4


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint32", "float16"])
@pytest.mark.parametrize("colour", [False, True])
def test_numbers_without_a_scale_are_treated_as_floats_are(camera: NDArray[np.uint8], dtype: str, colour: bool) -> None:
    """In their own units, and rounded at the end; far from zero where the type has room."""
    centre, scale = {"int8": (-10, 0.5), "int16": (-9_000, 20), "int32": (-2_000_000_000, 900)}.get(dtype, (300, 2))
    clean = centre + scale * ((in_colour(camera) if colour else camera).astype(np.float64) - 128)
    noisy = np.rint(clean + 15 * scale * np.random.default_rng(1).standard_normal(clean.shape))
    limits = (np.iinfo(dtype).min, np.iinfo(dtype).max) if "int" in dtype else (-65_504, 65_504)
    array = np.clip(noisy, *limits).astype(dtype)
    floats = array.astype(np.float64)
    assert estimate_noise(array) == pytest.approx(estimate_noise(floats), rel=1e-3)
    result, expected = (cleaned(values, sigma=15 * scale, quality="fast") for values in (array, floats))
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_allclose(result.astype(np.float64), expected, atol=1.01 if "int" in dtype else 0.6)
    plan = dstl_cli.survey(array, sigma=15 * scale, quality="fast")
    assert plan.sigmas == pytest.approx([15 * scale] * (3 if colour else 1))
    assert (plan.to_json()["dtype"], plan.depth.scaled) == (dtype, False)


@pytest.mark.parametrize(
    ("dtype", "colour"), [("uint8", True), ("uint16", False), ("float32", True), ("float64", False)]
)
@pytest.mark.parametrize("quality", ["fast", "standard", "best"])
def test_every_quality_keeps_dtype_and_shape(camera: NDArray[np.uint8], dtype: str, colour: bool, quality: str) -> None:
    clean = in_colour(camera) if colour else camera
    noisy = with_noise(clean, dtype)
    before = noisy.copy()
    result = cleaned(noisy, sigma=20, quality=quality)
    assert (result.dtype, result.shape) == (noisy.dtype, noisy.shape)
    np.testing.assert_array_equal(noisy, before)
    scale = UNIT[dtype]
    assert psnr(clean, result / scale) > psnr(clean, noisy / scale) + 4


@pytest.mark.parametrize("quality", ["fast", "standard", "best"])
@pytest.mark.parametrize("scale", [1 / 255, 1e6])
def test_every_quality_takes_floats_in_any_unit(camera: NDArray[np.uint8], quality: str, scale: float) -> None:
    noisy = with_noise(camera, "float64")
    usual = cleaned(noisy, sigma=20, quality=quality)
    scaled = cleaned(noisy * scale, sigma=20 * scale, quality=quality) / scale
    np.testing.assert_allclose(scaled, usual, atol=0.5)
    assert np.abs(scaled - usual).mean() < 1e-3


@pytest.mark.parametrize("quality", ["standard", "best"])
@pytest.mark.parametrize("method", METHODS.names)
def test_every_method(camera: NDArray[np.uint8], method: str, quality: str) -> None:
    noisy = with_noise(camera, "uint8")
    settings: dict[str, Any] = {"method": method, "quality": quality, "patch_size": 6}
    settings |= {"iterations": 5} if METHODS[method].learns else {}
    assert psnr(camera, denoise(noisy, sigma=20, **settings)) > psnr(camera, noisy) + 4


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3)])
def test_sigma_zero_changes_nothing(dtype: str, shape: tuple[int, ...]) -> None:
    pixels = with_noise(np.full(shape, 100, np.uint8), dtype)
    result = denoise(pixels, sigma=0)
    np.testing.assert_array_equal(result, pixels)
    assert result.dtype == pixels.dtype
    assert not np.shares_memory(result, pixels)


def test_strange_memory_layouts(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(in_colour(camera), "uint8")
    expected = denoise(noisy, sigma=20, method="dct", patch_size=6)
    read_only = noisy.copy()
    read_only.flags.writeable = False
    for same in (np.asfortranarray(noisy), noisy[:, ::-1].copy()[:, ::-1], read_only, noisy.repeat(2, axis=0)[::2]):
        np.testing.assert_array_equal(denoise(same, sigma=20, method="dct", patch_size=6), expected)
    swapped = with_noise(camera, "uint16")
    native = denoise(swapped, sigma=20, method="dct", patch_size=6)
    other = swapped.astype(swapped.dtype.newbyteorder(">"))
    np.testing.assert_array_equal(denoise(other, sigma=20, method="dct", patch_size=6), native)


def test_the_result_is_the_same_for_any_number_of_jobs(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(np.tile(camera, (1, 5)), "uint8")
    results = [denoise(noisy, sigma=20, jobs=jobs, **SMALL) for jobs in (1, 2, None)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], denoise(noisy, sigma=20, seed=1, **SMALL))


@pytest.mark.parametrize(("settings", "tolerance"), [(DCT, 0.02), (SMALL, 0.1)])
@pytest.mark.parametrize("scale", [1 / 255, 1e-6, 1e6])
def test_floats_have_no_preferred_unit(
    camera: NDArray[np.uint8], settings: dict[str, Any], tolerance: float, scale: float
) -> None:
    """A picture from 0 to 1 (or in volts, or in counts) is as well denoised as the same one from 0 to 255."""
    noisy = with_noise(camera, "float64")
    settings = settings | {"patch_size": 8}
    usual = psnr(camera, cleaned(noisy, sigma=20, **settings))
    scaled = psnr(camera, cleaned(noisy * scale, sigma=20 * scale, **settings) / scale)
    assert scaled == pytest.approx(usual, abs=tolerance)


def test_grey_stored_as_rgb_is_denoised_as_well_as_grey(camera: NDArray[np.uint8]) -> None:
    """Its noise is the same in all three channels, not independent."""
    noisy = with_noise(camera, "uint8")
    expected = psnr(camera, cleaned(noisy, sigma=20, **DCT))
    result = cleaned(np.dstack([noisy] * 3), sigma=20, **DCT)
    np.testing.assert_array_equal(result, np.dstack([result[..., 0]] * 3))
    assert psnr(camera, result[..., 0]) == pytest.approx(expected, abs=0.1)


def test_floats_may_be_negative_and_are_not_clipped(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera, "float64")
    shifted = cleaned(noisy - 1000, sigma=20, method="dct", patch_size=6)
    np.testing.assert_allclose(shifted + 1000, cleaned(noisy, sigma=20, method="dct", patch_size=6), atol=0.05)


def test_a_learnt_transform_can_be_used_again(camera: NDArray[np.uint8]) -> None:
    transform = learn_transform([camera, camera.T], **(LEARNING | {"train_patches": 1000}))
    assert isinstance(transform, Transform)
    assert (transform.patch_size, transform.method, transform.factor.shape) == (6, "procrustes", (36, 36))
    assert transform.condition <= 1.25
    assert transform.density <= 0.30
    noisy = with_noise(camera, "uint8")
    result = denoise(noisy, sigma=20, transform=transform)
    assert psnr(camera, result) > psnr(camera, noisy) + 4


def test_learn_transform(camera: NDArray[np.uint8]) -> None:
    images: list[NDArray[Any]] = [camera, in_colour(camera), camera.astype(np.float32), camera.astype(np.uint16) * 257]
    small = LEARNING | {"train_patches": 1000}
    for method in METHODS:
        settings = small if method.learns else {"patch_size": 6}
        assert learn_transform(images, method=method.name, **settings).method == method.name
    first, again, other = (learn_transform(images, seed=seed, **small).factor for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    sparser = learn_transform(images, sparsity_level=1, **small)
    assert not np.array_equal(first, sparser.factor)
    bounded = learn_transform(images, max_condition=4, density=0.2, **small)
    assert bounded.condition <= 4
    assert bounded.density <= 0.2


def test_learn_transform_refuses() -> None:
    with pytest.raises(ValueError, match="no pictures"):
        learn_transform([])
    with pytest.raises(ValueError, match="does not fit"):
        learn_transform([np.zeros((5, 5))])
    with pytest.raises(ValueError, match="sparsity_level"):
        learn_transform([np.zeros((20, 20))], patch_size=4, sparsity_level=17)
    with pytest.raises(ValueError, match="not finite"):
        learn_transform([np.full((20, 20), np.nan)])


def test_estimate_noise_is_on_the_scale_of_sigma(camera: NDArray[np.uint8]) -> None:
    big = np.tile(camera, (2, 2))
    for dtype in ("uint8", "uint16", "float32", "float64"):
        assert estimate_noise(with_noise(big, dtype)) == pytest.approx(20, rel=0.15)
    noisy = with_noise(big, "uint8")
    assert estimate_noise(noisy.astype(np.uint16) * 257) == pytest.approx(estimate_noise(noisy), rel=1e-6)
    assert estimate_noise(with_noise(in_colour(big), "uint8")) == pytest.approx(20, rel=0.15)
    unit = with_noise(big, "float64") / 255
    assert estimate_noise(unit) == pytest.approx(20 / 255, rel=0.15)
    assert estimate_noise(np.full((40, 40), 9, np.uint8)) == 0


def test_sigma_is_estimated_if_not_given(camera: NDArray[np.uint8]) -> None:
    noisy = with_noise(camera, "uint8")
    result = denoise(noisy, method="dct", patch_size=6)
    np.testing.assert_array_equal(result, denoise(noisy, sigma=estimate_noise(noisy), method="dct", patch_size=6))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sigma": -1}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": float("inf")}, "sigma"),
        ({"sigma": 20, "method": "bm3d"}, "method"),
        ({"sigma": 20, "quality": "none"}, "quality"),
        ({"sigma": 20, "adapt": True}, "adapt starts learning from a given transform"),
        ({"sigma": 20, "density": 0}, "density"),
        ({"sigma": 20, "patch_size": 0}, "patch_size"),
        ({"sigma": 20, "max_condition": 0.5}, "max_condition"),
        ({"sigma": 20, "rounds": 2}, "rounds is a setting of paper"),
        ({"sigma": 20, "method": "dct", "iterations": 3}, "iterations is a setting of learning"),
        ({"sigma": 20, "transform": Transform.fixed(6), "method": "dsect"}, "method has no effect"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        denoise(np.zeros((20, 20), np.uint8), **settings)


@pytest.mark.parametrize("array", [np.zeros((20, 20), int), np.zeros((20, 20), bool), np.zeros((20, 20, 3), complex)])
def test_wrong_types(array: NDArray[Any]) -> None:
    for function in (lambda: denoise(array, sigma=20), lambda: denoise(array, sigma=0), lambda: estimate_noise(array)):
        with pytest.raises(ValueError, match=r"^Pixels must be uint8, .* float32 or float64, not "):
            function()


@pytest.mark.parametrize(
    "array", [np.zeros((20, 20, 4), np.uint8), np.zeros(20), np.zeros((0, 3)), np.full((9, 9), np.nan)]
)
def test_wrong_arrays(array: NDArray[Any]) -> None:
    for function in (lambda: denoise(array, sigma=20), lambda: denoise(array, sigma=0), lambda: estimate_noise(array)):
        with pytest.raises(ValueError, match="picture"):
            function()


def test_the_package_offers_what_it_says_and_names_what_it_does_not() -> None:
    for name in dstl_cli.__all__:
        assert getattr(dstl_cli, name) is not None
    with pytest.raises(AttributeError, match="sharpen"):
        _ = dstl_cli.sharpen
