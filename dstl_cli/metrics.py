"""How near an estimate is to the truth: PSNR, and SSIM in two named conventions."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WINDOW, WINDOW_SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03


def _as_pair(reference: NDArray[np.generic], estimate: NDArray[np.generic]) -> tuple[Array, Array]:
    if reference.shape != estimate.shape:
        raise ValueError(f"The two images differ in shape: {reference.shape} and {estimate.shape}.")
    if reference.size == 0:
        raise ValueError("The images are empty.")
    return reference.astype(np.float64), estimate.astype(np.float64)


def psnr(reference: NDArray[np.generic], estimate: NDArray[np.generic], *, peak: float = 255.0) -> float:
    """Peak signal-to-noise ratio in dB; infinite for identical images."""
    a, b = _as_pair(reference, estimate)
    error = float(np.mean((a - b) ** 2))
    return float(10 * np.log10(peak**2 / error)) if error > 0 else np.inf


def _filtered(image: Array, taps: Array) -> Array:
    """Separable correlation with `taps` along both axes, only where the window fits."""
    height, width = (length - len(taps) + 1 for length in image.shape)
    rows = sum(tap * image[k : k + height] for k, tap in enumerate(taps))
    return np.asarray(sum(tap * np.asarray(rows)[:, k : k + width] for k, tap in enumerate(taps)))


def ssim(reference: NDArray[np.generic], estimate: NDArray[np.generic], *, peak: float = 255.0) -> float:
    """Mean structural similarity of two grey images as Wang et al. define it: Gaussian 11x11 window of deviation 1.5.

    The mean goes over the pixels whose window lies inside the picture.
    """
    a, b = _as_pair(reference, estimate)
    if a.ndim != 2 or min(a.shape) < WINDOW:
        raise ValueError(f"SSIM needs grey images of at least {WINDOW}x{WINDOW} pixels, not {a.shape}.")
    offsets = np.arange(WINDOW) - WINDOW // 2
    taps = np.exp(-(offsets**2) / (2 * WINDOW_SIGMA**2))
    taps /= taps.sum()
    mean_a, mean_b = _filtered(a, taps), _filtered(b, taps)
    variance_a = _filtered(a * a, taps) - mean_a**2
    variance_b = _filtered(b * b, taps) - mean_b**2
    covariance = _filtered(a * b, taps) - mean_a * mean_b
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    similarity = ((2 * mean_a * mean_b + c1) * (2 * covariance + c2)) / (
        (mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2)
    )
    return float(similarity.mean())


def downsampling_factor(shape: tuple[int, ...]) -> int:
    """f = max(1, round(shorter side / 256)), halves rounded up."""
    return max(1, int(min(shape) / 256 + 0.5))


def _downsampled(image: Array, factor: int) -> Array:
    """Every factor-th value of the factor x factor box average (symmetric border)."""
    before = (factor + 1) // 2 - 1
    padded = np.pad(image, (before, factor - 1 - before), mode="symmetric")
    return _filtered(padded, np.full(factor, 1 / factor))[::factor, ::factor]


def ssim_downsampled(reference: NDArray[np.generic], estimate: NDArray[np.generic], *, peak: float = 255.0) -> float:
    """The paper's SSIM: `ssim` after averaging and subsampling to about 256 pixels on the shorter side."""
    a, b = _as_pair(reference, estimate)
    factor = downsampling_factor(a.shape)
    return ssim(_downsampled(a, factor), _downsampled(b, factor), peak=peak)
