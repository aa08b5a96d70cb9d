"""The Python interface: arrays in, arrays out. What `dstl_cli` offers is defined or imported by its own name here."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Pixels
from dstl_cli.base.checks import keeps_invalid
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.pipeline import denoise_region as region_of
from dstl_cli.denoising.plan import Plan as Plan
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.survey import Request
from dstl_cli.denoising.survey import survey as survey_source
from dstl_cli.learning.on_collection import learn_from_pictures
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.measure.metrics import peak_signal_noise_ratio as peak_signal_noise_ratio
from dstl_cli.measure.metrics import structural_similarity as structural_similarity
from dstl_cli.noise.blind import estimate_model
from dstl_cli.pixels.colour import check_pixels, luminance, root_mean_square
from dstl_cli.pixels.planes import Box as Box
from dstl_cli.pixels.source import ArraySource, PixelSource
from dstl_cli.transforms.ready import ready_transform
from dstl_cli.transforms.transform import Transform as Transform

Pixel = TypeVar("Pixel", bound=np.generic)


def denoise(
    array: NDArray[Pixel],
    *,
    sigma: float | None = None,
    quality: str = "standard",
    transform: Transform | None = None,
    adapt: bool = False,
    method: str | None = None,
    canonical: str | None = None,
    patch_size: int | None = None,
    stride: int | None = None,
    error_scale: float | None = None,
    max_condition: float | None = None,
    density: float | None = None,
    iterations: int | None = None,
    rounds: int | None = None,
    train_patches: int | None = None,
    seed: int = 0,
    nan: str = "refuse",
    jobs: int | None = None,
) -> NDArray[Pixel]:
    """Denoise a picture; dtype and shape stay.

    Parameters
    ----------
    array : (H, W) or (H, W, 3) array of 8, 16 or 32-bit whole numbers or 16, 32 or 64-bit floats
        The noisy picture, grey or RGB.
    sigma : float, optional
        Standard deviation of the noise: on the 0-255 scale for uint8 and uint16, in the array's own units for floats,
        signed and 32-bit numbers. Estimated for each channel if not given.
    quality : {"fast", "standard", "best", "paper"}
        "fast" uses a ready transform, "standard" learns one on the picture, "best" denoises groups of similar patches;
        "paper" is the paper's protocol.
    transform : Transform, optional
        Used as it is, or with `adapt` as the start of learning.
    adapt : bool
        Learn on the picture, starting from `transform`.
    method : str, optional
        How the transform is learnt: "procrustes" (default), "dsect" (Algorithm 1 of the paper, default of "paper"),
        "conditioned", "bresler", "sparse-bresler", or "dct" for no learning.
    canonical : {"dct", "hadamard", "haar", "fourier", "identity"}, optional
        Phi, the fixed factor of the transform W = T Phi.
    patch_size, stride : int, optional
        Side of a patch, and the step between patches, in pixels.
    error_scale : float, optional
        C of the coder: larger removes more.
    max_condition, density : float, optional
        rho, the bound on the condition number of T, and the share of its entries that may be nonzero.
    iterations, rounds, train_patches : int, optional
        Updates of T, rounds of learning ("paper" only), patches to learn from.
    seed : int
        Of the random patches; the same seed gives the same bytes.
    nan : {"refuse", "keep"}
        What becomes of pixels that are NaN or infinite in some colour: with "keep" they stay as they are, to the bit,
        and change nothing elsewhere.
    jobs : int, optional
        Threads, all cores if not given; the result is the same for any number.

    Returns
    -------
    array of the same shape and dtype

    Raises
    ------
    ValueError
        For arrays that are no picture, and for settings out of range or without effect; the message is one sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from dstl_cli import denoise
    >>> noisy = np.random.default_rng(0).normal(128, 20, (64, 64))
    >>> denoise(noisy, sigma=20).shape
    (64, 64)
    """
    settings = _given(locals(), without=("array", "sigma", "quality", "transform", "adapt", "nan", "jobs"))
    request = _request(quality, transform, adapt, jobs, nan, settings)
    return cast("NDArray[Pixel]", denoise_pixels(array, sigma, request).pixels)


class Settings(TypedDict, total=False):
    """The settings of `denoise` by name, with the same meanings."""

    method: str
    canonical: str
    patch_size: int
    stride: int
    error_scale: float
    max_condition: float
    density: float
    iterations: int
    rounds: int
    train_patches: int
    seed: int


def survey(
    picture: Pixels | PixelSource,
    *,
    sigma: float | None = None,
    quality: str = "standard",
    transform: Transform | None = None,
    adapt: bool = False,
    nan: str = "refuse",
    jobs: int | None = None,
    **settings: Unpack[Settings],
) -> Plan:
    """Look at a whole picture once, and plan how any part of it is denoised.

    Parameters
    ----------
    picture : array, or an object with shape, dtype and window(box)
        What `denoise` takes, or where its pixels can be had in parts: a picture that does not fit into memory. Every
        pixel is looked at once, and a bounded sample of windows for noise and learning.
    sigma, quality, transform, adapt, nan, jobs, **settings
        As for `denoise`.

    Returns
    -------
    Plan
        `plan.window(box)` is the part of the picture that `denoise_region` needs for a box, `plan.to_json()` tells all
        that decides the result. It can be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from dstl_cli import Box, survey
    >>> noisy = np.random.default_rng(0).normal(128, 20, (800, 1000))
    >>> plan = survey(noisy, sigma=20, quality="fast")
    >>> plan.window(Box(top=300, left=500, bottom=310, right=510))
    Box(top=192, left=200, bottom=394, right=810)
    """
    request = _request(quality, transform, adapt, jobs, nan, _given(dict(settings), without=()))
    return survey_source(ArraySource(picture) if isinstance(picture, np.ndarray) else picture, sigma, request)


def denoise_region(window: NDArray[Pixel], box: Box, plan: Plan, *, jobs: int | None = None) -> NDArray[Pixel]:
    """Denoise a box of a picture: the same bytes as there in the whole denoised picture.

    Parameters
    ----------
    window : (h, w) or (h, w, 3) array
        The pixels of `plan.window(box)`.
    box : Box
        Rows top to bottom and columns left to right of the picture, the last ones not included.
    plan : Plan
        What `survey` made of the picture.
    jobs : int, optional
        Threads, all cores if not given.

    Examples
    --------
    >>> import numpy as np
    >>> from dstl_cli import Box, denoise, denoise_region, survey
    >>> noisy = np.random.default_rng(0).normal(128, 20, (300, 200))
    >>> plan, box = survey(noisy, sigma=20), Box(top=100, left=50, bottom=110, right=60)
    >>> needed = plan.window(box)
    >>> part = denoise_region(noisy[needed.top:needed.bottom, needed.left:needed.right], box, plan)
    >>> np.array_equal(part, denoise(noisy, sigma=20)[100:110, 50:60])
    True
    """
    return cast("NDArray[Pixel]", region_of(window, box, plan, jobs=jobs))


def estimate_noise(array: Pixels) -> float:
    """Estimate the standard deviation of the white noise in a picture.

    Parameters
    ----------
    array : (H, W) or (H, W, 3) array of 8, 16 or 32-bit whole numbers or 16, 32 or 64-bit floats

    Returns
    -------
    float
        In the units that `denoise` takes: on the 0-255 scale for uint8 and uint16, in the array's own units for others;
        for colour the root mean square over the channels.

    Examples
    --------
    >>> import numpy as np
    >>> from dstl_cli import estimate_noise
    >>> bool(abs(estimate_noise(np.random.default_rng(0).normal(128, 20, (256, 256))) - 20) < 1)
    True
    """
    check_pixels(array)
    return root_mean_square(list(estimate_model(array)[0].sigmas))


def learn_transform(
    images: Sequence[Pixels],
    *,
    method: str = "procrustes",
    canonical: str = "dct",
    patch_size: int = 11,
    sigma: float | None = None,
    sparsity_level: int | None = None,
    density: float | None = None,
    max_condition: float | None = None,
    frobenius_norm: float | None = None,
    l1_weight: float | None = None,
    homotopy_steps: int | None = None,
    freeze_at: int | None = None,
    clip: float | None = None,
    step_rule: str | None = None,
    logdet_weight: float | None = None,
    iterations: int | None = None,
    patience: int | None = None,
    train_patches: int | None = None,
    batches: int | None = None,
    seed: int = 0,
) -> Transform:
    """Learn a transform W = T Phi from pictures, as `dstl train` does.

    Parameters
    ----------
    images : sequence of (H, W) or (H, W, 3) arrays of 8, 16 or 32-bit whole numbers or 16, 32 or 64-bit floats
        Colour pictures give their luminance. Each offers its patches; a random sample of all is learnt from.
    method : str
        "procrustes" (closed-form updates), "dsect" (Algorithm 1 of the paper), "conditioned", "bresler",
        "sparse-bresler" or "dct".
    canonical : {"dct", "hadamard", "haar", "fourier", "identity"}
        Phi.
    patch_size : int
        Side of a patch in pixels.
    sigma : float, optional
        Noise deviation that sets how many coefficients each patch gets (0-255 scale for whole numbers).
    sparsity_level : int, optional
        r: give every patch so many coefficients instead.
    density : float, optional
        ||T||_0 as a share of the n^2 entries.
    max_condition, frobenius_norm : float, optional
        rho and tau, the bound on the condition number of T and its norm.
    l1_weight : float, optional
        lambda, in units of ||Yt||_F^2 / n, which makes it free of the scale and number of the patches ("dsect").
    homotopy_steps, freeze_at : int, optional
        N_h, and K, the iteration after which the support of T stays ("dsect").
    clip : float, optional
        eps: smaller entries of T become zero ("dsect").
    step_rule : {"exact", "lipschitz"}, optional
        alpha: exact line search, or one over the Lipschitz constant ("dsect").
    logdet_weight : float, optional
        lambda0 of the log-det methods.
    iterations, patience : int, optional
        Most updates of T, and after how many without a better cost to stop.
    train_patches, batches : int, optional
        Size of the sample, and in how many parts it is cut, one of which an update codes.
    seed : int
        Of the sample and the batches.

    Returns
    -------
    Transform

    Examples
    --------
    >>> import numpy as np
    >>> from dstl_cli import learn_transform
    >>> stripes = np.tile(np.repeat([0.0, 200.0], 3), (60, 10))
    >>> learn_transform([stripes], patch_size=4, iterations=5).condition <= 1.25
    True
    """
    settings = CollectionSettings.of(**_given(locals(), without=("images",)))
    return learn_from_pictures([luminance(image) for image in images], settings).transform


def _request(
    quality: str, transform: Transform | None, adapt: bool, jobs: int | None, nan: str, settings: dict[str, Any]
) -> Request:
    source = TransformSource(transform, adapt, ready_transform)
    return replace(Request.named(quality, source=source, jobs=jobs, **settings), keep_invalid=keeps_invalid(nan))


def _given(arguments: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """The settings that were given among the arguments of a call."""
    return {key: value for key, value in arguments.items() if value is not None and key not in without}
