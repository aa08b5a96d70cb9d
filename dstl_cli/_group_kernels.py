"""Compiled kernels of groups: find similar patches, denoise them together, add them up.

Each is equal to a slow and obvious version in tests/naive_groups.py. A kernel sees one part of the picture at a time,
in float32, and adds to sums of that part only. A patch is named by the corner it begins at: row * width + column.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli._kernels import compiled

FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinities and NaN keep their meaning

FAR = np.float32(3e38)  # the distance of patches that are not in the picture
NEAREST = np.float32(-1)  # the distance of the reference patch to itself: before all others
LARGEST_BITS = np.int32(0x7F800000)  # above those of any finite float
STEADY = np.float32(1e-6)  # share of a matrix' trace that its diagonal is raised by at least: float32 can solve that
LEAST_NOISE = np.float32(1e-3)  # a pass has at least this share of the noise to remove


@compiled(fastmath=FAST)
def squared_distances(planes, first, second, width, side, count, columns, out):
    """Fill out[x] with the squared distance of the patches at first + x and second + x, x < count.

    planes: (channels, h * w). The column sums of squared differences serve all pairs; `columns` is scratch for
    count + side - 1 of them.
    """
    for x in range(count + side - 1):
        columns[x] = 0
    for channel in range(planes.shape[0]):
        flat = planes[channel]
        for i in range(side):
            a = np.uint64(first + i * width)
            b = np.uint64(second + i * width)
            for x in range(count + side - 1):
                u = np.uint64(x)
                difference = flat[a + u] - flat[b + u]
                columns[x] += difference * difference
    for x in range(count):
        out[x] = 0
    for j in range(side):
        for x in range(count):
            out[x] += columns[np.uint64(x + j)]


@compiled()
def smallest(bits, wanted, chosen):
    """Fill `chosen` with the indices of the `wanted` smallest entries, in order; ties: the lower index.

    bits: floats read as int32. Those of floats from 0 on are in the floats' order, those below 0 are before them; so
    the largest chosen one is found by bisection.
    """
    low = np.int32(-1)
    high = LARGEST_BITS
    while high - low > 1:
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
        if bits[i] < high or (bits[i] == high and ties > 0):
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
                    squared_distances(
                        planes, y * width + left + start, v * width + left + start + shift, width, side,
                        stop - start, sums, line,
                    )  # fmt: skip
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
    """Copy the patches at `corners` into the rows of `patches`, from column `first` on."""
    for k in range(corners.size):
        for i in range(side):
            a = np.uint64(corners[k] + i * width)
            b = np.uint64(first + i * side)
            for j in range(side):
                patches[k, b + np.uint64(j)] = flat[a + np.uint64(j)]


@compiled(fastmath=FAST)
def scatter(patches, weight, width, side, corners, flat):
    """Add weight times the rows of `patches` to the flat picture, each at its corner."""
    for k in range(corners.size):
        for i in range(side):
            a = np.uint64(corners[k] + i * width)
            b = np.uint64(i * side)
            for j in range(side):
                flat[a + np.uint64(j)] += weight * patches[k, b + np.uint64(j)]


@compiled(fastmath=FAST)
def multiply(a, inner, b, out):
    """out = a[:, :inner] @ b, four terms at a time."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            out[i, j] = 0
        for s in range(0, inner - 3, 4):
            a0, a1, a2, a3 = a[i, s], a[i, s + 1], a[i, s + 2], a[i, s + 3]
            for j in range(b.shape[1]):
                out[i, j] += (a0 * b[s, j] + a1 * b[s + 1, j]) + (a2 * b[s + 2, j] + a3 * b[s + 3, j])
        for s in range(inner // 4 * 4, inner):
            for j in range(b.shape[1]):
                out[i, j] += a[i, s] * b[s, j]


@compiled(fastmath=FAST)
def multiply_transposed(a, count, out):
    """out = a[:, :count]' @ a, four terms at a time."""
    for s in range(count):
        for j in range(a.shape[1]):
            out[s, j] = 0
    for i in range(0, a.shape[0] - 3, 4):
        for s in range(count):
            a0, a1, a2, a3 = a[i, s], a[i + 1, s], a[i + 2, s], a[i + 3, s]
            for j in range(a.shape[1]):
                out[s, j] += (a0 * a[i, j] + a1 * a[i + 1, j]) + (a2 * a[i + 2, j] + a3 * a[i + 3, j])
    for i in range(a.shape[0] // 4 * 4, a.shape[0]):
        for s in range(count):
            for j in range(a.shape[1]):
                out[s, j] += a[i, s] * a[i, j]


@compiled(fastmath=FAST)
def subtract_rows(flat, width, target, first, f0, f1, f2, f3, start):
    """Subtract f0 to f3 times the four rows from `first` on from the row `target`, from column `start` on."""
    a = np.uint64(target * width)
    b0 = np.uint64(first * width)
    b1 = np.uint64(first * width + width)
    b2 = np.uint64(first * width + 2 * width)
    b3 = np.uint64(first * width + 3 * width)
    for j in range(start, width):
        u = np.uint64(j)
        flat[a + u] -= (f0 * flat[b0 + u] + f1 * flat[b1 + u]) + (f2 * flat[b2 + u] + f3 * flat[b3 + u])


@compiled(fastmath=FAST)
def solve(system):
    """Turn [S | M] into [. | S^-1 M], in place. S: m x m, symmetric and positive definite, m a multiple of 4.

    Gaussian elimination without pivoting, four rows at a time; only the upper half of S is read: by symmetry row i
    is rid of column b by S[b, i] / S[b, b] times row b.
    """
    m, width = system.shape
    flat = system.ravel()
    for c in range(0, m, 4):
        for a in range(c, c + 4):
            for b in range(c, a):
                factor = system[b, a] / system[b, b]
                for j in range(a, width):
                    system[a, j] -= factor * system[b, j]
        r0, r1 = np.float32(1) / system[c, c], np.float32(1) / system[c + 1, c + 1]
        r2, r3 = np.float32(1) / system[c + 2, c + 2], np.float32(1) / system[c + 3, c + 3]
        for i in range(c + 4, m):
            subtract_rows(
                flat, width, i, c, system[c, i] * r0, system[c + 1, i] * r1, system[c + 2, i] * r2,
                system[c + 3, i] * r3, i,
            )  # fmt: skip
    for c in range(m - 4, -1, -4):
        for a in range(c + 3, c - 1, -1):
            for b in range(a + 1, c + 4):
                factor = system[a, b]
                for j in range(m, width):
                    system[a, j] -= factor * system[b, j]
            reciprocal = np.float32(1) / system[a, a]
            for j in range(m, width):
                system[a, j] *= reciprocal
        for i in range(c):
            subtract_rows(flat, width, i, c, system[i, c], system[i, c + 1], system[i, c + 2], system[i, c + 3], m)


@compiled(fastmath=FAST)
def haar_step(rows, k, l):  # noqa: E741
    """Orthonormal sum and difference of two rows, in place; its own inverse."""
    half = np.float32(0.5**0.5)
    for j in range(rows.shape[1]):
        a, b = rows[k, j], rows[l, j]
        rows[k, j] = (a + b) * half
        rows[l, j] = (a - b) * half


@compiled(fastmath=FAST)
def threshold_groups(noisy, groups, side, forward, backward, thresholds, total, weights):
    """Denoise groups by hard thresholds: code each patch, Haar along the group, threshold, and all the way back.

    noisy: (h, w) float32; groups: (G, K) int32 with K a power of two; forward (n, m), backward (m, n): patches as
    rows to codes and back, code 0 the patch mean, whose group mean is always kept; thresholds: (m,).
    Adds the patches to `total` (h, w), weighted by 1 / coefficients kept, and the weights to `weights` at the corners.
    """
    width = noisy.shape[1]
    size = groups.shape[1]
    patches = np.empty((size, side * side), np.float32)
    codes = np.empty((size, thresholds.size), np.float32)
    for g in range(groups.shape[0]):
        gather(noisy.ravel(), width, side, groups[g], 0, patches)
        multiply(patches, side * side, forward, codes)
        step = 1
        while step < size:
            for k in range(0, size, 2 * step):
                haar_step(codes, k, k + step)
            step *= 2
        mean = codes[0, 0]
        codes[0, 0] = 0
        kept = 1
        for k in range(size):
            for j in range(thresholds.size):
                keep = abs(codes[k, j]) > thresholds[j]
                kept += keep
                codes[k, j] = codes[k, j] if keep else np.float32(0)
        codes[0, 0] = mean
        step = size // 2
        while step > 0:
            for k in range(0, size, 2 * step):
                haar_step(codes, k, k + step)
            step //= 2
        multiply(codes, thresholds.size, backward, patches)
        weight = np.float32(1) / np.float32(kept)
        scatter(patches, weight, width, side, groups[g], total.ravel())
        for k in range(size):
            weights.ravel()[groups[g, k]] += weight


@compiled(fastmath=FAST)
def squared_difference(first, second, width, side, corners):
    """Sum of the squared differences of two flat pictures over the patches at `corners`."""
    total = np.float32(0)
    for k in range(corners.size):
        for i in range(side):
            a = np.uint64(corners[k] + i * width)
            for j in range(side):
                difference = first[a + np.uint64(j)] - second[a + np.uint64(j)]
                total += difference * difference
    return total


@compiled(fastmath=FAST)
def subtract_mean(rows, mean):
    """Subtract from all rows their mean, in place, and leave it in `mean`."""
    for j in range(mean.size):
        mean[j] = 0
    for k in range(rows.shape[0]):
        for j in range(mean.size):
            mean[j] += rows[k, j]
    for j in range(mean.size):
        mean[j] /= np.float32(rows.shape[0])
    for k in range(rows.shape[0]):
        for j in range(mean.size):
            rows[k, j] -= mean[j]


@compiled(fastmath=FAST)
def ridge_groups(noisy, current, pilot, groups, side, sigma, left, estimate, remaining, uses):
    """Denoise groups by a ridge combination of their patches, with the pilot in the place of the clean picture.

    noisy, current, pilot: (h, w) float32; current is `noisy` with part of its noise removed. t, the share of the noise
    of deviation sigma that is still in a group, follows from what was removed. With P and Y the patches of pilot and
    current as rows (K, n), without their group means, the denoised patches are
        P (P'P + n (t sigma)^2 I)^-1 P'Y  +  the group mean of current.
    Adds them to `estimate`, the same with the share `left` of the noise kept to `remaining`, and ones to `uses` at
    the corners.
    """
    width = current.shape[1]
    flat_noisy, flat_current, flat_pilot = noisy.ravel(), current.ravel(), pilot.ravel()
    flat_estimate, flat_remaining, flat_uses = estimate.ravel(), remaining.ravel(), uses.ravel()
    n = side * side
    m = (n + 3) // 4 * 4  # columns n to m are zeros
    size = groups.shape[1]
    patches = np.zeros((size, 2 * m), np.float32)  # [P | Y]
    mean = np.empty(2 * m, np.float32)
    system = np.empty((m, 2 * m), np.float32)  # [P'P | P'Y]
    factor = np.empty((m, m), np.float32)
    clean = np.empty((size, m), np.float32)
    for g in range(groups.shape[0]):
        corners = groups[g]
        gather(flat_pilot, width, side, corners, 0, patches)
        gather(flat_current, width, side, corners, m, patches)
        subtract_mean(patches, mean)
        removed = squared_difference(flat_noisy, flat_current, width, side, corners) / np.float32(n * size)
        t = max(np.float32(1) - np.sqrt(removed) / sigma, left + LEAST_NOISE)
        multiply_transposed(patches, m, system)
        trace = np.float32(0)
        for j in range(m):
            trace += system[j, j]
        penalty = max(np.float32(n) * (t * sigma) ** 2, STEADY * trace)
        for j in range(m):
            system[j, j] += penalty
        solve(system)
        for a in range(m):
            for j in range(m):
                factor[a, j] = system[a, m + j]
        multiply(patches, m, factor, clean)
        kept = left / t
        for k in range(size):
            for j in range(m):
                clean[k, j] += mean[m + j]
                patches[k, j] = clean[k, j] + kept * (patches[k, m + j] + mean[m + j] - clean[k, j])
            flat_uses[corners[k]] += 1
        scatter(clean, np.float32(1), width, side, corners, flat_estimate)
        scatter(patches, np.float32(1), width, side, corners, flat_remaining)
