"""Noise that is added with a seed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.checks import check_sigma


def add_noise(image: NDArray[Any], sigma: float, *, seed: int) -> NDArray[np.float64]:
    """The image plus white Gaussian noise of deviation sigma; float64, not clipped, same shape."""
    noise = np.random.default_rng(seed).standard_normal(image.shape)
    noise *= check_sigma(sigma)
    noise += image
    return noise
