"""What the doubly sparse W = T Phi buys in operations and in time: `python benchmarks/sparse.py [--size 11]`.

Coefficients of patches by the dense product W Y, and by the separable DCT of every patch followed by the entries of T
alone, in one thread: multiplications a patch, nanoseconds a patch, and who is how many times as fast. T is random with
the given share of entries in every row. The sparse way is compiled as the program's own kernels are, with patches in
columns, so that every entry of T is one multiple of a row added to another; scipy's sparse product is beside it.
"""

# mypy: allow-untyped-decorators

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dstl_cli.base.kernels.compiled import compiled
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.transforms.bases import dct_matrix

DENSITIES = (0.02, 0.05, 0.1, 0.3)
PATCHES = 1024  # at a time, about as many as a tile has
REPEATS = 30

Array32 = NDArray[np.float32]


@compiled(fastmath={"contract"})
def separable(cosines: Any, patches: Any, half: Any, out: Any) -> None:
    """The 2-D DCT of columns: along the columns of each patch, then along its rows; patches, half, out: (p p, N)."""
    size, count = cosines.shape[0], patches.shape[1]
    for source, target, step, stride in ((patches, half, size, 1), (half, out, 1, size)):
        for line in range(size):
            for k in range(size):
                row = target[line * stride + k * step]
                row[:] = 0
                for j in range(size):
                    factor = cosines[k, j]
                    values = source[line * stride + j * step]
                    for c in range(count):
                        row[c] += factor * values[c]


@compiled(fastmath={"contract"})
def sparse_product(starts: Any, places: Any, entries: Any, values: Any, out: Any) -> None:
    """T times columns, T given by the entries of its rows."""
    for j in range(starts.size - 1):
        row = out[j]
        row[:] = 0
        for number in range(starts[j], starts[j + 1]):
            factor = entries[number]
            line = values[places[number]]
            for c in range(row.size):
                row[c] += factor * line[c]


def nanoseconds(run: Callable[[], object]) -> float:
    """The least time of several runs, for each patch."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / PATCHES


def random_factor(n: int, density: float, seed: int) -> csr_array:
    """T with the diagonal and random entries besides."""
    rng = np.random.default_rng(seed)
    factor = np.where(rng.random((n, n)) < density - 1 / n, rng.standard_normal((n, n)), 0) + np.eye(n)
    return csr_array(factor.astype(np.float32))


def main() -> None:
    """Print one Markdown row for each density."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=11)
    size = parser.parse_args().size
    n = size * size
    patches: Array32 = np.random.default_rng(0).standard_normal((n, PATCHES)).astype(np.float32)
    cosines = np.ascontiguousarray(dct_matrix(size).reshape(size, size, size, size)[:, 0, :, 0], dtype=np.float32)
    cosines /= np.linalg.norm(cosines, axis=1, keepdims=True)
    half, domain, out = (np.empty_like(patches) for _ in range(3))
    headings = ("density", "products dense", "sparse", "dense", "DCT", "T", "T by scipy", "dense / (DCT + T)")
    print(f"patches of {size} x {size}; nanoseconds a patch\n\n| {' | '.join(headings)} |\n{'|---' * len(headings)}|")
    with one_blas_thread():
        for number, density in enumerate(DENSITIES):
            factor = random_factor(n, density, number)
            phi = np.kron(cosines, cosines)
            dense = np.ascontiguousarray(factor @ phi, dtype=np.float32)
            separable(cosines, patches, half, domain)
            sparse_product(factor.indptr, factor.indices, factor.data, domain, out)
            np.testing.assert_allclose(out, dense @ patches, atol=1e-3)
            entries = factor.indptr, factor.indices, factor.data
            times = [
                nanoseconds(partial(np.matmul, dense, patches, out=out)),
                nanoseconds(partial(separable, cosines, patches, half, domain)),
                nanoseconds(partial(sparse_product, *entries, domain, out)),
                nanoseconds(partial(factor.__matmul__, domain)),
            ]
            ratio = times[0] / (times[1] + times[2])
            cells = [f"{density:g}", f"{n * n}", f"{2 * size * n + factor.nnz}", *(f"{t:.0f}" for t in times)]
            print(f"| {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
