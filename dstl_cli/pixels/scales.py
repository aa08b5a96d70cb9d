"""Coarser versions of a picture by local filters: white noise stays nearly white, and half the size has half the noise.

The half-band filter h is a windowed sinc of even length: a coarse pixel lies between two fine ones. With h a little
wider than half the band, |H(w)|^2 + |H(w + pi)|^2 is nearly 1, which keeps the noise of the coarse picture white.
Beyond the borders the picture is mirrored; inside, everything depends on pixels near by, so that any window gives the
same numbers as the whole.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.pixels.planes import Box, Plane

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


def windowed_sinc(taps: int, cutoff: float, beta: float) -> Array:
    """A low-pass filter that passes the given share of the frequencies; its taps add up to 1."""
    places = np.arange(taps) - (taps - 1) / 2
    h = cutoff * np.sinc(cutoff * places) * np.kaiser(taps, beta)
    return np.asarray(h / h.sum())


HALF_BAND = windowed_sinc(16, 0.55, 6.0)
SHARP = windowed_sinc(16, 0.5, 6.0)  # as long, with less of the fine structures folded down, and less white noise
NOISE_GAIN = float((HALF_BAND**2).sum())  # deviation of white noise in a halved picture, as a share of that before ...
SHARP_NOISE_GAIN = float((SHARP**2).sum())  # ... and where it was halved by SHARP
REACH = len(HALF_BAND) // 2  # pixels of the fine picture on each side of a coarse one

TOGETHER = 32_768  # values filtered at a time


def halved_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of the halved picture."""
    return -(-shape[0] // 2), -(-shape[1] // 2)


def most_halvings(shape: Sequence[int], wanted: int, smallest: int) -> int:
    """How often a picture can be halved, at most as often as wanted, with no side below `smallest`."""
    done = 0
    while done < wanted and min(halved_shape(shape)) >= smallest:
        shape, done = halved_shape(shape), done + 1
    return done


def halved(fine: Plane, taps: Array = HALF_BAND, *, straight: bool = False) -> Plane:
    """The picture of half the size, where its pixels are known; for taps see above, for straight `_extended`."""
    values, shape = fine.values, halved_shape(fine.shape)
    spans = []
    for axis, (start, stop, length) in enumerate(_edges(fine)):
        first = 0 if start == 0 else -(-(start + REACH - 1) // 2)
        last = shape[axis] if stop == length else max(first, (stop - REACH - 1) // 2 + 1)
        spans.append((first, last))
        begin, end = 2 * first - REACH + 1, 2 * last + REACH - 1  # fine pixels under the filter
        values = _extended(values, axis, begin - start, end - start, (start == 0, stop == length), straight)
        values = _filtered(values, axis, taps)
    return Plane(values, Box(spans[0][0], spans[1][0], spans[0][1], spans[1][1]), shape)


def _filtered(values: Floats, axis: int, taps: Array) -> Floats:
    """Every second place of the correlation with a filter along an axis."""
    count = (values.shape[axis] - len(taps)) // 2 + 1
    parts = (_along(values, axis, k, k + 2 * count - 1, 2) for k in range(len(taps)))
    return _combined(taps, parts)


def doubled(coarse: Plane, shape: tuple[int, int], *, straight: bool = False) -> Plane:
    """The picture of twice the size, of this shape, that has the coarse one's frequencies and no others."""
    values = coarse.values
    spans = []
    reach = REACH // 2
    for axis, (start, stop, length) in enumerate(_edges(coarse)):
        first = 0 if start == 0 else 2 * (start + reach)
        last = shape[axis] if stop == length else max(first, 2 * (stop - reach))
        spans.append((first, last))
        low, high = first // 2, -(-last // 2)
        ends = (start == 0, stop == length)
        values = _extended(values, axis, low - reach - start, high + reach - start, ends, straight)
        values = _interleaved(values, axis, last - first)
    return Plane(values, Box(spans[0][0], spans[1][0], spans[0][1], spans[1][1]), shape)


def _interleaved(values: Floats, axis: int, length: int) -> Floats:
    """Twice as many places along an axis: even and odd ones by every second tap."""
    count = values.shape[axis] - REACH
    taps = 2 * HALF_BAND[::-1]
    phases = []
    for phase in (0, 1):
        own = taps[phase::2]
        parts = (_along(values, axis, k + phase, k + phase + count) for k in range(len(own)))
        phases.append(_combined(own, parts))
    both = np.stack(phases, axis=axis + 1)
    sides = [*values.shape]
    sides[axis] = 2 * count
    return _along(both.reshape(sides), axis, 0, length)


BASE_REACH = 8 * REACH  # of `smooth_base` ...
SMALLEST_BASE = 4  # ... and the smallest side of a picture that has one


def smooth_base(plane: Plane) -> Plane:
    """The lowest quarter of a picture's frequencies along both axes, slopes at its borders included."""
    half = halved(plane, straight=True)
    return doubled(doubled(halved(half, straight=True), half.shape, straight=True), plane.shape, straight=True)


def with_low_from(fine: Plane, coarse: Plane, share: float) -> Plane:
    """The fine picture with its lowest frequencies, that share of the coarse picture's, taken from the coarse one."""
    own = halved(fine)
    box = own.box.common(coarse.box)
    change = _low(Plane(coarse.window(box) - own.window(box), box, own.shape), share)
    added = doubled(change, fine.shape)
    box = added.box.common(fine.box)
    return Plane(fine.window(box) + added.window(box), box, fine.shape)


def _low(plane: Plane, share: float) -> Plane:
    """The lowest frequencies of a picture."""
    taps = windowed_sinc(2 * round(4 / share) + 1, share, 4.0)
    reach = len(taps) // 2
    values = plane.values
    spans = []
    for axis, (start, stop, length) in enumerate(_edges(plane)):
        first = 0 if start == 0 else start + reach
        last = length if stop == length else max(first, stop - reach)
        spans.append((first, last))
        ends = (start == 0, stop == length)
        values = _extended(values, axis, first - reach - start, last + reach - start, ends)
        count = last - first
        values = _combined(taps, (_along(values, axis, k, k + count) for k in range(len(taps))))
    return Plane(values, Box(spans[0][0], spans[1][0], spans[0][1], spans[1][1]), plane.shape)


def exchanged(box: Box, share: float, shape: tuple[int, int]) -> tuple[Box, Box]:
    """What `with_low_from` needs of the fine and of the coarse picture for its result in a box."""
    reach = REACH // 2 + round(4 / share) + 1
    coarse = Box(box.top // 2, box.left // 2, box.bottom // 2 + 1, box.right // 2 + 1)
    coarse = coarse.grown(reach, halved_shape(shape))
    return box.joined(under(coarse, shape)), coarse


def under(coarse: Box, shape: tuple[int, int]) -> Box:
    """The pixels of the fine picture that a box of the halved one depends on."""
    fine = Box(2 * coarse.top, 2 * coarse.left, min(2 * coarse.bottom, shape[0]), min(2 * coarse.right, shape[1]))
    return fine.grown(REACH, shape)


def _edges(plane: Plane) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """First and last pixel at hand and the length of the picture, along both axes."""
    box = plane.box
    return (box.top, box.bottom, plane.shape[0]), (box.left, box.right, plane.shape[1])


def _extended(
    values: Floats, axis: int, begin: int, end: int, ends: tuple[bool, bool], straight: bool = False
) -> Floats:
    """Values begin to end along an axis, mirrored beyond the picture's borders; straight: so that slopes go on.

    ends: whether the first and the last value are at a border.
    """
    length = values.shape[axis]
    before, after = max(0, -begin) if ends[0] else 0, max(0, end - length) if ends[1] else 0
    inside = _along(values, axis, max(0, begin), min(length, end))
    if not before and not after:
        return inside
    width = [(0, 0), (0, 0)]
    width[axis] = (before, after)
    return np.pad(inside, width, "reflect", reflect_type="odd") if straight else np.pad(inside, width, "symmetric")


def _along(values: Floats, axis: int, start: int, stop: int, step: int = 1) -> Floats:
    return values[start:stop:step] if axis == 0 else values[:, start:stop:step]


def _combined(taps: Array, parts: Iterable[Floats]) -> Floats:
    """The sum of the parts, each times its tap, in their order; some rows at a time, so that they stay in the cache."""
    views = list(parts)
    total = np.empty_like(views[0], order="C")
    factors = taps.astype(total.dtype)
    step = max(1, TOGETHER // max(1, total.shape[1]))
    term = np.empty((min(step, total.shape[0]), total.shape[1]), total.dtype)
    for top in range(0, total.shape[0], step):
        sums = total[top : top + step]
        np.multiply(views[0][top : top + step], factors[0], out=sums)
        for factor, view in zip(factors[1:], views[1:], strict=True):
            sums += np.multiply(view[top : top + step], factor, out=term[: len(sums)])
    return total
