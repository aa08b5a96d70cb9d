"""Compiled kernels of groups: find similar patches, denoise them together, add them up.

Each is equal to a slow and obvious version in tests/naive_groups.py. A kernel sees one part of the picture at a time,
in float32, and adds to sums of that part only. A patch is named by the corner it begins at: row * width + column.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.base.kernels.compiled import compiled
from dstl_cli.base.kernels.vectors import (
    LANES,
    ROWS,
    SHORT,
    add_vector,
    copy_vector,
    multiply_block,
    square_differences,
    sum_neighbours,
)

FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinities and NaN keep their meaning

FAR = np.float32(3e38)  # the distance of patches that are not in the picture
NEAREST = np.float32(-1)  # the distance of the reference patch to itself: before all others
LEAST_RIDGE = np.float32(1e-6)  # a matrix' diagonal is raised by at least this share of its trace: float32 solves it
LEAST_NOISE = np.float32(1e-3)  # a pass has at least this share of the noise to remove
LEAST_LEVERAGE = np.float32(0.2)  # a patch is taken to keep so much more of its noise: its group's mean, what P lacks
TURNS = 6  # rounds of Jacobi rotations: 3 x 3 needs no more


@compiled()
def squared_distances(flat, planes, size, first, second, width, side, count, columns, out):
    """Fill out[x] with the squared distance of the patches at first + x and second + x, x < count.

    flat: so many planes of that size and 16 more numbers. The column sums of squared differences serve all pairs;
    `columns` is scratch. Of those and of `out` up to 15 more than asked for are filled: they have whole vectors.
    """
    step, high, number, apart = np.uint64(width), np.uint64(side), np.uint64(planes), np.uint64(size)
    for x in range(0, count + side - 1, LANES):
        a, b = np.uint64(first + x), np.uint64(second + x)
        square_differences(columns, np.uint64(x), flat, a, b, step, high, number, apart)
    for x in range(0, count, LANES):
        sum_neighbours(out, np.uint64(x), columns, np.uint64(x), high)


@compiled()
def smallest(bits, wanted, chosen):
    """Fill `chosen` with the indices of the `wanted` smallest entries, in order; ties: the lower index.

    bits: floats read as int32. Those of floats from 0 on are in the floats' order, those below 0 are before them; so
    the largest chosen one is found by bisection, or a bound between it and the next.
    """
    low = np.int32(-1)
    high = low
    for i in range(wanted):
        high = max(high, bits[i])  # as many are not above it: a bound
    below = wanted + 1
    while high - low > 1 and below != wanted:
        middle = low + (high - low) // 2
        below = 0
        for i in range(bits.size):
            below += bits[i] <= middle
        if below >= wanted:
            high = middle
        else:
            low = middle
    ties = wanted
    for i in range(bits.size):
        ties -= bits[i] < high
    k = 0
    for i in range(bits.size):
        if bits[i] <= high and (bits[i] < high or ties > 0):
            ties -= bits[i] == high
            chosen[k] = i
            k += 1


@compiled(fastmath=FAST)
def match(guide, rows, columns, side, offsets, groups):
    """Fill groups[r * C + c] with the corners of the patches most like the one at (rows[r], columns[c]).

    guide: (channels, h, w) float32; rows (R,), columns (C,): intp, increasing; groups: (R * C, K) int32, in
    order. offsets: (N, 2), how many rows and columns away the patches begin, in order; (0, 0) is one of them, and the
    reference itself is always one of the patches.
    """
    channels, height, width = guide.shape
    flat = padded(guide)
    left = columns[0]
    span = columns[-1] - left + 1
    sums = np.zeros(up_to(span, LANES) + up_to(side, LANES) + LANES, np.float32)
    line = np.empty(up_to(span, LANES), np.float32)
    distances = np.empty((columns.size, len(offsets)), np.float32)
    bits = distances.view(np.int32)
    nearest = np.empty(groups.shape[1], np.int32)
    for r in range(rows.size):
        y = rows[r]
        for index in range(len(offsets)):
            v, shift = y + offsets[index, 0], offsets[index, 1]
            start = max(0, -shift - left)  # columns left + x whose shifted patch is in the picture:
            stop = min(span, width - side + 1 - shift - left)  # start <= x < stop
            if v < 0 or v > height - side:
                stop = start
            if stop > start:
                first = y * width + left + start
                second = v * width + left + start + shift
                squared_distances(flat, channels, height * width, first, second, width, side, stop - start, sums, line)
            for c in range(columns.size):
                x = np.uint64(columns[c] - left - start)
                distances[c, index] = line[x] if x < np.uint64(max(stop - start, 0)) else FAR
            if v == y and shift == 0:
                distances[:, index] = NEAREST
        for c in range(columns.size):
            smallest(bits[c], nearest.size, nearest)
            corner = y * width + columns[c]
            for k in range(nearest.size):
                groups[r * columns.size + c, k] = corner + offsets[nearest[k], 0] * width + offsets[nearest[k], 1]


@compiled()
def up_to(count, step):
    """The next multiple of the step."""
    return (count + step - 1) // step * step


@compiled()
def padded(picture):
    """A flat copy of an array and 16 zeros, for operations on more than is wanted."""
    flat = np.zeros(picture.size + LANES, np.float32)
    flat[: picture.size] = picture.ravel()
    return flat


@compiled()
def add_flat(flat, picture):
    """Add what `padded` made a flat copy of to a picture."""
    height, width = picture.shape
    for y in range(height):
        for x in range(width):
            picture[y, x] += flat[y * width + x]


@compiled()
def add_at(flat, corners, weights):
    """Add to a flat picture at each corner its weight."""
    for k in range(corners.size):
        flat[np.uint64(corners[k])] += weights[k]


@compiled(fastmath=FAST)
def patch_differences(first, second, side):
    """The squared difference of the patches of two pictures at each corner, (h, w); no patch begins where it is 0."""
    height, width = first.shape
    squares = (first - second) ** 2
    columns = np.zeros((height, width), np.float32)
    sums = np.zeros((height, width), np.float32)
    for y in range(height - side + 1):
        for i in range(side):
            for x in range(width):
                columns[y, x] += squares[y + i, x]
        for j in range(side):
            for x in range(width - side + 1):
                sums[y, x] += columns[y, x + j]
    return sums


@compiled(fastmath=FAST)
def group_mean(flat, corners):
    """The mean of the numbers of a flat picture at the corners."""
    total = np.float32(0)
    for k in range(corners.size):
        total += flat[np.uint64(corners[k])]
    return total / np.float32(corners.size)


@compiled()
def gather(flat, width, side, corners, patches):
    """Copy the patches at `corners` into the rows of `patches` (K + 1 or more, pitch), zero up to now behind them.

    flat: see `padded`.
    """
    pitch = patches.shape[1]
    rows = patches.ravel()
    zeros = np.uint64(flat.size - LANES)
    for k in range(corners.size):
        first, corner = k * pitch, np.int64(corners[k])
        for i in range(side):
            for j in range(0, side, SHORT):
                copy_vector(rows, np.uint64(first + i * side + j), flat, np.uint64(corner + i * width + j))
        copy_vector(rows, np.uint64(first + side * side), flat, zeros)
    copy_vector(rows, np.uint64(corners.size * pitch), flat, zeros)


@compiled()
def scatter(patches, weights, width, side, corners, flat):
    """Add the rows of `patches`, times a weight each, to the flat picture, see `padded`, each at its corner."""
    pitch = patches.shape[1]
    rows = patches.ravel()
    for k in range(corners.size):
        first, corner = k * pitch, np.int64(corners[k])
        for i in range(side):
            for j in range(0, side, SHORT):
                place, start = np.uint64(corner + i * width + j), np.uint64(first + i * side + j)
                add_vector(flat, place, rows, start, weights[k], np.uint64(min(side - j, SHORT)))


@compiled()
def multiply(left, right, first, rows, inner, out):
    """out[:rows] = left[:rows, :inner] @ right[:inner, first:]; rows: a multiple of 4; first, widths: of 16."""
    columns, step, width = out.shape[1], left.shape[1], right.shape[1]
    flat_out, flat_left, flat_right = out.ravel(), left.ravel(), right.ravel()
    for i in range(0, rows, ROWS):
        place, corner = i * columns, i * step
        multiply_block(
            flat_out, place, columns, flat_left, corner, step, 1, flat_right, first, width, inner, columns, False
        )


@compiled()
def cross_products(left, right, first, upper, out):
    """out[i, first + j] = the product of the columns i of left (K, p) and j of right (K, q), i < len(out), j < q.

    The rows of `out` are a multiple of 4, p and q of 16. upper: of those below the diagonal, i > j, not all are filled.
    """
    inner, step = left.shape
    columns, width = right.shape[1], out.shape[1]
    flat_out, flat_left, flat_right = out.ravel(), left.ravel(), right.ravel()
    for i in range(0, len(out), ROWS):
        j = i // LANES * LANES if upper else 0
        place = i * width + first + j
        multiply_block(flat_out, place, width, flat_left, i, 1, step, flat_right, j, columns, inner, columns - j, False)


@compiled()
def transpose(rows, first, columns):
    """columns[j, first + i] = rows[i, j], for the first columns of `rows`."""
    flat_rows, flat_columns, step, width = rows.ravel(), columns.ravel(), rows.shape[1], columns.shape[1]
    for j in range(len(columns)):
        for i in range(len(rows)):
            flat_columns[np.uint64(j * width + first + i)] = flat_rows[np.uint64(i * step + j)]


@compiled()
def products_of_rows(rows, columns, out):
    """out[i, j] = the product of the rows i and j, given as columns too; of those below the diagonal not all."""
    step, width, inner, count = out.shape[1], rows.shape[1], len(columns), columns.shape[1]
    flat_out, flat_rows, flat_columns = out.ravel(), rows.ravel(), columns.ravel()
    for i in range(0, len(rows), ROWS):
        j = i // LANES * LANES
        place, corner, wanted = i * step + j, i * width, count - j
        multiply_block(flat_out, place, step, flat_rows, corner, width, 1, flat_columns, j, count, inner, wanted, False)


@compiled(fastmath=FAST)
def invert_corner(system, c, inverse):
    """Fill `inverse` (4, 4) with U'^-1, where U'U is the symmetric matrix in rows and columns c to c + 3 of the system.

    Its upper half is read.
    """
    for i in range(ROWS):
        for j in range(ROWS):
            inverse[i, j] = system[c + j, c + i] if j <= i else np.float32(0)
    for a in range(ROWS):  # U', row by row
        for b in range(a + 1):
            for k in range(b):
                inverse[a, b] -= inverse[a, k] * inverse[b, k]
            inverse[a, b] = np.sqrt(inverse[a, a]) if a == b else inverse[a, b] / inverse[b, b]
    for a in range(ROWS):  # its inverse, column by column from the left in each row
        scale = np.float32(1) / inverse[a, a]
        for b in range(a):
            total = np.float32(0)
            for k in range(b, a):
                total += inverse[a, k] * inverse[k, b]
            inverse[a, b] = -scale * total
        inverse[a, a] = scale


@compiled(fastmath=FAST)
def eliminate(system, first, inverses, triangular):
    """Turn [S | R], (m, first + q), into [U | U'^-1 R], S = U'U symmetric and positive definite, in place.

    Of S, (m, m), the upper half is read. m is a multiple of 4, first >= m and q of 16. inverses: (m / 4, 4, 4) scratch.
    Cholesky's method, four rows at a time: rows are rid of those above them, and turned by U'^-1 of their own four
    columns. triangular: R is zero above its diagonal, as U'^-1 R is then; that is left out.
    """
    m, width = system.shape
    flat, turns = system.ravel(), inverses.ravel()
    for c in range(0, m, ROWS):
        start = c // LANES * LANES
        place, count = c * width + start, width - start
        if triangular:
            count = first + up_to(c + ROWS, LANES) - start
        if c:
            multiply_block(flat, place, width, flat, c, 1, width, flat, start, width, c, count, True)
        invert_corner(system, c, inverses[c // ROWS])
        turn = c // ROWS * ROWS * ROWS
        multiply_block(flat, place, width, turns, turn, ROWS, 1, flat, place, width, ROWS, count, False)


@compiled(fastmath=FAST)
def haar(rows, size, steps):
    """Orthonormal sums and differences of the first rows, those a step apart, in place; backwards its own inverse."""
    half = np.float32(0.5**0.5)
    for step in steps:
        for k in range(0, size, 2 * step):
            for j in range(rows.shape[1]):
                a, b = rows[k, j], rows[k + step, j]
                rows[k, j] = (a + b) * half
                rows[k + step, j] = (a - b) * half


@compiled(fastmath=FAST)
def group_power(flat_factors, corners):
    """Mean of the squared factors of a group's patches, by which its noise is stronger; 1 where there are none."""
    if flat_factors.size == 0:
        return np.float32(1)
    power = np.float32(0)
    for k in range(corners.size):
        factor = flat_factors[corners[k]]
        power += factor * factor
    return power / np.float32(corners.size)


@compiled(fastmath=FAST)
def threshold_groups(noisy, factors, groups, side, forward, backward, thresholds, total, weights):
    """Denoise groups by hard thresholds: code each patch, Haar along the group, threshold, and all the way back.

    noisy: (h, w) float32; factors: (h, w), by what the noise of the patch at a corner is stronger, or (0, 0) where it
    is the same everywhere; groups: (G, K) int32, K a power of two above 1; forward (n, m), backward (m, n): patches as
    rows to codes and back, code 0 the patch mean, whose group mean is always kept; thresholds: (m,). n and m are
    multiples of 16: what is beyond the pixels of a patch is zero.
    Adds the patches to `total` (h, w), weighted by 1 / (coefficients kept times the power of the group's noise), and
    the weights to `weights` at the corners.
    """
    width, size = noisy.shape[1], groups.shape[1]
    flat_noisy, flat_factors, flat_weights = padded(noisy), factors.ravel(), weights.ravel()
    flat_total = np.zeros_like(flat_noisy)
    steps = 2 ** np.arange(round(np.log2(size)))
    rows = up_to(size, ROWS)
    patches = np.zeros((rows + 1, backward.shape[1]), np.float32)
    codes = np.zeros((rows, thresholds.size), np.float32)
    shares = np.empty(size, np.float32)
    for g in range(groups.shape[0]):
        corners = groups[g]
        power = group_power(flat_factors, corners)
        factor = np.sqrt(power)
        gather(flat_noisy, width, side, corners, patches)
        multiply(patches, forward, 0, rows, side * side, codes)
        haar(codes, size, steps)
        mean = codes[0, 0]
        codes[0, 0] = 0
        kept = 1
        for k in range(size):
            for j in range(thresholds.size):
                keep = abs(codes[k, j]) > factor * thresholds[j]
                kept += keep
                codes[k, j] = codes[k, j] if keep else np.float32(0)
        codes[0, 0] = mean
        haar(codes, size, steps[::-1])
        multiply(codes, backward, 0, rows, thresholds.size, patches)
        shares[:] = np.float32(1) / (np.float32(kept) * power)
        scatter(patches, shares, width, side, corners, flat_total)
        add_at(flat_weights, corners, shares)
    add_flat(flat_total, total)


@compiled(fastmath=FAST)
def gather_deviations(picture, width, side, corners, unit, patches, means):
    """Gather the patches at the corners, without their mean, which is left in `means`, and in this unit."""
    gather(picture, width, side, corners, patches)
    flat, pitch = patches.ravel(), means.size
    share = np.full(1, np.float32(1) / np.float32(corners.size))
    multiply_block(means, 0, 0, share, 0, 0, 0, flat, 0, pitch, corners.size, pitch, False)
    factor = np.float32(1) / unit
    for k in range(corners.size):
        first = np.uint64(k * pitch)
        for j in range(pitch):
            place = first + np.uint64(j)
            flat[place] = (flat[place] - means[j]) * factor


@compiled(fastmath=FAST)
def divide_rows(patches, units):
    """Divide the first rows by a number each."""
    flat, pitch = patches.ravel(), patches.shape[1]
    for k in range(units.size):
        first, factor = np.uint64(k * pitch), np.float32(1) / units[k]
        for j in range(pitch):
            flat[first + np.uint64(j)] *= factor


@compiled(fastmath=FAST)
def inner_product(first, second, count):
    """The sum of the products of two flat arrays, up to a number."""
    total = np.float32(0)
    for j in range(count):
        total += first[np.uint64(j)] * second[np.uint64(j)]
    return total


@compiled()
def by_patches(patches, n):
    """Whether systems of so many patches take fewer products than those of the n numbers of a patch; see `combine`."""
    return patches * patches * (9 * n + 2 * patches) < n * n * (18 * patches + n)


@compiled()
def scratch_of_systems(rows, n, pitch):
    """What `combine` works in: systems, corners of them, halfway products, and the pilot as columns or nothing."""
    count = up_to(rows, LANES)
    if by_patches(rows, n):
        order, first, turned = rows, count, n
    else:
        order, first, turned = up_to(n, ROWS), pitch, 0
    system, corners = np.zeros((order, first + count), np.float32), np.empty((order // ROWS, ROWS, ROWS), np.float32)
    return system, corners, np.empty((order, pitch), np.float32), np.zeros((turned, count), np.float32)


@compiled(fastmath=FAST)
def combine(pilots, currents, penalty, n, scratch, out, leverages):
    """out = H Y, H = G (G + penalty I)^-1, G = P P', of P, the pilot's patches as rows (K, pitch), and Y, of current.

    Whichever takes fewer products: U'U = P' P + penalty I, B = U'^-1 P', H = B' B; or U'U = G + penalty I, B = U'^-1,
    H = I - penalty B' B. n: the numbers of a patch; K a multiple of 4. scratch: see `scratch_of_systems`.
    leverages: (K,), filled with the diagonal of H, the share of its noise that each patch keeps.
    """
    system, inverses, halfway, columns = scratch
    first = system.shape[1] - up_to(len(pilots), LANES)
    if len(columns):
        transpose(pilots, 0, columns)
        products_of_rows(pilots, columns, system)
        system[:, first:] = 0
        for j in range(len(system)):
            system[j, first + j] = 1
    else:
        cross_products(pilots, pilots, 0, True, system)
        transpose(pilots, first, system)
    for j in range(len(system)):
        system[j, j] += penalty
    eliminate(system, first, inverses, len(columns) > 0)
    squares_of_columns(system, first, leverages)
    multiply_twice(system, first, currents, len(columns) > 0, halfway, out)
    if len(columns):
        for i in range(len(out)):
            leverages[i] = max(np.float32(1) - penalty * leverages[i], np.float32(0))
            for j in range(out.shape[1]):
                out[i, j] = currents[i, j] - penalty * out[i, j]


@compiled(fastmath=FAST)
def squares_of_columns(system, first, sums):
    """sums[k] = the sum of the squares of system[:, first + k]."""
    flat, width = system.ravel(), system.shape[1]
    sums[:] = 0
    for i in range(len(system)):
        start = np.uint64(i * width + first)
        for k in range(sums.size):
            number = flat[start + np.uint64(k)]
            sums[k] += number * number


@compiled()
def multiply_twice(system, first, right, triangular, halfway, out):
    """halfway = B @ right, out = B' @ halfway, with B (m, K) the columns of the system from `first` on.

    right, out: (K, p), m and K multiples of 4, p of 16. triangular: B is zero above its diagonal, and m = K.
    """
    (order, width), (rows, pitch) = system.shape, out.shape
    flat, flat_right, flat_halfway, flat_out = system.ravel(), right.ravel(), halfway.ravel(), out.ravel()
    for i in range(0, order, ROWS):
        inner = i + ROWS if triangular else rows
        place, corner = i * pitch, i * width + first
        multiply_block(flat_halfway, place, pitch, flat, corner, width, 1, flat_right, 0, pitch, inner, pitch, False)
    for i in range(0, rows, ROWS):
        above = i if triangular else 0
        place, corner, start = i * pitch, above * width + first + i, above * pitch
        multiply_block(
            flat_out, place, pitch, flat, corner, 1, width, flat_halfway, start, pitch, order - above, pitch, False
        )


@compiled(fastmath=FAST)
def weigh(leverages, excess, weights):
    """Fill `weights` of patches: less for those that keep more of their noise, and in groups with more structure."""
    share = np.float32(1) / np.sqrt(np.float32(1) + excess)
    for k in range(weights.size):
        weights[k] = share / (leverages[k] + LEAST_LEVERAGE)


@compiled(fastmath=FAST)
def damp_mean(means, n, noise):
    """Fill means[0, :n] with the mean patch below it, means[1, :n], its noise damped by what means[0, :n] tells of it.

    means: the group means of pilot and current. With e the squared deviations of the pilot's from its own mean, those
    of current's are multiplied by e / (e + noise); noise 0 leaves them as they are.
    """
    pilot_mean, mean, e = np.float32(0), np.float32(0), np.float32(0)
    for j in range(n):
        pilot_mean += means[0, j] / np.float32(n)
        mean += means[1, j] / np.float32(n)
    for j in range(n):
        e += (means[0, j] - pilot_mean) ** 2
    damping = e / (e + noise) if noise > 0 else np.float32(1)
    for j in range(n):
        means[0, j] = mean + damping * (means[1, j] - mean)


@compiled(fastmath=FAST)
def finish_patches(denoised, own, units, means, kept):
    """Add the means, (2, pitch), to the first rows of denoised and of current, each row in a unit of its own.

    And turn those of current into the denoised ones with the noise that is kept.
    """
    flat, noisy, pitch = denoised.ravel(), own.ravel(), means.shape[1]
    for k in range(units.size):
        first, unit = np.uint64(k * pitch), units[k]
        for column in range(pitch):
            j = first + np.uint64(column)
            estimate = unit * flat[j] + means[0, column]
            flat[j] = estimate
            noisy[j] = estimate + kept * (unit * noisy[j] + means[1, column] - estimate)


@compiled(fastmath=FAST)
def ridge_groups(
    noisy, current, pilot, factors, groups, side, whitening, sigma, strength, noise_kept, estimate, remaining, weights
):
    """Denoise groups by a ridge combination of their patches, with the pilot in the place of the clean picture.

    noisy, current, pilot: (h, w) float32; current is `noisy` with part of its noise removed. t, the share of the noise
    of deviation sigma that is still in a group, follows from what was removed. With P and Y the patches of pilot and
    current as columns (n, K), without their group means, the denoised patches are
        Y P' (P P' + c n (t sigma)^2 I)^-1 P  +  the group mean of current,
    with c the first strength, above 1 where the pilot has noise of its own. The noise of the group mean counts with the
    second strength, see `damp_mean`: it has 1 / K of the patches' power. Where P P' has a trace below the third times
    the penalty, only the group mean is kept: the rest would be damped to little.
    factors: (h, w), by what the noise of the patch at a corner is stronger, or (0, 0): with D their squares,
        Y D^-1 P' (P D^-1 P' + c n (t sigma)^2 I)^-1 P.
    whitening: V' (n or more, pitch), P is then V P, or (0, 0); pitch: n or the next multiple of 16.
    Adds them to `estimate`, the same with the share `noise_kept` of the noise to `remaining`, (0, 0) where that is not
    wanted, both with the weight 1 / (h + 0.2) / sqrt(1 + r): h is the share of its noise that the patch keeps, see
    `combine`, r the mean eigenvalue of P P' over the penalty: what is flat is known best; and the weights to `weights`
    at the corners.
    """
    width, size = current.shape[1], groups.shape[1]
    flat_current, flat_pilot, flat_factors = padded(current), padded(pilot), factors.ravel()
    removals = patch_differences(noisy, current, side).ravel()
    flat_estimate, flat_remaining = np.zeros_like(flat_current), np.zeros_like(flat_current)
    flat_weights, n = weights.ravel(), side * side
    rows, pitch = up_to(size, ROWS), up_to(n, LANES)
    pilots, currents = np.zeros((rows + 1, pitch), np.float32), np.zeros((rows + 1, pitch), np.float32)
    denoised = np.zeros((rows + 1, pitch), np.float32)
    means = np.empty((2, pitch), np.float32)
    units = np.ones(size, np.float32)  # what a patch's numbers are in
    leverages, shares = np.empty(rows, np.float32), np.empty(size, np.float32)
    scratch = scratch_of_systems(rows, n, pitch)
    for g in range(groups.shape[0]):
        corners = groups[g]
        gather_deviations(flat_pilot, width, side, corners, np.float32(1), pilots, means[0])
        gather_deviations(flat_current, width, side, corners, np.float32(1), currents, means[1])
        power = group_power(flat_factors, corners)
        deviation = sigma * np.sqrt(power)
        removed = np.sqrt(group_mean(removals, corners) / np.float32(n))
        t = max(np.float32(1) - removed / deviation, noise_kept + LEAST_NOISE)
        if whitening.size:
            multiply(pilots, whitening, 0, rows, n, denoised)
            pilots, denoised = denoised, pilots
        if flat_factors.size:
            units[:] = flat_factors[corners] / np.sqrt(power)
            divide_rows(pilots, units)
            divide_rows(currents, units)
        trace = inner_product(pilots.ravel(), pilots.ravel(), size * pitch)
        power = np.float32(n) * (t * deviation) ** 2
        penalty = max(strength[0] * power, LEAST_RIDGE * trace)
        if trace > strength[2] * penalty:
            combine(pilots[:rows], currents[:rows], penalty, n, scratch, denoised[:rows], leverages)
        else:
            denoised[:], leverages[:] = 0, 0
        weigh(leverages, trace / (np.float32(n) * penalty), shares)
        damp_mean(means, n, strength[1] * power / np.float32(size))
        finish_patches(denoised, currents, units, means, noise_kept / t)
        scatter(denoised, shares, width, side, corners, flat_estimate)
        if remaining.size:
            scatter(currents, shares, width, side, corners, flat_remaining)
        add_at(flat_weights, corners, shares)
    add_flat(flat_estimate, estimate)
    add_flat(flat_remaining, remaining)


@compiled(fastmath=FAST)
def principal_axes(moments, axes):
    """Fill the columns of `axes` (3, 3) with the eigenvectors of `moments`, which becomes diagonal (Jacobi)."""
    for i in range(3):
        for j in range(3):
            axes[i, j] = np.float64(i == j)
    for _ in range(TURNS):
        for p in range(2):
            for q in range(p + 1, 3):
                if moments[p, q] ** 2 > 1e-24 * abs(moments[p, p] * moments[q, q]):  # rounded, they may be negative
                    ratio = (moments[q, q] - moments[p, p]) / (2 * moments[p, q])
                    tangent = 1 / (abs(ratio) + np.sqrt(ratio * ratio + 1))
                    tangent = -tangent if ratio < 0 else tangent
                    cosine = 1 / np.sqrt(tangent * tangent + 1)
                    turn(moments.T, p, q, cosine, tangent * cosine)
                    turn(moments, p, q, cosine, tangent * cosine)
                    turn(axes.T, p, q, cosine, tangent * cosine)


@compiled(fastmath=FAST)
def turn(rows, p, q, cosine, sine):
    """Rotate rows p and q into each other, in place."""
    for k in range(rows.shape[1]):
        a, b = rows[p, k], rows[q, k]
        rows[p, k] = cosine * a - sine * b
        rows[q, k] = sine * a + cosine * b


@compiled(fastmath=FAST)
def colour_moments(patches, count, moments):
    """Fill moments[p, q] with the products of the first numbers of channels p and q, summed."""
    for p in range(3):
        for q in range(p, 3):
            moments[p, q] = inner_product(patches[p].ravel(), patches[q].ravel(), count)
            moments[q, p] = moments[p, q]


@compiled(fastmath=FAST)
def turn_colours(patches, axes, turned):
    """turned[:, i] = the patches of three channels, (2, 3, K, pitch), along the column i of the axes (3, 3)."""
    count = turned[0, 0].size
    for kind in range(2):
        a, b, c = patches[kind, 0].ravel(), patches[kind, 1].ravel(), patches[kind, 2].ravel()
        for i in range(3):
            out = turned[kind, i].ravel()
            p, q, r = np.float32(axes[0, i]), np.float32(axes[1, i]), np.float32(axes[2, i])
            for place in range(count):
                j = np.uint64(place)
                out[j] = p * a[j] + q * b[j] + r * c[j]


@compiled(fastmath=FAST)
def finish_colour(combined, axes, channel, size, sigma, means, kept, patches, own):
    """Fill `patches` with the denoised patches of a channel, and turn `own` into the same with the noise that is kept.

    The first `size` rows of each.
    combined: (3, K, pitch), denoised along each axis; own: the patches of current; both in units of sigma and without
    their means, (2, pitch), denoised and current.
    """
    pitch = combined.shape[2]
    first, second, third = combined[0].ravel(), combined[1].ravel(), combined[2].ravel()
    denoised, noisy = patches.ravel(), own.ravel()
    p, q, r = (
        sigma * np.float32(axes[channel, 0]),
        sigma * np.float32(axes[channel, 1]),
        sigma * np.float32(axes[channel, 2]),
    )
    for k in range(size):
        start = np.uint64(k * pitch)
        for column in range(pitch):
            j = start + np.uint64(column)
            estimate = p * first[j] + q * second[j] + r * third[j] + means[0, column]
            denoised[j] = estimate
            noisy[j] = estimate + kept * (sigma * noisy[j] + means[1, column] - estimate)


@compiled(fastmath=FAST)
def ridge_colours(noisy, current, pilot, groups, side, sigmas, strength, noise_kept, estimate, remaining, weights):
    """`ridge_groups` for white noise in three channels, along the axes of each group's own colours.

    noisy, current, pilot, estimate, remaining: (3, h, w) float32, remaining (0, h, w) where it is not wanted;
    sigmas: (3,); strength: as there. In units of the noise the channels are turned to the principal axes of the pilot's
    patches, worked on one by one, and turned back.
    All channels have the same weights; h and r are means over the axes.
    """
    _, height, width = current.shape
    size, n = groups.shape[1], side * side
    rows, pitch = up_to(size, ROWS), up_to(n, LANES)
    flat = np.zeros((4, 3, height * width + LANES), np.float32)  # pilot, current, and the sums
    removals = np.empty((3, height * width), np.float32)
    for c in range(3):
        removals[c] = patch_differences(noisy[c], current[c], side).ravel()
        flat[0, c] = padded(pilot[c])
        flat[1, c] = padded(current[c])
    flat_weights = weights.ravel()
    patches = np.zeros((2, 3, rows + 1, pitch), np.float32)  # of pilot and current
    turned, combined = np.empty((2, 3, rows, pitch), np.float32), np.empty((3, rows, pitch), np.float32)
    denoised = np.empty((rows + 1, pitch), np.float32)
    means = np.zeros((3, 2, pitch), np.float32)
    shares = np.empty(3, np.float32)
    leverages, kept, weight = np.empty(rows, np.float32), np.empty(rows, np.float32), np.empty(size, np.float32)
    moments, axes = np.empty((3, 3)), np.empty((3, 3))
    scratch = scratch_of_systems(rows, n, pitch)
    for g in range(groups.shape[0]):
        corners = groups[g]
        for c in range(3):
            for kind in range(2):
                gather_deviations(flat[kind, c], width, side, corners, sigmas[c], patches[kind, c], means[c, kind])
            removed = group_mean(removals[c], corners) / np.float32(n)
            shares[c] = max(np.float32(1) - np.sqrt(removed) / sigmas[c], noise_kept + LEAST_NOISE)
        colour_moments(patches[0], size * pitch, moments)
        principal_axes(moments, axes)
        turn_colours(patches, axes, turned)
        excess = np.float32(0)
        kept[:] = 0
        for i in range(3):
            power = np.float32(0)
            for j in range(3):
                power += (np.float32(axes[j, i]) * shares[j]) ** 2
            trace = np.float32(moments[i, i])
            penalty = max(strength[0] * np.float32(n) * power, LEAST_RIDGE * trace)
            excess += trace / (np.float32(3 * n) * penalty)
            if trace > strength[2] * penalty:
                combine(turned[0, i], turned[1, i], penalty, n, scratch, combined[i], leverages)
                for k in range(rows):
                    kept[k] += leverages[k] / np.float32(3)
            else:
                combined[i] = 0
        weigh(kept, excess, weight)
        for c in range(3):
            damp_mean(means[c], n, strength[1] * np.float32(n) * (shares[c] * sigmas[c]) ** 2 / np.float32(size))
            own = patches[1, c]
            finish_colour(combined, axes, c, size, sigmas[c], means[c], noise_kept / shares[c], denoised, own)
            scatter(denoised, weight, width, side, corners, flat[2, c])
            if len(remaining):
                scatter(own, weight, width, side, corners, flat[3, c])
        add_at(flat_weights, corners, weight)
    for c in range(3):
        add_flat(flat[2, c], estimate[c])
        if len(remaining):
            add_flat(flat[3, c], remaining[c])
