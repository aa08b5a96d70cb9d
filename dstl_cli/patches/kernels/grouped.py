"""Compiled kernels of groups: find similar patches, denoise them together, add them up.

Each is equal to a slow and obvious version in tests/naive_groups.py. A kernel sees one part of the picture at a time,
in float32, and adds to sums of that part only. A patch is named by the corner it begins at: row * width + column.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.patches.kernels.compiled import compiled

FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinities and NaN keep their meaning

FAR = np.float32(3e38)  # the distance of patches that are not in the picture
NEAREST = np.float32(-1)  # the distance of the reference patch to itself: before all others
LEAST_RIDGE = np.float32(1e-6)  # a matrix' diagonal is raised by at least this share of its trace: float32 solves it
LEAST_NOISE = np.float32(1e-3)  # a pass has at least this share of the noise to remove
FAINT = np.float32(0.3)  # an axis of colours with less than this share of its penalty is left at the group's mean
TURNS = 6  # rounds of Jacobi rotations: 3 x 3 needs no more


@compiled(fastmath=FAST)
def squared_distances(planes, first, second, width, side, count, columns, out):
    """Fill out[x] with the squared distance of the patches at first + x and second + x, x < count.

    planes: (channels, h * w). The column sums of squared differences serve all pairs; `columns` is scratch for
    count + side - 1 of them. Two rows and two columns at a time: sums are read and written half as often.
    """
    for x in range(count + side - 1):
        columns[x] = 0
    for channel in range(planes.shape[0]):
        flat = planes[channel]
        for i in range(0, side - 1, 2):
            a, b = np.uint64(first + i * width), np.uint64(second + i * width)
            c, d = np.uint64(first + (i + 1) * width), np.uint64(second + (i + 1) * width)
            for x in range(count + side - 1):
                u = np.uint64(x)
                upper, lower = flat[a + u] - flat[b + u], flat[c + u] - flat[d + u]
                columns[x] += upper * upper + lower * lower
        if side % 2:
            a, b = np.uint64(first + (side - 1) * width), np.uint64(second + (side - 1) * width)
            for x in range(count + side - 1):
                u = np.uint64(x)
                difference = flat[a + u] - flat[b + u]
                columns[x] += difference * difference
    for x in range(count):
        out[x] = columns[np.uint64(x)] if side % 2 else np.float32(0)
    for j in range(side % 2, side, 2):
        for x in range(count):
            out[x] += columns[np.uint64(x + j)] + columns[np.uint64(x + j + 1)]


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
def match(guide, rows, columns, side, radius, groups):
    """Fill groups[r * C + c] with the corners of the patches most like the one at (rows[r], columns[c]).

    guide: (channels, h, w) float32; rows (R,), columns (C,): intp, increasing; groups: (R * C, K) int32, in
    order. The patches begin at most `radius` rows and columns away; the reference itself is always one of them.
    """
    channels, height, width = guide.shape
    planes = guide.reshape((channels, height * width))
    window = 2 * radius + 1
    left = columns[0]
    span = columns[-1] - left + 1
    sums = np.empty(span + side - 1, np.float32)
    line = np.empty(span, np.float32)
    distances = np.empty((columns.size, window * window), np.float32)
    bits = distances.view(np.int32)
    nearest = np.empty(groups.shape[1], np.int32)
    for r in range(rows.size):
        y = rows[r]
        top = max(y - radius, 0)
        bottom = min(y + radius, height - side)
        for v in range(top, bottom + 1):
            for shift in range(-radius, radius + 1):
                start = max(0, -shift - left)  # columns left + x whose shifted patch is in the picture:
                stop = min(span, width - side + 1 - shift - left)  # start <= x < stop
                if stop > start:
                    first = y * width + left + start
                    second = v * width + left + start + shift
                    squared_distances(planes, first, second, width, side, stop - start, sums, line)
                index = (v - top) * window + shift + radius
                for c in range(columns.size):
                    x = columns[c] - left
                    distances[c, index] = line[x - start] if start <= x < stop else FAR
        for c in range(columns.size):
            distances[c, (y - top) * window + radius] = NEAREST
            smallest(bits[c, : (bottom - top + 1) * window], nearest.size, nearest)
            for k in range(nearest.size):
                v, shift = divmod(nearest[k], window)
                groups[r * columns.size + c, k] = (top + v) * width + columns[c] + shift - radius


@compiled(fastmath=FAST)
def gather(flat, width, side, corners, first, patches):
    """Copy the patches at `corners` into the columns of `patches`, from row `first` on."""
    for i in range(side):
        for j in range(side):
            row = first + i * side + j
            offset = i * width + j
            for k in range(corners.size):
                patches[row, k] = flat[np.uint64(corners[k] + offset)]


@compiled(fastmath=FAST)
def scatter(patches, weight, width, side, corners, flat):
    """Add weight times the columns of `patches` to the flat picture, each at its corner."""
    for i in range(side):
        for j in range(side):
            row = i * side + j
            offset = i * width + j
            for k in range(corners.size):
                flat[np.uint64(corners[k] + offset)] += weight * patches[row, k]


@compiled(fastmath=FAST)
def squared_difference(first, second, width, side, corners):
    """Sum of the squared differences of two flat pictures over the patches at `corners`."""
    total = np.float32(0)
    for i in range(side):
        for j in range(side):
            offset = i * width + j
            for k in range(corners.size):
                place = np.uint64(corners[k] + offset)
                difference = first[place] - second[place]
                total += difference * difference
    return total


@compiled(fastmath=FAST)
def add_rows(out, first, second, rows, top, width, start, stop, first_factors, second_factors):
    """Add combinations of four rows, `width` apart from `top` on, to the two rows of `out` at first and second.

    The core of all products below: four rows are read once for eight multiplications. Columns start to stop.
    """
    a0, a1, a2, a3 = first_factors
    b0, b1, b2, b3 = second_factors
    o = np.uint64(first)
    p = np.uint64(second)
    r0 = np.uint64(top)
    r1 = np.uint64(top + width)
    r2 = np.uint64(top + 2 * width)
    r3 = np.uint64(top + 3 * width)
    for j in range(start, stop):
        u = np.uint64(j)
        x0, x1, x2, x3 = rows[r0 + u], rows[r1 + u], rows[r2 + u], rows[r3 + u]
        out[o + u] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
        out[p + u] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)


@compiled(fastmath=FAST)
def multiply(left, first, rows, out):
    """out = left[:, first : first + len(out)]' @ rows; `rows` are a multiple of 4, those of `out` of 2."""
    inner, width = rows.shape
    flat_out, flat_rows = out.ravel(), rows.ravel()
    for i in range(0, out.shape[0], 2):
        for j in range(2 * width):
            flat_out[i * width + j] = 0
        c = first + i
        for s in range(0, inner, 4):
            a = left[s, c], left[s + 1, c], left[s + 2, c], left[s + 3, c]
            b = left[s, c + 1], left[s + 1, c + 1], left[s + 2, c + 1], left[s + 3, c + 1]
            add_rows(flat_out, i * width, (i + 1) * width, flat_rows, s * width, width, 0, width, a, b)


@compiled(fastmath=FAST)
def inner_products(left, right, upper, out):
    """Fill out[i, j] with the product of left[i] and right[j], where `upper` only for j >= i; all are multiples of 4.

    Eight products at a time, while the rows are in the registers.
    """
    count, width = right.shape
    flat_left, flat = left.ravel(), right.ravel()
    for i in range(0, out.shape[0], 2):
        p0 = np.uint64(i * width)
        p1 = np.uint64((i + 1) * width)
        for j in range(i // 4 * 4 if upper else 0, count, 4):
            r0 = np.uint64(j * width)
            r1 = np.uint64((j + 1) * width)
            r2 = np.uint64((j + 2) * width)
            r3 = np.uint64((j + 3) * width)
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0)
            for k in range(width):
                u = np.uint64(k)
                x, y = flat_left[p0 + u], flat_left[p1 + u]
                a0 += x * flat[r0 + u]
                a1 += x * flat[r1 + u]
                a2 += x * flat[r2 + u]
                a3 += x * flat[r3 + u]
                b0 += y * flat[r0 + u]
                b1 += y * flat[r1 + u]
                b2 += y * flat[r2 + u]
                b3 += y * flat[r3 + u]
            out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = a0, a1, a2, a3
            out[i + 1, j], out[i + 1, j + 1], out[i + 1, j + 2], out[i + 1, j + 3] = b0, b1, b2, b3


@compiled(fastmath=FAST)
def eliminate(system, rows):
    """Turn rows (m, K) into L^-1 rows, in place, of system = L D L', L unit lower triangular; D becomes its diagonal.

    system: (m, m), symmetric and positive definite, m a multiple of 4, used up. Gaussian elimination without pivoting,
    four rows at a time; only the upper half is read: by symmetry row i is rid of column b by S[b, i] / S[b, b] times
    row b.
    """
    m, width = rows.shape
    flat, flat_rows = system.ravel(), rows.ravel()
    for c in range(0, m, 4):
        for a in range(c, c + 4):
            for b in range(c, a):
                factor = system[b, a] / system[b, b]
                for j in range(a, m):
                    system[a, j] -= factor * system[b, j]
                for j in range(width):
                    rows[a, j] -= factor * rows[b, j]
        r0, r1 = np.float32(-1) / system[c, c], np.float32(-1) / system[c + 1, c + 1]
        r2, r3 = np.float32(-1) / system[c + 2, c + 2], np.float32(-1) / system[c + 3, c + 3]
        for i in range(c + 4, m, 2):
            k = i + 1
            upper = system[c, i] * r0, system[c + 1, i] * r1, system[c + 2, i] * r2, system[c + 3, i] * r3
            lower = system[c, k] * r0, system[c + 1, k] * r1, system[c + 2, k] * r2, system[c + 3, k] * r3
            add_rows(flat, i * m, k * m, flat, c * m, m, i, m, upper, lower)
            add_rows(flat_rows, i * width, k * width, flat_rows, c * width, width, 0, width, upper, lower)


@compiled(fastmath=FAST)
def combine(pilot, current, system, products, out):
    """out = Y P' S^-1 P of P, the pilot, and Y, current: (m, K); S the system (m, m). P becomes L^-1 P, S is used up.

    With S = L D L' this is (Y Z') D^-1 Z, Z = L^-1 P. products: (m, m) is scratch.
    """
    eliminate(system, pilot)
    inner_products(pilot, current, False, products)
    for i in range(len(products)):
        reciprocal = np.float32(1) / system[i, i]
        for j in range(len(products)):
            products[i, j] *= reciprocal
    multiply(products, 0, pilot, out)


@compiled(fastmath=FAST)
def haar(rows, steps):
    """Orthonormal sums and differences of rows that are a step apart, in place; backwards its own inverse."""
    half = np.float32(0.5**0.5)
    for step in steps:
        for k in range(0, rows.shape[0], 2 * step):
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
    multiples of 4: what is beyond the pixels of a patch is zero.
    Adds the patches to `total` (h, w), weighted by 1 / (coefficients kept times the power of the group's noise), and
    the weights to `weights` at the corners.
    """
    width = noisy.shape[1]
    flat_noisy, flat_total, flat_weights = noisy.ravel(), total.ravel(), weights.ravel()
    flat_factors = factors.ravel()
    size = groups.shape[1]
    steps = 2 ** np.arange(round(np.log2(size)))
    patches = np.zeros((forward.shape[0], size), np.float32)
    codes = np.empty((size, thresholds.size), np.float32)
    estimates = np.empty((size, forward.shape[0]), np.float32)
    for g in range(groups.shape[0]):
        corners = groups[g]
        power = group_power(flat_factors, corners)
        factor = np.sqrt(power)
        gather(flat_noisy, width, side, corners, 0, patches)
        multiply(patches, 0, forward, codes)
        haar(codes, steps)
        mean = codes[0, 0]
        codes[0, 0] = 0
        kept = 1
        for k in range(size):
            for j in range(thresholds.size):
                keep = abs(codes[k, j]) > factor * thresholds[j]
                kept += keep
                codes[k, j] = codes[k, j] if keep else np.float32(0)
        codes[0, 0] = mean
        haar(codes, steps[::-1])
        multiply(codes.T, 0, backward, estimates)
        weight = np.float32(1) / (np.float32(kept) * power)
        scatter(estimates.T, weight, width, side, corners, flat_total)
        for k in range(size):
            flat_weights[corners[k]] += weight


@compiled(fastmath=FAST)
def subtract_means(rows, means):
    """Subtract from each row its mean, in place, and leave it in `means`."""
    for j in range(rows.shape[0]):
        total = np.float32(0)
        for k in range(rows.shape[1]):
            total += rows[j, k]
        means[j] = total / np.float32(rows.shape[1])
        for k in range(rows.shape[1]):
            rows[j, k] -= means[j]


@compiled(fastmath=FAST)
def damp_mean(means, n, noise):
    """Fill means[:n] with the mean patch below it, means[m : m + n], its noise damped by what means[:n] tells of it.

    means: (2 m,), the group means of pilot and current. With e the squared deviations of the pilot's from its own mean,
    those of current's are multiplied by e / (e + noise); noise 0 leaves them as they are.
    """
    m = means.size // 2
    pilot_mean, mean, e = np.float32(0), np.float32(0), np.float32(0)
    for j in range(n):
        pilot_mean += means[j] / np.float32(n)
        mean += means[m + j] / np.float32(n)
    for j in range(n):
        e += (means[j] - pilot_mean) ** 2
    damping = e / (e + noise) if noise > 0 else np.float32(1)
    for j in range(n):
        means[j] = mean + damping * (means[m + j] - mean)


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
    second strength, see `damp_mean`: it has 1 / K of the patches' power.
    factors: (h, w), by what the noise of the patch at a corner is stronger, or (0, 0): with D their squares,
        Y D^-1 P' (P D^-1 P' + c n (t sigma)^2 I)^-1 P.
    whitening: V' (m, m), P is then V P, or (0, 0). m is n or the next multiple of 4.
    Adds them to `estimate`, the same with the share `noise_kept` of the noise to `remaining`, both with the weight
    1 / sqrt(1 + r), r the mean eigenvalue of P P' over the penalty: what is flat is known best; and the weights to
    `weights` at the corners.
    """
    width = current.shape[1]
    flat_noisy, flat_current, flat_pilot = noisy.ravel(), current.ravel(), pilot.ravel()
    flat_estimate, flat_remaining, flat_weights = estimate.ravel(), remaining.ravel(), weights.ravel()
    flat_factors = factors.ravel()
    n = side * side
    m = (n + 3) // 4 * 4  # rows n to m are zeros
    size = groups.shape[1]
    patches = np.zeros((2 * m, size), np.float32)  # P above Y
    means = np.empty(2 * m, np.float32)
    system, products = np.empty((m, m), np.float32), np.empty((m, m), np.float32)
    clean = np.empty((m, size), np.float32)
    weighted = np.empty((2 * m, size), np.float32) if flat_factors.size else patches
    for g in range(groups.shape[0]):
        corners = groups[g]
        gather(flat_pilot, width, side, corners, 0, patches)
        gather(flat_current, width, side, corners, m, patches)
        subtract_means(patches, means)
        power = group_power(flat_factors, corners)
        deviation = sigma * np.sqrt(power)
        removed = squared_difference(flat_noisy, flat_current, width, side, corners) / np.float32(n * size)
        t = max(np.float32(1) - np.sqrt(removed) / deviation, noise_kept + LEAST_NOISE)
        if whitening.size:
            multiply(whitening, 0, patches[:m], clean)
            patches[:m] = clean
        if flat_factors.size:
            for k in range(size):
                weight = np.sqrt(power) / flat_factors[corners[k]]
                for j in range(m):
                    weighted[j, k] = weight * patches[j, k]
                    weighted[m + j, k] = weight * weight * patches[m + j, k]
        inner_products(weighted[:m], weighted[:m], True, system)
        trace = np.float32(0)
        for j in range(m):
            trace += system[j, j]
        power = np.float32(n) * (t * deviation) ** 2
        penalty = max(strength[0] * power, LEAST_RIDGE * trace)
        for j in range(m):
            system[j, j] += penalty
        share = np.float32(1) / np.sqrt(np.float32(1) + trace / (np.float32(n) * penalty))
        combine(patches[:m], weighted[m:], system, products, clean)
        damp_mean(means, n, strength[1] * power / np.float32(size))
        kept = noise_kept / t
        for j in range(n):
            for k in range(size):
                clean[j, k] += means[j]
                patches[j, k] = clean[j, k] + kept * (patches[m + j, k] + means[m + j] - clean[j, k])
        scatter(clean, share, width, side, corners, flat_estimate)
        scatter(patches, share, width, side, corners, flat_remaining)
        for k in range(size):
            flat_weights[corners[k]] += share


@compiled(fastmath=FAST)
def principal_axes(moments, axes):
    """Fill the columns of `axes` (3, 3) with the eigenvectors of `moments`, which becomes diagonal (Jacobi)."""
    for i in range(3):
        for j in range(3):
            axes[i, j] = np.float64(i == j)
    for _ in range(TURNS):
        for p in range(2):
            for q in range(p + 1, 3):
                if moments[p, q] ** 2 > 1e-24 * moments[p, p] * moments[q, q]:
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
def colour_moments(patches, m, moments):
    """Fill moments[p, q] with the products of the first m rows of channels p and q, summed."""
    for p in range(3):
        for q in range(p, 3):
            total = np.float32(0)
            for j in range(m):
                for k in range(patches.shape[2]):
                    total += patches[p, j, k] * patches[q, j, k]
            moments[p, q] = total
            moments[q, p] = total


@compiled(fastmath=FAST)
def gather_colours(noisy, current, pilot, corners, side, sigmas, patches, means, shares):
    """Gather the patches of pilot and current of each channel, in units of its noise, without their group means.

    patches: (3, 2 m, K); means: (3, 2 m); shares: (3,), of the noise that is still in current, at least what is there.
    """
    m = patches.shape[1] // 2
    width = current.shape[2]
    count = np.float32(side * side * corners.size)
    for c in range(3):
        gather(pilot[c].ravel(), width, side, corners, 0, patches[c])
        gather(current[c].ravel(), width, side, corners, m, patches[c])
        subtract_means(patches[c], means[c])
        removed = squared_difference(noisy[c].ravel(), current[c].ravel(), width, side, corners) / count
        shares[c] = max(np.float32(1) - np.sqrt(removed) / sigmas[c], shares[c])
        unit = np.float32(1) / sigmas[c]
        for j in range(2 * m):
            for k in range(corners.size):
                patches[c, j, k] *= unit


@compiled(fastmath=FAST)
def combine_axis(patches, axis, penalty, n, turned, system, products, combined, colours):
    """Add to `colours` (3, m, K) Y P' (P P' + penalty I)^-1 P of the patches (3, 2 m, K) along an axis (3,).

    turned: (2 m, K), system and products: (m, m), and combined: (m, K) are scratch.
    """
    a, b, c = np.float32(axis[0]), np.float32(axis[1]), np.float32(axis[2])
    for j in range(turned.shape[0]):
        for k in range(turned.shape[1]):
            turned[j, k] = a * patches[0, j, k] + b * patches[1, j, k] + c * patches[2, j, k]
    m = combined.shape[0]
    inner_products(turned[:m], turned[:m], True, system)
    for j in range(m):
        system[j, j] += penalty
    combine(turned[:m], turned[m:], system, products, combined)
    for j in range(n):
        for k in range(turned.shape[1]):
            colours[0, j, k] += a * combined[j, k]
            colours[1, j, k] += b * combined[j, k]
            colours[2, j, k] += c * combined[j, k]


@compiled(fastmath=FAST)
def scatter_colours(
    colours, patches, means, mean_noise, shares, sigmas, noise_kept, weight, side, corners, estimate, remaining
):
    """Add the denoised patches of all channels, and the same with the noise that is kept; the arrays are used up.

    mean_noise: what the noise of the group means counts. remaining: (3, h, w), or (0, h, w) where no noise is kept.
    """
    m = colours.shape[1]
    width = estimate.shape[2]
    for channel in range(3):
        sigma, kept = sigmas[channel], noise_kept / shares[channel]
        clean, own = colours[channel], patches[channel]
        noise = mean_noise * np.float32(side * side) * (shares[channel] * sigma) ** 2 / np.float32(corners.size)
        damp_mean(means[channel], side * side, noise)
        for j in range(side * side):
            mean, own_mean = means[channel, j], means[channel, m + j]
            for k in range(corners.size):
                clean[j, k] = sigma * clean[j, k] + mean
                own[j, k] = clean[j, k] + kept * (sigma * own[m + j, k] + own_mean - clean[j, k])
        scatter(clean, weight, width, side, corners, estimate[channel].ravel())
        if len(remaining):
            scatter(own, weight, width, side, corners, remaining[channel].ravel())


@compiled(fastmath=FAST)
def ridge_colours(noisy, current, pilot, groups, side, sigmas, strength, noise_kept, estimate, remaining, weights):
    """`ridge_groups` for white noise in three channels, along the axes of each group's own colours.

    noisy, current, pilot, estimate, remaining: (3, h, w) float32, remaining (0, h, w) where it is not wanted;
    sigmas: (3,); strength: as there. In units of the noise the channels are turned to the principal axes of the pilot's
    patches, worked on one by one, and turned back. Where P P' has a trace below FAINT times the penalty, only the group
    mean is kept: it would be damped to nearly nothing.
    All channels have the weight 1 / sqrt(1 + r), r the mean over the axes.
    """
    n = side * side
    m = (n + 3) // 4 * 4
    size = groups.shape[1]
    patches = np.zeros((3, 2 * m, size), np.float32)
    means = np.empty((3, 2 * m), np.float32)
    shares = np.empty(3, np.float32)
    moments, axes = np.empty((3, 3)), np.empty((3, 3))
    turned = np.empty((2 * m, size), np.float32)
    system, products = np.empty((m, m), np.float32), np.empty((m, m), np.float32)
    combined = np.empty((m, size), np.float32)
    colours = np.empty((3, m, size), np.float32)
    flat_weights = weights.ravel()
    for g in range(groups.shape[0]):
        corners = groups[g]
        shares[:] = noise_kept + LEAST_NOISE
        gather_colours(noisy, current, pilot, corners, side, sigmas, patches, means, shares)
        colour_moments(patches, m, moments)
        principal_axes(moments, axes)
        colours[:] = 0
        excess = np.float32(0)
        for i in range(3):
            power = np.float32(0)
            for j in range(3):
                power += (np.float32(axes[j, i]) * shares[j]) ** 2
            trace = np.float32(moments[i, i])
            penalty = max(strength[0] * np.float32(n) * power, LEAST_RIDGE * trace)
            excess += trace / (np.float32(3 * n) * penalty)
            if trace > FAINT * penalty:
                combine_axis(patches, axes[:, i], penalty, n, turned, system, products, combined, colours)
        weight = np.float32(1) / np.sqrt(np.float32(1) + excess)
        known = means, strength[1], shares, sigmas, noise_kept, weight, side, corners
        scatter_colours(colours, patches, *known, estimate, remaining)
        for k in range(size):
            flat_weights[corners[k]] += weight
