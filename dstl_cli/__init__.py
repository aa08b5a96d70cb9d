"""dstl: image denoising with doubly sparse, explicitly conditioned learnt transforms.

    from dstl_cli import denoise, estimate_sigma, learn_transform, Transform

Arrays in, arrays out, dtype kept. Importing the package is cheap: numpy and the rest come with the first call.
"""

from typing import TYPE_CHECKING, Any

from dstl_cli.version import __version__

if TYPE_CHECKING:
    from dstl_cli.api import denoise, estimate_sigma, learn_transform
    from dstl_cli.transforms import Transform

__all__ = ["Transform", "__version__", "denoise", "estimate_sigma", "learn_transform"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dstl_cli import api

    return getattr(api, name)
