"""Coarser versions of a picture by local filters: white noise stays nearly white, and half the size has half the noise.

The half-band filter h is a windowed sinc of even length: a coarse pixel lies between two fine ones. With h a little
wider than half the band, |H(w)|^2 + |H(w + pi)|^2 is nearly 1, which keeps the noise of the coarse picture white.
Beyond the borders the picture is mirrored; inside, everything depends on pixels near by, so that any window gives the
same numbers as the whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import allocated, in_order
from dstl_cli.pixels.planes import Box, Plane

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Rows = Callable[[int, int], Floats]  # first and last row to their values


def windowed_sinc(taps: int, cutoff: float, beta: float) -> Array:
    """A low-pass filter that passes the given share of the frequencies; its taps add up to 1."""
    places = np.arange(taps) - (taps - 1) / 2
    h = cutoff * np.sinc(cutoff * places) * np.kaiser(taps, beta)
    return np.asarray(h / h.sum())


HALF_BAND = windowed_sinc(16, 0.55, 6.0)
SHARP = windowed_sinc(16, 0.5, 6.0)  # as long, with less of the fine structures folded down, and less white noise
NOISE_GAIN = float((HALF_BAND**2).sum())  # deviation of white noise in a halved picture, as a share of that before ...
SHARP_NOISE_GAIN = float((SHARP**2).sum())  # ... and where it was halved by SHARP
SHARP_LOBES = 4.0  # of a low-pass filter that ends where it is told
REACH = len(HALF_BAND) // 2  # pixels of the fine picture on each side of a coarse one

BAND_VALUES = 65_536  # of a result that are filtered at a time: they stay in the cache
LEAST_BAND = 16  # rows of a band at least: mirrored ones are taken from within it
NO_DETAIL = 0.99  # deviations of the noise: where no pixel's detail is more, none stays
DETAIL_SIDE = 5  # pixels: detail is judged by its mean square in windows of this side


def halved_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of the halved picture."""
    return -(-shape[0] // 2), -(-shape[1] // 2)


def most_halvings(shape: Sequence[int], wanted: int, smallest: int) -> int:
    """How often a picture can be halved, at most as often as wanted, with no side below `smallest`."""
    done = 0
    while done < wanted and min(halved_shape(shape)) >= smallest:
        shape, done = halved_shape(shape), done + 1
    return done


def halved(fine: Plane, taps: Array = HALF_BAND, *, straight: bool = False, threads: int = 1) -> Plane:
    """The picture of half the size, where its pixels are known; for taps see above, for straight `_extended`."""
    shape = halved_shape(fine.shape)
    spans = []
    for (start, stop, length), coarse in zip(_edges(fine), shape, strict=True):
        first = 0 if start == 0 else -(-(start + REACH - 1) // 2)
        spans.append((first, coarse if stop == length else max(first, (stop - REACH - 1) // 2 + 1)))

    def rows(top: int, bottom: int) -> Floats:
        values = fine.values
        for axis, (low, high) in enumerate(((top, bottom), spans[1])):
            start, stop, length = _edges(fine)[axis]
            begin, end = 2 * low - REACH + 1 - start, 2 * high + REACH - 1 - start  # fine pixels under the filter
            values = _extended(values, axis, begin, end, (start == 0, stop == length), straight)
            values = _filtered(values, axis, taps)
        return values

    return _in_bands(spans, shape, rows, fine.values.dtype, threads)


def _in_bands(
    spans: Sequence[tuple[int, int]],
    shape: tuple[int, int],
    rows: Rows,
    dtype: np.dtype[Any],
    threads: int,
    onto: Floats | None = None,
) -> Plane:
    """A plane of a picture of this shape from its rows, some at a time; spans: its first and last row and column.

    onto: values that they are added to.
    """
    (top, bottom), (left, right) = spans
    values = allocated((bottom - top, right - left), dtype) if onto is None else onto
    step = max(LEAST_BAND, BAND_VALUES // max(1, right - left))
    starts = list(range(top, max(top + 1, bottom - LEAST_BAND + 1), step))

    def fill(number: int) -> None:
        low, high = starts[number], [*starts[1:], bottom][number]
        if onto is None:
            values[low - top : high - top] = rows(low, high)
        else:
            values[low - top : high - top] += rows(low, high)

    for _ in in_order(fill, range(len(starts)), threads) if threads > 1 else map(fill, range(len(starts))):
        pass
    return Plane(values, Box(top, left, bottom, right), shape)


def _filtered(values: Floats, axis: int, taps: Array) -> Floats:
    """Every second place of the correlation with a filter of even length along an axis."""
    result = _with_length(values, axis, (values.shape[axis] - len(taps)) // 2 + 1)
    _filter(values, axis, taps, result, step=2)
    return result


def _with_length(values: Floats, axis: int, length: int) -> Floats:
    """Room for values of another length along an axis."""
    sides = [*values.shape]
    sides[axis] = length
    return np.empty(sides, values.dtype)


def _filter(
    values: Floats,
    axis: int,
    taps: Array,
    out: Floats,
    *,
    first: int = 0,
    step: int = 1,
    start: int = 0,
    stride: int = 1,
) -> None:
    """Fill every place start + stride i of `out`, along an axis, with the sum of taps[k] values[first + step i + k]."""
    from dstl_cli.pixels.kernels import filter_columns, filter_rows

    run = filter_columns if axis else filter_rows
    run(np.ascontiguousarray(values), taps.astype(values.dtype), first, step, out, start, stride)


def doubled(coarse: Plane, shape: tuple[int, int], *, straight: bool = False, threads: int = 1) -> Plane:
    """The picture of twice the size, of this shape, that has the coarse one's frequencies and no others."""
    spans = _doubled_spans(coarse, shape)
    return _in_bands(spans, shape, _doubled_rows(coarse, spans, straight), coarse.values.dtype, threads)


def _doubled_spans(coarse: Plane, shape: tuple[int, int]) -> list[tuple[int, int]]:
    """First and last row and column of the picture of twice the size that are known."""
    reach = REACH // 2
    spans = []
    for (start, stop, length), fine in zip(_edges(coarse), shape, strict=True):
        first = 0 if start == 0 else 2 * (start + reach)
        spans.append((first, fine if stop == length else max(first, 2 * (stop - reach))))
    return spans


def _doubled_rows(coarse: Plane, spans: Sequence[tuple[int, int]], straight: bool = False) -> Rows:
    """Rows of the picture of twice the size, between the first and last column of the spans."""

    def rows(top: int, bottom: int) -> Floats:
        values, reach = coarse.values, REACH // 2
        for axis, (first, last) in enumerate(((top, bottom), spans[1])):
            start, stop, length = _edges(coarse)[axis]
            low, high = first // 2, -(-last // 2)
            ends = (start == 0, stop == length)
            values = _extended(values, axis, low - reach - start, high + reach - start, ends, straight)
            values = _interleaved(values, axis, first - 2 * low, last - first)
        return values

    return rows


def _interleaved(values: Floats, axis: int, first: int, length: int) -> Floats:
    """So many places along an axis, of twice as many, from the first or second on: by even and by odd taps."""
    both = _with_length(values, axis, 2 * (values.shape[axis] - REACH))
    for phase in (0, 1):
        _filter(values, axis, 2 * HALF_BAND[::-1][phase::2], both, first=phase, start=phase, stride=2)
    return _along(both, axis, first, first + length)


BASE_REACH = 8 * REACH  # of `smooth_base` ...
SMALLEST_BASE = 4  # ... and the smallest side of a picture that has one


def smooth_base(plane: Plane) -> Plane:
    """The lowest quarter of a picture's frequencies along both axes, slopes at its borders included."""
    half = halved(plane, straight=True)
    return doubled(doubled(halved(half, straight=True), half.shape, straight=True), plane.shape, straight=True)


def with_low_from(
    fine: Plane,
    coarse: Plane,
    share: float,
    *,
    weight: float = 1.0,
    lobes: float = SHARP_LOBES,
    threads: int = 1,
    in_place: bool = False,
) -> Plane:
    """The fine picture with its lowest frequencies, that share of the coarse picture's, taken from the coarse one.

    weight: by how much of the difference. lobes: of the low-pass filter on each side; few pass on gradually.
    in_place: written over the fine one, which is no more.
    """
    own = halved(fine, threads=threads)
    box = own.box.common(coarse.box)
    taps = windowed_sinc(2 * _low_reach(share, lobes) + 1, share, 4.0)
    change = own.cut(box)
    np.subtract(coarse.window(box), change.values, out=change.values)
    if weight != 1:
        np.multiply(change.values, change.values.dtype.type(weight), out=change.values)
    change = _smoothed(change, taps, threads)
    del own
    (top, bottom), (left, right) = _doubled_spans(change, fine.shape)
    result = fine.cut(Box(top, left, bottom, right).common(fine.box))
    if not in_place:
        result = replace(result, values=result.values.copy())
    box = result.box
    spans = ((box.top, box.bottom), (box.left, box.right))
    _in_bands(spans, fine.shape, _doubled_rows(change, spans), result.values.dtype, threads, onto=result.values)
    return result


def with_detail_of(
    fine: Plane, half: Plane, coarse: Plane, deviation: float, factors: Plane | None = None, *, threads: int = 1
) -> Plane:
    """The coarse picture at twice its size, with that detail of the fine one that stands out of its noise.

    Detail is what halving loses: d = fine - doubled(half), half = halved(fine). It is multiplied by (e - s^2) / e, or 0
    where that is negative, with e the mean of d^2 around a pixel and s the deviation of the noise in d. factors: by
    what s is larger at each pixel of the coarse picture.
    """
    lost = doubled(half, fine.shape, threads=threads)
    lost = lost.cut(lost.box.common(fine.box))
    np.subtract(fine.window(lost.box), lost.values, out=lost.values)
    least = deviation * (1.0 if factors is None else float(factors.values.min(initial=np.inf)))
    largest = max(float(lost.values.max(initial=0)), -float(lost.values.min(initial=0)))
    if largest < NO_DETAIL * least:  # as in most of a photograph
        return doubled(coarse, fine.shape, threads=threads)
    energy = _smoothed(replace(lost, values=lost.values**2), np.full(DETAIL_SIDE, 1 / DETAIL_SIDE), threads)
    result = doubled(coarse, fine.shape, threads=threads)
    box = result.box.common(energy.box)
    if factors is not None:
        known = Box(2 * factors.box.top, 2 * factors.box.left, 2 * factors.box.bottom, 2 * factors.box.right)
        box = box.common(known)
    mean = energy.window(box)
    noise = np.full(mean.shape, deviation**2, mean.dtype)
    if factors is not None:
        rows, columns = (np.arange(low, high) // 2 for low, high in ((box.top, box.bottom), (box.left, box.right)))
        noise *= factors.values[np.ix_(rows - factors.box.top, columns - factors.box.left)] ** 2
    kept = np.subtract(mean, noise, out=np.zeros_like(mean), where=mean > noise)
    np.divide(kept, mean, out=kept, where=mean > noise)
    kept *= lost.window(box)
    kept += result.window(box)
    return Plane(kept, box, fine.shape)


@lru_cache(maxsize=1)
def detail_filters() -> Array:
    """What takes the detail d of `with_detail_of` from patches, at one pixel of each parity: (4, 64 * 64)."""
    side = 64
    through = _interleaved(_filtered(np.eye(side), 0, HALF_BAND), 0, 0, side // 2)  # from pixel 2 REACH - 1 on
    middle = side // 4
    rows = [through[middle + parity] for parity in (0, 1)]
    places = [middle + parity + 2 * REACH - 1 for parity in (0, 1)]
    filters = [-np.outer(a, b) for a in rows for b in rows]
    for filter_, (y, x) in zip(filters, product(places, places), strict=True):
        filter_[y, x] += 1
    return np.array([filter_.ravel() for filter_ in filters])


def _smoothed(plane: Plane, taps: Array, threads: int) -> Plane:
    """A picture after a filter of odd length along both axes."""
    reach = len(taps) // 2
    spans = []
    for start, stop, length in _edges(plane):
        first = 0 if start == 0 else start + reach
        spans.append((first, length if stop == length else max(first, stop - reach)))

    def rows(top: int, bottom: int) -> Floats:
        values = plane.values
        for axis, (first, last) in enumerate(((top, bottom), spans[1])):
            start, stop, length = _edges(plane)[axis]
            ends = (start == 0, stop == length)
            values = _extended(values, axis, first - reach - start, last + reach - start, ends)
            smooth = _with_length(values, axis, last - first)
            _filter(values, axis, taps, smooth)
            values = smooth
        return values

    return _in_bands(spans, plane.shape, rows, plane.values.dtype, threads)


def detailed(box: Box, shape: tuple[int, int]) -> tuple[Box, Box]:
    """What `with_detail_of` needs of the fine picture, and of its half and the coarse one, for its result in a box."""
    judged = box.grown(DETAIL_SIDE // 2, shape)
    return judged, _over(judged).grown(REACH // 2, halved_shape(shape))


def _over(box: Box) -> Box:
    """The pixels of the halved picture that a box of the fine one lies under."""
    return Box(box.top // 2, box.left // 2, box.bottom // 2 + 1, box.right // 2 + 1)


def _low_reach(share: float, lobes: float) -> int:
    """How many pixels of the coarse picture the low-pass filter reaches on each side."""
    return round(lobes / share)


def exchanged(box: Box, share: float, shape: tuple[int, int], lobes: float = SHARP_LOBES) -> tuple[Box, Box]:
    """What `with_low_from` needs of the fine and of the coarse picture for its result in a box."""
    reach = REACH // 2 + _low_reach(share, lobes) + 1
    coarse = _over(box).grown(reach, halved_shape(shape))
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
    count = inside.shape[axis]
    if straight or max(before, after) > count:
        width = [(0, 0), (0, 0)]
        width[axis] = (before, after)
        return np.pad(inside, width, "reflect", reflect_type="odd") if straight else np.pad(inside, width, "symmetric")
    parts = (_along(inside, axis, 0, before), inside, _along(inside, axis, count - after, count))
    return np.concatenate((np.flip(parts[0], axis), parts[1], np.flip(parts[2], axis)), axis=axis)


def _along(values: Floats, axis: int, start: int, stop: int) -> Floats:
    return values[start:stop] if axis == 0 else values[:, start:stop]
