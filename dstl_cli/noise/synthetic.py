"""Noise that is added with a seed: white, Poisson-Gaussian, and that of a simulated camera.

Each kind is a pure function of a clean picture, its parameters and a seed, with an entry in `SYNTHETIC`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.checks import check_sigma, require
from dstl_cli.base.registry import Registry

Array = NDArray[np.float64]

MOST_COUNTS = 1e15  # in a pixel, on average
JPEG_QUALITY = 92
ELECTRONS = 3.0e6  # of a white pixel, times the ISO number: those of a middling sensor
READ_NOISE = 3.0  # electrons
BALANCE = np.array([2.0, 1.0, 1.6])  # the gains of red, green and blue that make grey light grey
BILINEAR = np.array([[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]])
BILINEAR_GREEN = np.array([[0.0, 0.25, 0.0], [0.25, 1.0, 0.25], [0.0, 0.25, 0.0]])


def add_noise(image: NDArray[Any], sigma: float, *, seed: int) -> Array:
    """The image plus white Gaussian noise of deviation sigma; float64, not clipped, same shape."""
    noise = np.random.default_rng(seed).standard_normal(image.shape)
    noise *= check_sigma(sigma)
    noise += image
    return noise


def add_poisson_noise(image: NDArray[Any], slope: float, offset: float, *, seed: int) -> Array:
    """Independent Poisson-Gaussian noise of variance slope x + offset, x the value of the image; float64, not clipped.

    Poisson counts of mean x / slope, times slope, and Gaussian noise of variance offset. Values below 0 have that of 0.
    """
    check_sigma(slope)
    noisy = add_noise(image, check_sigma(offset) ** 0.5, seed=seed)
    if slope > 0:
        light = np.maximum(image, 0.0)
        least = float(light.max(initial=0.0)) / MOST_COUNTS
        require(slope >= least, f"the slope of Poisson noise must be 0 or at least {least:g} here, not {slope:g}.")
        noisy += slope * np.random.default_rng([seed, 1]).poisson(light / slope) - light
    return noisy


def photograph(image: NDArray[Any], iso: float, *, seed: int) -> NDArray[np.uint8]:
    """The pixels of `camera_jpeg`."""
    import imagecodecs

    return np.asarray(imagecodecs.jpeg8_decode(camera_jpeg(image, iso, seed=seed)))


def camera_jpeg(image: NDArray[Any], iso: float, *, seed: int) -> bytes:
    """The JPEG that a camera makes of a scene that looks like the image, white at 255; grey stays grey.

    Linear light falls on a sensor behind an RGGB mosaic of colour filters; electrons are counted (Poisson) and read
    (Gaussian). Interpolation (bilinear), white balance and the colour matrix are linear, so the noise alone goes
    through them: the image has been through a camera before. The tone curve and JPEG see both.
    """
    import imagecodecs

    light = linear_light(np.clip(image, 0.0, 255.0) / 255)
    scene = light if light.ndim == 3 else np.repeat(light[..., None], 3, axis=2)
    mosaic = mosaic_of(scene / BALANCE)
    white = ELECTRONS / iso
    counted = add_poisson_noise(white * mosaic, 1.0, READ_NOISE**2, seed=seed) / white
    noise = interpolated(counted - mosaic) * BALANCE
    developed = 255 * tone_curve(scene + noise)
    if light.ndim == 2:
        developed = developed @ np.array([0.299, 0.587, 0.114])
    return bytes(imagecodecs.jpeg8_encode(np.rint(developed).astype(np.uint8), JPEG_QUALITY, subsampling="420"))


def linear_light(values: Array) -> Array:
    """The light that sRGB values of 0 to 1 stand for."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def tone_curve(light: Array) -> Array:
    """The sRGB values, 0 to 1, of linear light, which is clipped to that range."""
    light = np.clip(light, 0.0, 1.0)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def mosaic_of(picture: Array) -> Array:
    """What a sensor behind an RGGB mosaic sees of a colour picture: one channel a pixel, (H, W)."""
    seen = picture[..., 1].copy()
    seen[::2, ::2], seen[1::2, 1::2] = picture[::2, ::2, 0], picture[1::2, 1::2, 2]
    return seen


def interpolated(mosaic: Array) -> Array:
    """The colour picture (H, W, 3) behind an RGGB mosaic: the means of the nearest pixels of each colour."""
    from scipy.ndimage import convolve

    channels = np.zeros((3, *mosaic.shape))
    for channel, row, column in ((0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)):
        channels[channel, row::2, column::2] = mosaic[row::2, column::2]
    kernels = (BILINEAR, BILINEAR_GREEN, BILINEAR)
    return np.stack([convolve(*pair, mode="mirror") for pair in zip(channels, kernels, strict=True)], axis=-1)


@dataclass(frozen=True)
class SyntheticKind:
    """A registered kind of noise: `add(image, *numbers, seed=seed)`, for numbers between `least` and `most`.

    photograph: it takes pictures with white at 255 and gives one of 8 bits, whatever the depth was.
    """

    name: str
    help: str
    add: Callable[..., NDArray[Any]]
    parameters: tuple[str, ...]
    least: float = 0.0
    most: float = 1e6
    photograph: bool = False


SYNTHETIC: Registry[SyntheticKind] = Registry(
    "noise",
    SyntheticKind("white", "white Gaussian noise", add_noise, ("SIGMA",)),
    SyntheticKind("poisson", "variance A x + B at the value x", add_poisson_noise, ("A", "B")),
    SyntheticKind("camera", "a simulated camera's JPEG", photograph, ("ISO",), least=25, most=1e6, photograph=True),
)


@dataclass(frozen=True)
class SyntheticNoise:
    """A kind of noise with its numbers."""

    kind: SyntheticKind
    numbers: tuple[float, ...]

    @property
    def name(self) -> str:
        """How options and tables call it: poisson:2,9."""
        return f"{self.kind.name}:{','.join(f'{number:g}' for number in self.numbers)}"

    def added_to(self, image: NDArray[Any], seed: int) -> NDArray[Any]:
        """The image with this noise."""
        return self.kind.add(image, *self.numbers, seed=seed)


def parse_noises(text: str) -> list[SyntheticNoise]:
    """Several noises, each once: white:20,poisson:2,9,camera:3200; a comma before a name begins the next."""
    found = []
    for part in re.split(r",\s*(?=[^\W\d])", text):
        name, _, rest = part.strip().partition(":")
        kind = SYNTHETIC[name]
        form = f"{name}:{','.join(kind.parameters)}"
        try:
            numbers = tuple(map(float, rest.split(",")))
        except ValueError:
            numbers = ()
        fitting = len(numbers) == len(kind.parameters) and all(kind.least <= n <= kind.most for n in numbers)
        require(fitting, f"noise takes {form} with numbers from {kind.least:g} to {kind.most:g}, not {part.strip()!r}.")
        found.append(SyntheticNoise(kind, numbers))
    return list(dict.fromkeys(found))
