"""Checks: each refusal is one sentence; that of a setting begins with its name."""

import math

NAN_CHOICES = ("refuse", "keep")


def require(condition: bool, sentence: str) -> None:
    """Refuse what does not fulfil a condition, with a sentence."""
    if not condition:
        raise ValueError(sentence)


def check_sigma(sigma: float) -> float:
    """The noise deviation as a float, refused unless finite and not negative."""
    require(math.isfinite(sigma) and sigma >= 0, f"sigma must be a finite number of at least 0, not {sigma}.")
    return float(sigma)


def keeps_invalid(nan: str) -> bool:
    """Whether pixels that are no finite numbers are kept; else they are refused."""
    require(nan in NAN_CHOICES, f"nan must be {' or '.join(NAN_CHOICES)}, not {nan!r}.")
    return nan == "keep"


def check_bounds(max_condition: float, frobenius_norm: float) -> None:
    """Refuse bounds that no matrix can satisfy."""
    require(max_condition >= 1, f"max_condition must be at least 1, not {max_condition}.")
    require(0 < frobenius_norm < math.inf, f"frobenius_norm must be positive and finite, not {frobenius_norm}.")


def check_patch_size(patch_size: int, *, least: int = 1) -> None:
    """Refuse patch sizes that no transform has."""
    require(least <= patch_size <= 32, f"patch_size must be between {least} and 32, not {patch_size}.")


def check_patching(patch_size: int, stride: int) -> None:
    """Refuse patch sizes that no transform has, and steps between patches that leave gaps."""
    check_patch_size(patch_size)
    require(1 <= stride <= patch_size, f"stride must be between 1 and the patch size {patch_size}, not {stride}.")
