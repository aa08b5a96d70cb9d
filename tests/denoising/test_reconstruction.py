"""The reconstruction in tiles is the whole-image definition, bit by bit the same however the work is cut."""

from collections.abc import Callable
from typing import Any

import naive
import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress
from dstl_cli.base.threads import Execution
from dstl_cli.denoising import passes
from dstl_cli.denoising.passes import paper_estimate, patch_average, sliding_grid
from dstl_cli.patches.coding import Coder
from dstl_cli.patches.grid import Lattice
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


def noisy(camera: NDArray[np.uint8], shape: tuple[int, int], sigma: float) -> Array:
    """A crop of the photograph with noise."""
    return camera[60 : 60 + shape[0], 30 : 30 + shape[1]] + sigma * np.random.default_rng(0).standard_normal(shape)


def estimate_image(
    image: Floats,
    coder: Coder,
    *,
    stride: int = 1,
    data_range: tuple[float, float] | None = None,
    jobs: int = 1,
    tile: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Floats:
    """The average on some threads, in tiles of this size (the usual one if not given)."""
    with pytest.MonkeyPatch.context() as patch:
        if tile is not None:
            patch.setattr(passes, "TILE_HEIGHT", tile[0])
            patch.setattr(passes, "TILE_WIDTH", tile[1])
        estimate = paper_estimate(coder, data_range)
        plane, execution = Plane.whole(image), Execution(jobs, progress)
        return patch_average([plane], coder.patch_size, Lattice(stride, stride), estimate, execution).values


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
    coder = Coder.build(transform, error_scale=1.04, fidelity=5e-4, most=24, sigma=20.0)
    result = estimate_image(image, coder, stride=stride, data_range=data_range, tile=(7, 11))
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
        assert result.min() == pytest.approx(40.0, abs=2e-5)  # single precision
        assert result.max() == pytest.approx(170.0, abs=2e-5)


@pytest.mark.parametrize("condition", [1.0, 3.0])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_threads_do_not_change_a_bit_and_tiles_hardly_any(
    camera: NDArray[np.uint8], make_transform: Callable[..., Transform], condition: float, stride: int
) -> None:
    image = noisy(camera, (61, 43), 15.0)
    coder = Coder.build(make_transform(8, condition), error_scale=1.04, fidelity=1e-3, most=36, sigma=15.0)
    whole = estimate_image(image, coder, stride=stride)
    for tile in ((1, 1), (5, 100), (7, 12), (64, 9), (1000, 1000)):
        one = estimate_image(image, coder, stride=stride, tile=tile)
        np.testing.assert_allclose(one, whole, rtol=0, atol=2e-3)
        for jobs in (2, 3, 8):
            assert estimate_image(image, coder, stride=stride, tile=tile, jobs=jobs).tobytes() == one.tobytes()


def test_the_usual_tiles_do_not_change_a_bit_on_threads() -> None:
    """An image of more than one tile along both axes."""
    image = np.random.default_rng(0).normal(100, 20, (100, 2000))
    grid = sliding_grid((100, 2000), 4, Lattice(1, 1))
    assert len(grid.rows) > 1
    assert len(grid.columns) > 1
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9, sigma=20.0)
    np.testing.assert_array_equal(estimate_image(image, coder, jobs=2), estimate_image(image, coder))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pixel_types_and_memory_layouts_do_not_matter(camera: NDArray[np.uint8], dtype: type[np.floating[Any]]) -> None:
    """But for the type of the result, which is the plane's."""
    image: Floats = np.rint(noisy(camera, (30, 20), 20.0)).astype(dtype)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12, sigma=20.0)
    result = estimate_image(image, coder)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, estimate_image(image.astype(np.float64), coder), rtol=0, atol=1e-3)
    turned = np.asfortranarray(image)
    turned.flags.writeable = False
    np.testing.assert_array_equal(estimate_image(turned, coder), result)


def test_patches_are_clipped_before_they_are_averaged() -> None:
    image = 255.0 * (np.random.default_rng(0).random((20, 20)) > 0.5)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12, sigma=60.0)
    free = estimate_image(image, coder)
    clipped = estimate_image(image, coder, data_range=(0.0, 255.0))
    assert free.min() < 0
    assert free.max() > 255
    assert clipped.min() >= -2e-5  # single precision
    assert clipped.max() <= 255 + 2e-5
    assert np.abs(clipped - free.clip(0, 255)).max() > 1.0


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("tile", [None, (1, 2), (4, 100)])
def test_progress_rises_to_one(jobs: int, tile: tuple[int, int] | None) -> None:
    seen: list[float] = []
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9)
    image = np.random.default_rng(0).random((22, 9))
    estimate_image(image, coder, jobs=jobs, tile=tile, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen[0] > 0
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("shape", [(5, 5), (5, 40), (40, 5), (6, 5)])
def test_images_hardly_larger_than_a_patch(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).normal(100, 20, shape)
    coder = Coder.build(Transform.fixed(5), error_scale=1.04, fidelity=1e-3, most=12, sigma=20.0)
    result = estimate_image(image, coder, jobs=2)
    assert result.shape == shape
    assert np.isfinite(result).all()


def test_an_interrupted_run_ends() -> None:
    """What progress raises comes out, and no thread goes on working."""
    coder = Coder.build(Transform.fixed(4), error_scale=1.04, fidelity=1e-3, most=9)

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_image(np.ones((50, 50)), coder, jobs=2, tile=(4, 4), progress=interrupt)
