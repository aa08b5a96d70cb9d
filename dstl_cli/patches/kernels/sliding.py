"""Compiled kernels of the guided passes: private, on plain buffers, each with a slow twin in tests/naive_passes.py.

Patches are columns here: every loop runs along contiguous patches of one row of the picture, and what happens to a
patch does not depend on which others are in the call.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.patches.kernels.compiled import compiled

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
BLOCK = 256
HALVINGS = 10  # of the range of thresholds: then it is known to a thousandth


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

    image: (h, w) contiguous floats; corners: (N,) numbers of pixels, row by row; means: (N,) of the image's dtype;
    patches: (size**2, N) float32 out.
    """
    width = image.shape[1]
    pixels = image.reshape(-1)
    for a in range(size):
        for b in range(size):
            values = pixels[a * width + b :]
            line = patches[a * size + b]
            for c in range(corners.size):
                line[c] = values[corners[c]] - means[c]


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
def shrink(coefficients, guide, variances, weights):
    """Multiply every coefficient by the Wiener gain g = q^2 / (q^2 + v) of its guide q, v the variance of its column.

    coefficients, guide: (m, M) float32; variances: (M,) float32. weights: (M,) float32 out, 1 / (v (1 + sum of g^2)).
    """
    m, count = coefficients.shape
    energy = np.ones(count, np.float32)
    for j in range(m):
        row = coefficients[j]
        clean = guide[j]
        for c in range(count):
            square = clean[c] * clean[c]
            gain = square / (square + variances[c])
            row[c] *= gain
            energy[c] += gain * gain
    for c in range(count):
        weights[c] = ONE / (variances[c] * energy[c])


@compiled(fastmath={"reassoc", "contract", "nsz"})
def keep_above(coefficients, thresholds):
    """Zero the entries of each row whose magnitude is not above the row's threshold; energies that stay and of all."""
    kept_energy, energy = 0.0, 0.0
    for j in range(coefficients.shape[0]):
        row = coefficients[j]
        threshold = thresholds[j]
        for start in range(0, row.size, BLOCK):  # single precision is enough for so many
            kept, total = ZERO, ZERO
            for c in range(start, min(start + BLOCK, row.size)):
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
