"""The version of dstl, in a module of its own so that `dstl --version` imports nothing else."""

__version__ = "0.1.0"
