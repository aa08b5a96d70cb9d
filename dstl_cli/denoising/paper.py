"""The engine of the preset paper: learn in rounds on the noisy picture, code every patch, average."""

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import Execution
from dstl_cli.denoising.passes import paper_estimate, patch_average, sliding_grid
from dstl_cli.denoising.plan import Engine, Plan, TransformSource
from dstl_cli.denoising.settings import PaperSettings
from dstl_cli.learning.loop import Learnt, Shard, learn
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import PictureTransform
from dstl_cli.learning.settings import first_coefficients, most_coefficients
from dstl_cli.noise.model import ChannelNoise
from dstl_cli.patches.coding import Coder
from dstl_cli.patches.grid import Lattice, sample
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.transforms.transform import Transform


class PaperEngine(Engine):
    """The paper's protocol on every channel, with the transform of the first."""

    def transform_for(
        self, plane: Plane, noise: ChannelNoise, settings: PaperSettings, source: TransformSource, threads: int
    ) -> PictureTransform:
        """The transform given, or learnt in rounds."""
        if source.given is not None and not source.adapt:
            return PictureTransform(source.given)
        learnt = learn_in_rounds(plane.values, noise.deviation(), settings, start=source.given)
        return PictureTransform(learnt.transform, learnt.history)

    def window(self, box: Box, plan: Plan) -> Box:
        """One pass."""
        stride: int = plan.settings.stride
        return sliding_grid(plan.shape, plan.patch_size, Lattice(stride, stride)).covering(box)

    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        """Every patch coded and put back."""
        transform, stride = plan.transform, plan.settings.stride
        assert transform is not None
        results = []
        for index, plane in enumerate(planes):
            sigma, centre = plan.noise.sigmas[index], plan.centres[index]
            limits = None if plan.data_range is None else (plan.data_range[0] - centre, plan.data_range[1] - centre)
            if sigma:
                estimate = paper_estimate(make_coder(transform, sigma, plan.settings), limits)
                share = execution.part(index, len(planes))
                plane = patch_average([plane], transform.patch_size, Lattice(stride, stride), estimate, share)
            results.append(plane)
        return results


PAPER = PaperEngine()


def make_coder(transform: Transform, sigma: float, settings: PaperSettings) -> Coder:
    """The variable-sparsity coder with the configured C and mu = 0.01/sigma."""
    return Coder.build(
        transform,
        error_scale=settings.error_scale,
        fidelity=0.01 / sigma,
        most=most_coefficients(transform.patch_size, settings.first_level),
        sigma=sigma,
    )


def learn_in_rounds(
    image: NDArray[np.generic], sigma: float, settings: PaperSettings, *, start: Transform | None = None
) -> Learnt:
    """Learn on random patches of the noisy picture, in rounds: each round's codes set the next one's sparsity."""
    rng = np.random.default_rng(settings.seed)
    learnt = Learnt(start or Transform.fixed(settings.patch_size, settings.canonical), (), "iterations")
    size, canonical = learnt.transform.patch_size, learnt.transform.canonical
    rounds = settings.resolved([sigma], size).rounds if METHODS[settings.method].learns else 0
    assert rounds is not None
    levels: NDArray[np.int64] | int = first_coefficients(size, settings.first_level)
    for number in range(1, rounds + 1):
        patches = sample(image, size, settings.train_patches, rng)
        warm = number > 1 or start is not None
        if warm:
            coder = make_coder(learnt.transform, sigma, settings)
            levels = coder.leave_out(patches.astype(np.float32))[1].astype(np.int64)
        shards = [Shard.from_patches(patches, levels, canonical)]
        factor = learnt.transform.factor if warm else None
        learnt = learn(shards, settings.learn, canonical=canonical, start=factor, final=number == rounds)
    return learnt
