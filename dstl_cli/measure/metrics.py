"""How near an estimate is to the truth: PSNR and SSIM as scikit-image has them, and the paper's variant of SSIM."""

import math

import numpy as np

from dstl_cli.base.arrays import Array, Pixels
from dstl_cli.base.checks import require

WINDOW = 11  # side of the window of SSIM in pixels


def peak_signal_noise_ratio(image_true: Pixels, image_test: Pixels, *, data_range: float) -> float:
    """Peak signal-to-noise ratio over all values of two images; infinite for identical ones.

    The number is scikit-image's, whose module takes 0.4 s to import.

    Parameters
    ----------
    image_true, image_test : arrays of one shape
    data_range : float
        The value of white in their units, 255 for uint8.

    Returns
    -------
    float
        In dB.

    Examples
    --------
    >>> black = np.zeros((4, 4), np.uint8)
    >>> peak_signal_noise_ratio(black, black + 255, data_range=255)
    0.0
    """
    first, second = _as_pair(image_true, image_test)
    error = float(np.mean((first - second) ** 2))
    return 10 * math.log10(data_range**2 / error) if error > 0 else math.inf


def structural_similarity(im1: Pixels, im2: Pixels, *, data_range: float) -> float:
    """Mean structural similarity of two grey images as Wang et al. define it: 1 for identical images.

    The window is a Gaussian of 11x11 pixels and deviation 1.5; the mean goes over the pixels whose window lies inside
    the image.

    Parameters
    ----------
    im1, im2 : (H, W) arrays of one shape
    data_range : float
        The value of white in their units, 255 for uint8.

    Returns
    -------
    float
        At most 1.
    """
    import skimage.metrics

    first, second = _as_pair(im1, im2)
    if first.ndim != 2 or min(first.shape) < WINDOW:
        raise ValueError(f"SSIM needs grey images of at least {WINDOW}x{WINDOW} pixels, not {first.shape}.")
    wang = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    return float(skimage.metrics.structural_similarity(first, second, data_range=data_range, **wang))


def structural_similarity_downsampled(im1: Pixels, im2: Pixels, *, data_range: float) -> float:
    """The paper's SSIM: after averaging and subsampling to about 256 pixels on the shorter side.

    Every f-th value of the f x f box average, as MATLAB's imfilter has it (symmetric border).
    """
    from scipy.ndimage import uniform_filter

    pair = _as_pair(im1, im2)
    f = downsampling_factor(im1.shape)
    first, second = (uniform_filter(image, f, mode="reflect", origin=f % 2 - 1)[::f, ::f] for image in pair)
    return structural_similarity(first, second, data_range=data_range)


def downsampling_factor(shape: tuple[int, ...]) -> int:
    """f = max(1, round(shorter side / 256)), halves rounded up."""
    return max(1, int(min(shape) / 256 + 0.5))


def _as_pair(first: Pixels, second: Pixels) -> tuple[Array, Array]:
    require(first.shape == second.shape, f"The two images differ in shape: {first.shape} and {second.shape}.")
    require(first.size > 0, "The images are empty.")
    return first.astype(np.float64), second.astype(np.float64)
