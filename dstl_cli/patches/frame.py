"""Analysis and synthesis of patches without their means, in units of the noise of each coefficient."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]


@dataclass(frozen=True)
class Frame:
    """Analysis and synthesis of patches without their means by W.

    With P = I - 11'/n, rows w_j of W P, columns b_j of W^-1 and deviations d_j of the noise in w_j y / |w_j|:
        forward = (w_j / |w_j| / d_j),   backward = (d_j |w_j| P b_j),   backward forward = P.
    """

    patch_size: int
    forward: Array  # (m, n)
    backward: Array  # (n, m)

    @classmethod
    def of(cls, transform: Transform) -> "Frame":
        """The frame of a transform, with d = 1; a row that only sees the mean is left out."""
        w = transform.matrix
        centred = w - w.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centred, axis=1)
        seen = norms > 1e-9 * norms.max(initial=0.0)
        inverse = np.linalg.inv(w)[:, seen] * norms[seen]
        return cls(transform.patch_size, centred[seen] / norms[seen, None], inverse - inverse.mean(axis=0))

    def in_units_of(self, deviations: Array) -> "Frame":
        """The frame with coefficients in units of these deviations (m,)."""
        return Frame(self.patch_size, self.forward / deviations[:, None], self.backward * deviations)

    @property
    def costs(self) -> Array32:
        """Squared norms of the columns of `backward`: what dropping a coefficient of 1 costs, (m,)."""
        return np.asarray((self.backward**2).sum(axis=0), dtype=np.float32)
