"""Compiled kernels of the noise estimate."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.base.kernels.compiled import compiled


@compiled()
def count_magnitudes(coefficients, parts, counts):
    """counts[k, b] += 1 for every coefficient (N, m) of frequency k whose magnitude times parts rounds to b.

    The last bin has what lies beyond, too.
    """
    last = np.float32(counts.shape[1] - 1)
    for n in range(coefficients.shape[0]):
        for k in range(coefficients.shape[1]):
            place = min(np.rint(np.abs(coefficients[n, k]) * parts), last)
            counts[k, int(place)] += 1
