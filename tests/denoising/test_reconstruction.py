"""The banded reconstruction is the whole-image definition, bit by bit the same however the work is cut."""

from collections.abc import Callable
from typing import Any

import naive
import numpy as np
import pytest
from dstl_cli.denoising.MISSING import Floats, result_type
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress
from dstl_cli.base.threads import Execution
from dstl_cli.denoising import paper
from dstl_cli.denoising.paper import BAND_PATCHES
from dstl_cli.patches.coding import Coder
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]


def noisy(camera: NDArray[np.uint8], shape: tuple[int, int], sigma: float) -> Array:
    """A crop of the photograph with noise."""
    return camera[60 : 60 + shape[0], 30 : 30 + shape[1]] + sigma * np.random.default_rng(0).standard_normal(shape)


def estimate_image(
    image: NDArray[Any],
    sigma: float,
    coder: Coder,
    *,
    stride: int = 1,
    data_range: tuple[float, float] | None = None,
    jobs: int = 1,
    band_rows: int | None = None,
    progress: Progress | None = None,
) -> Floats:
    """The average on some threads, in bands of so many patch rows (as many as usual if not given)."""
    columns = len(naive.positions(image.shape[1], coder.patch_size, stride))
    with pytest.MonkeyPatch.context() as patch:
        if band_rows is not None:
            patch.setattr(paper, "BAND_PATCHES", band_rows * columns)
        return paper.estimate_image(Plane(image, image, sigma, data_range), coder, stride, Execution(jobs, progress))


@pytest.mark.parametrize("condition", [1.0, 3.0])
@pytest.mark.parametrize("stride", [1, 3, 6])
@pytest.mark.parametrize("data_range", [None, (40.0, 170.0)])
def test_equals_the_whole_image_definition(
    camera: NDArray[np.uint8],
    make_transform: Callable[..., Transform],
    condition: float,
    stride: int,
    data_range: tuple[float, float] | None,
) -> None:
    image = noisy(camera, (22, 27), 20.0)
    transform = make_transform(6, condition)
    coder = Coder.build(transform, error_scale=1.04, fidelity=5e-4, most=24)
    result = estimate_image(image, 20.0, coder, stride=stride, data_range=data_range, band_rows=4)
    expected = naive.estimate_image(
        image,
        20.0,
        transform.matrix,
        stride=stride,
        error_scale=1.04,
        mu=5e-4,
        most=24,
        data_range=data_range or (-np.inf, np.inf),
    )
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)
    if data_range is not None:
        assert result.min() == pytest.approx(40.0, abs=1e-9)
        assert result.max() == pytest.approx(170.0, abs=1e-9)


@pytest.mark.parametrize("condition", [1.0, 3.0])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_bands_and_threads_do_not_change_a_bit(
    camera: NDArray[np.uint8], make_transform: Callable[..., Transform], condition: float, stride: int
) -> None:
    image = noisy(camera, (61, 43), 15.0)
    coder = Coder.build(make_transform(8, condition), error_scale=1.04, fidelity=1e-3, most=36)

    def run(band_rows: int | None, jobs: int) -> bytes:
        return estimate_image(image, 15.0, coder, stride=stride, band_rows=band_rows, jobs=jobs).tobytes()

    whole = run(1000, 1)
    for band_rows, jobs in [(None, 1), (1, 1), (2, 2), (5, 3), (7, 1), (7, 2), (11, 8), (1, 4), (1000, 2)]:
        assert run(band_rows, jobs) == whole, (band_rows, jobs)


def test_the_bands_chosen_do_not_change_a_bit() -> None:
    """An image of more patches than one band of the usual height holds."""
    image = np.random.default_rng(0).normal(100, 20, (30, 2000))
    assert 2 * BAND_PATCHES < 27 * 1997
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9)
    usual = estimate_image(image, 20.0, coder, jobs=2)
    np.testing.assert_array_equal(usual, estimate_image(image, 20.0, coder, band_rows=27))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_pixel_types_and_memory_layouts_do_not_matter(camera: NDArray[np.uint8], dtype: type[np.generic]) -> None:
    """But for the type of the result: float64 where the image is, else float32."""
    image: NDArray[Any] = noisy(camera, (30, 20), 20.0).clip(0, 255).astype(dtype)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12)
    result = estimate_image(image, 20.0, coder)
    assert result.dtype == result_type(image) == (np.float64 if dtype == np.float64 else np.float32)
    expected = estimate_image(image.astype(np.float64), 20.0, coder).astype(result.dtype)
    np.testing.assert_array_equal(result, expected)
    turned = np.asfortranarray(image)
    turned.flags.writeable = False
    np.testing.assert_array_equal(estimate_image(turned, 20.0, coder, band_rows=3), expected)


def test_patches_are_clipped_before_they_are_averaged() -> None:
    image = 255.0 * (np.random.default_rng(0).random((20, 20)) > 0.5)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12)
    free = estimate_image(image, 60.0, coder)
    clipped = estimate_image(image, 60.0, coder, data_range=(0.0, 255.0))
    assert free.min() < 0
    assert free.max() > 255
    assert clipped.min() >= 0
    assert clipped.max() <= 255
    assert np.abs(clipped - free.clip(0, 255)).max() > 1.0


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("band_rows", [None, 1, 4])
def test_progress_rises_to_one(jobs: int, band_rows: int | None) -> None:
    seen: list[float] = []
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9)
    image = np.random.default_rng(0).random((22, 9))
    estimate_image(image, 0.1, coder, jobs=jobs, band_rows=band_rows, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen[0] > 0
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("shape", [(5, 5), (5, 40), (40, 5), (6, 5)])
def test_images_hardly_larger_than_a_patch(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).normal(100, 20, shape)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12)
    result = estimate_image(image, 20.0, coder, jobs=2)
    assert result.shape == shape
    assert np.isfinite(result).all()


def test_an_interrupted_run_ends() -> None:
    """What progress raises comes out, and no thread goes on working."""
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9)

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_image(np.ones((50, 50)), 1.0, coder, jobs=2, band_rows=1, progress=interrupt)
