"""Analysis and synthesis of patches by a transform, with the patch mean apart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.transforms.transform import Transform

Array32 = NDArray[np.float32]


@dataclass(frozen=True)
class Frame:
    """Analysis and synthesis of patches by W, with the patch mean apart and white noise of deviation 1 in every row.

    With P = I - 11'/n, rows w_j of W P and columns b_j of W^-1:
        forward = (1'/sqrt(n); w_j / |w_j|),   backward = (1/sqrt(n), |w_j| b_j),   backward forward = I.
    """

    patch_size: int
    forward: Array32  # (m, n); row 0: the mean
    backward: Array32  # (n, m)
    costs: Array32  # (m,): squared norms of the columns of `backward`

    @classmethod
    def of(cls, transform: Transform) -> "Frame":
        """The frame of a transform; a row that only sees the mean is left out."""
        w = transform.matrix
        n = len(w)
        centred = w - w.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centred, axis=1)
        seen = norms > 1e-9 * norms.max(initial=0.0)
        mean = np.full((1, n), 1 / np.sqrt(n))
        forward = np.concatenate((mean, centred[seen] / norms[seen, None]))
        inverse = np.linalg.inv(w)[:, seen] * norms[seen]
        backward = np.concatenate((mean.T, inverse), axis=1)
        return cls(
            patch_size=transform.patch_size,
            forward=np.ascontiguousarray(forward, dtype=np.float32),
            backward=np.ascontiguousarray(backward, dtype=np.float32),
            costs=np.asarray((backward**2).sum(axis=0), dtype=np.float32),
        )
