"""Compiled kernels of the guided passes: private, on plain buffers, each with a slow twin in tests/naive_passes.py.

Patches are columns here: every loop runs along contiguous patches of one row of the picture, and what happens to a
patch does not depend on which others are in the call. Both passes take BLOCK patches at a time from the picture to the
sums, in memory that stays in the cache. Most coefficients are zero in most blocks, and are left out of the products.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.patches.kernels.compiled import compiled, instructions

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
BLOCK = 64  # patches worked on at a time
ENERGIES = 256  # squares that are added in single precision
HALVINGS = 10  # of the range of thresholds: then it is known to a thousandth
LEAST_GAIN = np.float32(0.02)  # smaller ones count as none


@instructions
def product(typing_context, matrix, rows, terms, columns, out):
    """Fill the given rows of `out` with those of the matrix times `columns`, the sum over the given terms alone.

    matrix: (m, n) float32; rows, terms: numbers of its rows and columns; columns: (n, BLOCK), out: (m, BLOCK) float32.
    A few rows are summed at a time, in registers: numba itself makes no such loop.
    """
    from llvmlite import binding, ir
    from numba.core import cgutils, types

    wide = binding.get_host_cpu_features().get("avx512f", False)
    height, lanes, vectors = (5, 16, 4) if wide else (6, 8, 2)  # as many sums as there are registers
    real, whole = ir.FloatType(), ir.IntType(64)
    vector, places = ir.VectorType(real, lanes), ir.VectorType(ir.IntType(32), lanes)

    def at(builder, pointer, *steps):
        for step in steps:
            pointer = builder.gep(pointer, [ir.Constant(whole, step) if isinstance(step, int) else step])
        return pointer

    def vector_at(builder, pointer):
        return builder.bitcast(pointer, vector.as_pointer())

    def sums(builder, matrix_rows, terms, count, below, step):
        """The sums of some rows over all terms, for `vectors` vectors of columns."""
        zero = ir.Constant(vector, [0.0] * lanes)
        found = [[cgutils.alloca_once_value(builder, zero) for _ in range(vectors)] for _ in matrix_rows]
        with cgutils.for_range(builder, count) as loop:
            term = builder.load(at(builder, terms, loop.index))
            first = at(builder, below, builder.mul(term, step))
            parts = [builder.load(vector_at(builder, at(builder, first, lanes * v)), align=4) for v in range(vectors)]
            for row, totals in zip(matrix_rows, found, strict=True):
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), builder.load(at(builder, row, term)), ir.Constant(places.element, 0)
                )
                factor = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(places, [0] * lanes))
                for part, total in zip(parts, totals, strict=True):
                    more = builder.fmul(factor, part, flags=("contract",))
                    builder.store(builder.fadd(builder.load(total), more, flags=("contract",)), total)
        return found

    def generate(context, builder, signature, arguments):
        made = [context.make_array(kind)(context, builder, value) for kind, value in zip(signature.args, arguments, strict=True)]
        a, chosen, summed, right, result = made
        row_steps = [builder.udiv(cgutils.unpack_tuple(builder, part.strides, 2)[0], ir.Constant(whole, 4)) for part in (a, right, result)]
        count = cgutils.unpack_tuple(builder, summed.shape, 1)[0]
        last = builder.sub(cgutils.unpack_tuple(builder, chosen.shape, 1)[0], ir.Constant(whole, 1))
        stop = builder.add(last, ir.Constant(whole, 1))
        with cgutils.for_range_slice(builder, ir.Constant(whole, 0), stop, ir.Constant(whole, height), inc=True) as (first, _):
            numbers = []
            for i in range(height):  # the last row again where there are no more
                place = builder.add(first, ir.Constant(whole, i))
                place = builder.select(builder.icmp_signed("<", place, last), place, last)
                numbers.append(builder.load(at(builder, chosen.data, place)))
            matrix_rows = [at(builder, a.data, builder.mul(number, row_steps[0])) for number in numbers]
            for column in range(0, BLOCK, lanes * vectors):
                found = sums(builder, matrix_rows, summed.data, count, at(builder, right.data, column), row_steps[1])
                for number, totals in zip(numbers, found, strict=True):
                    for v, total in enumerate(totals):
                        place = at(builder, result.data, builder.mul(number, row_steps[2]), column + lanes * v)
                        builder.store(builder.load(total), vector_at(builder, place), align=4)
        return context.get_dummy_value()

    return types.void(matrix, rows, terms, columns, out), generate


@compiled()
def products(matrix, rows, terms, columns, out):
    """The same as a kernel."""
    product(matrix, rows, terms, columns, out)


@compiled()
def patch_means(image, size, means):
    """The mean of every patch, where its first pixel is; image, means out: (h, w) contiguous, of one dtype."""
    width = image.shape[1]
    columns = np.empty(width, image.dtype)
    for r in range(image.shape[0] - size + 1):
        columns[:] = 0
        for a in range(size):
            row = image[r + a]
            for c in range(width):
                columns[c] += row[c]
        found = means[r, : width - size + 1]
        found[:] = 0
        for b in range(size):
            shifted = columns[b:]
            for c in range(found.size):
                found[c] += shifted[c]
        for c in range(found.size):
            found[c] /= size * size


@compiled()
def take_patches(image, corners, size, means, patches):
    """Copy the patches that begin at these pixels into columns, without their means.

    image: (h, w) contiguous floats; corners: (N,) numbers of pixels, row by row; means: (N,) of the image's dtype, out;
    patches: (size**2, N) float32 out.
    """
    width = image.shape[1]
    pixels = image.reshape(-1)
    levels = pixels[corners]
    means[:] = 0
    for a in range(size):
        for b in range(size):
            values = pixels[a * width + b :]
            line = patches[a * size + b]
            for c in range(corners.size):
                difference = values[corners[c]] - levels[c]  # small on high levels
                line[c] = difference
                means[c] += difference
    for c in range(corners.size):
        means[c] /= size * size
    for j in range(size * size):
        line = patches[j]
        for c in range(corners.size):
            line[c] -= means[c]
    for c in range(corners.size):
        means[c] += levels[c]


@compiled()
def add_patches(patches, weights, corners, size, total):
    """Add weight * patch of every column to `total` where it was taken."""
    width = total.shape[1]
    totals = total.reshape(-1)
    for a in range(size):
        for b in range(size):
            line = patches[a * size + b]
            values = totals[a * width + b :]
            for c in range(corners.size):
                values[corners[c]] += weights[c] * line[c]


@compiled()
def add_squares(heights, size, total):
    """Add to `total` a square of size x size pixels of each height, with its first pixel where that is; both (h, w)."""
    width = total.shape[1]
    columns = np.empty(width, total.dtype)
    for r in range(total.shape[0]):
        columns[:] = 0
        for a in range(max(0, r - size + 1), r + 1):
            row = heights[a]
            for c in range(width):
                columns[c] += row[c]
        for b in range(size):
            found = total[r, b:]
            for c in range(width - b):
                found[c] += columns[c]


@compiled()
def select(coefficients, costs, budget, highest, variances, weights):
    """Zero the small coefficients of every column: those within the largest threshold whose loss fits the budget.

    coefficients: (m, M) float32. Dropping z_j costs costs[j] z_j^2; squares above `highest` are never dropped. Both
    limits are for noise of variance 1, and grow with the `variances` (M,) float32. weights: (M,) float32 out,
    1 / (variance * (1 + kept)).
    """
    m, count = coefficients.shape
    low = np.zeros(count, np.float32)
    high = np.empty(count, np.float32)
    middle = np.empty(count, np.float32)
    loss = np.empty(count, np.float32)
    for c in range(count):
        high[c] = highest * variances[c]
    for _ in range(HALVINGS):
        for c in range(count):
            middle[c] = HALF * (low[c] + high[c])
            loss[c] = ZERO
        for j in range(m):
            row = coefficients[j]
            cost = costs[j]
            for c in range(count):
                square = row[c] * row[c]
                loss[c] += cost * square if square <= middle[c] else ZERO
        for c in range(count):
            fits = loss[c] <= budget * variances[c]
            low[c] = middle[c] if fits else low[c]
            high[c] = high[c] if fits else middle[c]
    for c in range(count):
        loss[c] = ONE
    for j in range(m):
        row = coefficients[j]
        for c in range(count):
            stays = row[c] * row[c] > low[c]
            row[c] = row[c] if stays else ZERO
            loss[c] += ONE if stays else ZERO
    for c in range(count):
        weights[c] = ONE / (variances[c] * loss[c])


@compiled()
def gains_of(guide, variances, weights):
    """Turn every coefficient q of a guide into the Wiener gain q^2 / (q^2 + v), v the variance of its column, in place.

    Gains below LEAST_GAIN become 0. guide: (m, M) float32; variances: (M,) float32. weights: (M,) float32 out,
    1 / (v (1 + sum of the squared gains)).
    """
    m, count = guide.shape
    energy = np.ones(count, np.float32)
    for j in range(m):
        row = guide[j]
        for c in range(count):
            square = row[c] * row[c]
            gain = square / (square + variances[c])
            row[c] = gain if gain >= LEAST_GAIN else ZERO
            energy[c] += row[c] * row[c]
    for c in range(count):
        weights[c] = ONE / (variances[c] * energy[c])


@compiled()
def rows_in_use(values, numbers):
    """The numbers of the rows that are not zero everywhere, in the first places of `numbers`, and how many they are."""
    found = 0
    for j in range(values.shape[0]):
        row = values[j]
        most = ZERO
        for c in range(row.size):
            most = max(most, abs(row[c]))
        if most > ZERO:
            numbers[found] = j
            found += 1
    return found


@compiled()
def block_of(corners, variances, start, places, own):
    """BLOCK of the corners and variances from `start` on; where there are no more, the last one again."""
    for c in range(BLOCK):
        number = min(start + c, corners.size - 1)
        places[c] = corners[number]
        own[c] = variances[number]


@compiled()
def add_block(patches, means, weights, corners, size, heights, total):
    """Add weighted patches of a block to `total`; the weighted means and the weights become heights for `add_squares`."""
    add_patches(patches, weights, corners, size, total)
    for height in range(2):
        places = heights[height].reshape(-1)
        for c in range(corners.size):
            places[corners[c]] = weights[c] * (means[c] if height == 0 else 1)


@compiled()
def add_coded(image, corners, size, forward, backward, costs, budget, highest, variances, sums):
    """Add the estimates that the coder has of the patches which begin at these pixels, and their weights, to `sums`.

    image: (h, w) contiguous floats; forward: (m, n), backward: (n, m) float32; variances: (N,) float32 of the patches'
    noise; sums: (2, h, w) of the image's dtype: weighted estimates, weights. For the others see `select`.
    """
    m, n = forward.shape
    every_row, every_pixel, used = np.arange(m), np.arange(n), np.empty(m, np.int64)
    places, own, weights = np.empty(BLOCK, corners.dtype), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    means, patches = np.empty(BLOCK, image.dtype), np.empty((n, BLOCK), np.float32)
    coefficients, heights = np.empty((m, BLOCK), np.float32), np.zeros_like(sums)
    for start in range(0, corners.size, BLOCK):
        count = min(BLOCK, corners.size - start)
        block_of(corners, variances, start, places, own)
        take_patches(image, places, size, means, patches)
        product(forward, every_row, every_pixel, patches, coefficients)
        select(coefficients, costs, budget, highest, own, weights)
        kept = rows_in_use(coefficients, used)
        product(backward, every_pixel, used[:kept], coefficients, patches)
        add_block(patches, means, weights, places[:count], size, heights, sums[0])
    for number in range(2):
        add_squares(heights[number], size, sums[number])


@compiled()
def add_shrunk(image, guide, corners, size, forward, backward, variances, sums):
    """The same for estimates of every coefficient times the gain of the guide's."""
    m, n = forward.shape
    every_row, every_pixel, used = np.arange(m), np.arange(n), np.empty(m, np.int64)
    places, own, weights = np.empty(BLOCK, corners.dtype), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    means, patches = np.empty(BLOCK, image.dtype), np.empty((n, BLOCK), np.float32)
    coefficients, gains = np.empty((m, BLOCK), np.float32), np.empty((m, BLOCK), np.float32)
    heights = np.zeros_like(sums)
    for start in range(0, corners.size, BLOCK):
        count = min(BLOCK, corners.size - start)
        block_of(corners, variances, start, places, own)
        take_patches(guide, places, size, means, patches)
        product(forward, every_row, every_pixel, patches, gains)
        gains_of(gains, own, weights)
        kept = rows_in_use(gains, used)
        take_patches(image, places, size, means, patches)
        product(forward, used[:kept], every_pixel, patches, coefficients)
        for j in used[:kept]:
            for c in range(BLOCK):
                coefficients[j, c] *= gains[j, c]
        product(backward, every_pixel, used[:kept], coefficients, patches)
        add_block(patches, means, weights, places[:count], size, heights, sums[0])
    for number in range(2):
        add_squares(heights[number], size, sums[number])


@compiled(fastmath={"reassoc", "contract", "nsz"})
def keep_above(coefficients, thresholds):
    """Zero the entries of each row whose magnitude is not above the row's threshold; energies that stay and of all."""
    kept_energy, energy = 0.0, 0.0
    for j in range(coefficients.shape[0]):
        row = coefficients[j]
        threshold = thresholds[j]
        for start in range(0, row.size, ENERGIES):  # single precision is enough for so many
            kept, total = ZERO, ZERO
            for c in range(start, min(start + ENERGIES, row.size)):
                square = row[c] * row[c]
                stays = abs(row[c]) > threshold
                row[c] = row[c] if stays else ZERO
                kept += square if stays else ZERO
                total += square
            kept_energy += float(kept)
            energy += float(total)
    return kept_energy, energy


@compiled()
def clip_patches(patches, means, low, high):
    """Clip patch + mean to low ... high, in place; patches: (n, N) float32, means: (N,)."""
    for j in range(patches.shape[0]):
        row = patches[j]
        for c in range(row.size):
            row[c] = min(max(row[c], low - means[c]), high - means[c])
