"""What several test modules share; its place here also lets them `import naive`."""

from collections.abc import Callable

import hypothesis
import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.transforms.transform import Transform

hypothesis.settings.register_profile("dstl", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("dstl")


@pytest.fixture(scope="session")
def camera() -> NDArray[np.uint8]:
    """128x128 pixels of a real photograph: sky, coat and tripod."""
    from skimage import data

    return np.asarray(data.camera()[64:320:2, 128:384:2])


@pytest.fixture
def make_transform() -> Callable[..., Transform]:
    """Random transforms of a patch size, condition number and scale (of the largest singular value)."""

    def make(size: int, condition: float, scale: float = 1.0, seed: int = 0) -> Transform:
        rng = np.random.default_rng(seed)
        u, v = (np.linalg.qr(rng.standard_normal((size**2, size**2)))[0] for _ in range(2))
        spectrum = scale * np.geomspace(1.0, 1.0 / condition, size**2)
        return Transform(size, (u * spectrum) @ v.T, "test")

    return make
