"""The transforms shipped with the program, learnt from free pictures (benchmarks/ready_transforms.py makes them)."""

from functools import lru_cache
from importlib.resources import as_file, files

from dstl_cli.transforms.files import load_transform
from dstl_cli.transforms.transform import Transform

RANGES = (("ready_low.npz", 15.0), ("ready_middle.npz", 60.0), ("ready_high.npz", float("inf")))  # up to which sigma


def ready_transform(sigma: float, patch_size: int) -> Transform | None:
    """The shipped transform for noise of this deviation; None for other patch sizes than it has."""
    name = next(name for name, highest in RANGES if sigma <= highest)
    transform = _load(name)
    return transform if transform.patch_size == patch_size else None


@lru_cache(maxsize=len(RANGES))
def _load(name: str) -> Transform:
    with as_file(files("dstl_cli.transforms.ready") / name) as path:
        return load_transform(path).transform
