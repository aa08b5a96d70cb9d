"""Coarser versions of a picture by its DCT: white noise stays white, and half the size has half the noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array32 = NDArray[np.float32]

LINES = 512  # transformed at a time: bounds the memory


@dataclass(frozen=True)
class Scale:
    """A picture and the deviation of its noise."""

    image: Array32
    sigma: float


def low_frequencies(image: Array32, shape: tuple[int, int]) -> Array32:
    """The lowest coefficients, of the given shape, of the orthonormal 2-D DCT-II of an image."""
    return _along_rows(_dct, _along_rows(_dct, image, shape[1]).T, shape[0]).T


def from_low_frequencies(coefficients: Array32, shape: tuple[int, int]) -> Array32:
    """The image of the given shape with these lowest DCT coefficients, the others zero."""
    return _along_rows(_inverse_dct, _along_rows(_inverse_dct, coefficients.T, shape[0]).T, shape[1])


def halved(scale: Scale) -> Scale:
    """The picture of half the size that has the same low frequencies."""
    image = scale.image
    shape = (image.shape[0] // 2, image.shape[1] // 2)
    share = np.float32(np.sqrt(shape[0] * shape[1] / image.size))
    return Scale(from_low_frequencies(low_frequencies(image, shape) * share, shape), scale.sigma * float(share))


def pyramid(image: Array32, sigma: float, count: int, smallest: int) -> list[Scale]:
    """The picture and up to count - 1 halved versions with no side below `smallest`, finest first."""
    scales = [Scale(image, sigma)]
    while len(scales) < count and min(scales[-1].image.shape) // 2 >= smallest:
        scales.append(halved(scales[-1]))
    return scales


def with_low_from(fine: Array32, coarse: Array32, share: float) -> Array32:
    """The fine picture with its lowest frequencies, that share of the coarse picture's, taken from the coarse one."""
    shape = (int(coarse.shape[0] * share), int(coarse.shape[1] * share))
    gain = np.float32(np.sqrt(fine.size / coarse.size))
    change = gain * low_frequencies(coarse, shape) - low_frequencies(fine, shape)
    return np.asarray(fine + from_low_frequencies(change, fine.shape), dtype=np.float32)


def _along_rows(transform, lines: Array32, length: int) -> Array32:  # type: ignore[no-untyped-def]
    """A one-dimensional transform of every row, block by block."""
    out = np.empty((len(lines), length), np.float32)
    for start in range(0, len(lines), LINES):
        out[start : start + LINES] = transform(np.ascontiguousarray(lines[start : start + LINES]), length)
    return out


def _twiddles(length: int) -> tuple[NDArray[np.complex128], float]:
    """exp(-i pi k / 2N) for k = 0 ... N/2, and the scale sqrt(2/N) of the orthonormal transform."""
    return np.exp(-0.5j * np.pi * np.arange(length // 2 + 1) / length), float(np.sqrt(2 / length))


def _dct(lines: NDArray[np.floating], count: int) -> NDArray[np.floating]:
    """The first `count` coefficients of the orthonormal DCT-II of each row, through one real FFT.

    The even samples followed by the odd ones backwards have V = FFT, and X_k = Re(e V_k), X_(N-k) = -Im(e V_k).
    """
    length = lines.shape[1]
    twiddles, scale = _twiddles(length)
    turned = np.fft.rfft(np.concatenate((lines[:, ::2], lines[:, 1::2][:, ::-1]), axis=1), axis=1) * (twiddles * scale)
    out = np.empty_like(lines)
    half = turned.shape[1]
    out[:, :half] = turned.real
    out[:, half:] = -turned.imag[:, length - half : 0 : -1]
    out[:, 0] *= np.sqrt(0.5)
    return out[:, :count]


def _inverse_dct(coefficients: NDArray[np.floating], length: int) -> NDArray[np.floating]:
    """Rows of `length` samples whose first orthonormal DCT-II coefficients are given, the others zero."""
    twiddles, scale = _twiddles(length)
    half = len(twiddles)
    full = np.zeros((len(coefficients), length + 1), coefficients.dtype)
    full[:, : coefficients.shape[1]] = coefficients
    full[:, 0] *= np.sqrt(2)
    spectrum = (full[:, :half] - 1j * full[:, length : length - half : -1]) * (twiddles.conj() / scale)
    ordered = np.fft.irfft(spectrum, length, axis=1)
    out = np.empty((len(coefficients), length), coefficients.dtype)
    evens = (length + 1) // 2
    out[:, ::2] = ordered[:, :evens]
    out[:, 1::2] = ordered[:, evens:][:, ::-1]
    return out
