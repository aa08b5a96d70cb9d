"""Plans for tests that run an engine by itself, on planes of their own making."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.registry import load
from dstl_cli.base.threads import Execution, one_blas_thread
from dstl_cli.denoising.plan import Engine, Plan, Statistics
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.noise.model import WhiteNoise
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.transform import Transform

Floats = NDArray[np.floating[Any]]


def make_plan(
    quality: str, settings: Any, shape: tuple[int, int], sigmas: Sequence[float], transform: Transform
) -> Plan:
    """The plan for planes in single precision that are counted from 0 and have no limits."""
    known = tuple(sigmas)
    return Plan(
        quality=quality,
        settings=settings.resolved(known, transform.patch_size),
        shape=shape,
        depth=Depth.of(np.dtype(np.float32)),
        colour=len(known) == 3,
        statistics=Statistics((0.0,) * len(known), 0.0, 255.0, 0.0, False),
        noise=WhiteNoise(known),
        centres=(0.0,) * len(known),
        sigmas=known,
        transform=transform,
    )


def run_engine(
    quality: str,
    settings: Any,
    images: Sequence[Floats],
    sigmas: Sequence[float],
    transform: Transform,
    execution: Execution,
) -> list[Floats]:
    """The images as the engine of a quality denoises them, whole."""
    plan = make_plan(quality, settings, (images[0].shape[0], images[0].shape[1]), sigmas, transform)
    engine: Engine = load(QUALITIES[quality].engine)
    with one_blas_thread():
        results = engine.run([Plane.whole(plan.padded(image)) for image in images], plan, execution)
    height, width = plan.shape
    return [plane.values[:height, :width] for plane in results]
