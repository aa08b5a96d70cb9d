"""dstl: image denoising with doubly sparse, explicitly conditioned learnt transforms.

    from dstl_cli import denoise, estimate_noise, learn_transform, Transform

Arrays in, arrays out, dtype kept; docs/api.md has all of it. Importing the package is cheap: numpy and the rest come
with the first use.
"""

from dstl_cli.version import __version__

TYPE_CHECKING = False  # as type checkers know it: importing typing takes longer than all that comes before the program
if TYPE_CHECKING:
    from typing import Any

    from dstl_cli.api import (
        Box,
        Plan,
        Transform,
        denoise,
        denoise_region,
        estimate_noise,
        learn_transform,
        peak_signal_noise_ratio,
        structural_similarity,
        survey,
    )

__all__ = [
    "Box",
    "Plan",
    "Transform",
    "__version__",
    "denoise",
    "denoise_region",
    "estimate_noise",
    "learn_transform",
    "peak_signal_noise_ratio",
    "structural_similarity",
    "survey",
]


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dstl_cli import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
