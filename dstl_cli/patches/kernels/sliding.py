"""Compiled kernels of the guided passes: private, on plain buffers, each with a slow twin in tests/naive_passes.py.

Patches are columns here: every loop runs along contiguous patches of one row of the picture, and what happens to a
patch does not depend on which others are in the call. Both passes take BLOCK patches at a time from the picture to the
sums, in memory that stays in the cache. Coefficients that are zero in all of a block are left out of the products.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.base.kernels.compiled import compiled
from dstl_cli.base.kernels.vectors import Operation

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
BLOCK = 64  # patches worked on at a time ...
ROWS = 5  # ... and coefficients of theirs, or pixels, that are summed at a time
ENERGIES = 256  # squares that are added in single precision
HALVINGS = 10  # of the range of thresholds: then it is known to a thousandth
LEAST_GAIN = np.float32(0.005)  # smaller ones count as none


@Operation
def sum_rows(typing_context, matrix, rows, first, terms, columns, out):
    """Fill ROWS rows of `out`, from place `first` of `rows` on: part of `product`, which has the other arguments.

    Where there are no more rows, the last one is summed again.
    """
    from numba.core import types

    def generate(context, builder, signature, arguments):
        parts = zip(signature.args, arguments, strict=True)
        known = [
            context.make_array(kind)(context, builder, value) if kind is not first else value for kind, value in parts
        ]
        write_sums(builder, *known)
        return context.get_dummy_value()

    return types.void(matrix, rows, first, terms, columns, out), generate


def write_sums(builder, matrix, rows, first, terms, columns, out):
    """The instructions of `sum_rows`: the sums stay in registers, of which there are as many as they need."""
    from llvmlite import binding, ir
    from numba.core import cgutils

    lanes, vectors = (16, 4) if binding.get_host_cpu_features().get("avx512f", False) else (8, 2)
    read, write = builder.load, builder.store
    whole, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), lanes)
    nothing = ir.Constant(vector, ir.Undefined)
    first_lane = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)

    def constant(number):
        return ir.Constant(whole, number)

    def row_of(array, number, column=0):
        step = builder.udiv(cgutils.unpack_tuple(builder, array.strides, 2)[0], constant(4))  # bytes of a number
        return builder.gep(builder.gep(array.data, [builder.mul(number, step)]), [constant(column)])

    def lanes_at(pointer, number):
        return builder.bitcast(builder.gep(pointer, [constant(lanes * number)]), vector.as_pointer())

    last = builder.sub(cgutils.unpack_tuple(builder, rows.shape, 1)[0], constant(1))
    places = [builder.add(first, constant(i)) for i in range(ROWS)]
    places = [builder.select(builder.icmp_signed("<", place, last), place, last) for place in places]
    numbers = [read(builder.gep(rows.data, [place])) for place in places]
    factors = [row_of(matrix, number) for number in numbers]
    for column in range(0, BLOCK, lanes * vectors):
        zero = ir.Constant(vector, [0.0] * lanes)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(vectors)] for _ in range(ROWS)]
        with cgutils.for_range(builder, cgutils.unpack_tuple(builder, terms.shape, 1)[0]) as loop:
            term = read(builder.gep(terms.data, [loop.index]))
            values = [read(lanes_at(row_of(columns, term, column), v), align=4) for v in range(vectors)]
            for own, totals in zip(factors, sums, strict=True):
                one = builder.insert_element(nothing, read(builder.gep(own, [term])), ir.Constant(ir.IntType(32), 0))
                every = builder.shuffle_vector(one, nothing, first_lane)
                for value, total in zip(values, totals, strict=True):
                    more = builder.fmul(every, value, flags=("contract",))
                    write(builder.fadd(read(total), more, flags=("contract",)), total)
        for number, totals in zip(numbers, sums, strict=True):
            for v, total in enumerate(totals):
                write(read(total), lanes_at(row_of(out, number, column), v), align=4)


@compiled()
def product(matrix, rows, terms, columns, out):
    """Fill the given rows of `out` with those of the matrix times `columns`, the sum over the given terms alone.

    matrix: (m, n) float32; rows, terms: numbers of its rows and columns; columns: (n, BLOCK), out: (m, BLOCK) float32.
    """
    for first in range(0, rows.size, ROWS):
        sum_rows(matrix, rows, first, terms, columns, out)


@compiled(error_model="numpy")
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


@compiled(inline="always", error_model="numpy")
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


@compiled(inline="always")
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


@compiled(inline="always", error_model="numpy")
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


@compiled(inline="always", error_model="numpy")
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


@compiled(inline="always")
def rows_in_use(values, numbers):
    """The numbers of the rows that are not zero everywhere, in the first places of `numbers`, and how many they are."""
    found = 0
    for j in range(values.shape[0]):
        row, count = values[j], 0
        for c in range(row.size):
            count += row[c] != ZERO
        if count > 0:
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
    """Add weighted patches to `total`; the weighted means and the weights become heights for `add_squares`."""
    add_patches(patches, weights, corners, size, total)
    for height in range(2):
        places = heights[height].reshape(-1)
        for c in range(corners.size):
            places[corners[c]] = weights[c] * (means[c] if height == 0 else 1)


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
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
def add_kept(coefficients, thresholds, patches, cross):
    """cross += X' Y of the coefficients X (N, m) above the thresholds (m,) of their columns; energies of X and of all.

    patches Y: (N, at least m) float32; those of few coefficients, as they are, cost far less than a product.
    """
    kept_energy, energy = 0.0, 0.0
    places = np.empty(coefficients.shape[1], np.intp)
    for n in range(coefficients.shape[0]):
        row, patch = coefficients[n], patches[n]
        kept, total, count = ZERO, ZERO, 0
        for j in range(row.size):
            total += row[j] * row[j]
        for j in range(row.size):  # without branches
            places[count] = j
            count += abs(row[j]) > thresholds[j]
        for place in places[:count]:
            kept += row[place] * row[place]
            add_multiple(row[place], patch, cross[place])
        kept_energy += float(kept)
        energy += float(total)
    return kept_energy, energy


@compiled(inline="always", fastmath={"contract"})
def add_multiple(factor, values, out):
    """out += factor * values"""
    for k in range(out.size):
        out[k] += factor * values[k]


@compiled()
def clip_patches(patches, means, low, high):
    """Clip patch + mean to low ... high, in place; patches: (n, N) float32, means: (N,)."""
    for j in range(patches.shape[0]):
        row = patches[j]
        for c in range(row.size):
            row[c] = min(max(row[c], low - means[c]), high - means[c])
