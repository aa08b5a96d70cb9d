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
def take_patches(image, corners, size, patches, means):
    """Copy the patches that begin at these pixels into columns, without their means.

    image: (h, w) contiguous floats; corners: (N,) numbers of pixels, row by row; patches: (size**2, N) float32 out;
    means: (N,) of the image's dtype out.
    """
    width = image.shape[1]
    pixels = image.reshape(-1)
    for c in range(corners.size):
        means[c] = 0
    for a in range(size):
        for b in range(size):
            values = pixels[a * width + b :]
            for c in range(corners.size):
                means[c] += values[corners[c]]
    for c in range(corners.size):
        means[c] /= size * size
    for a in range(size):
        for b in range(size):
            values = pixels[a * width + b :]
            line = patches[a * size + b]
            for c in range(corners.size):
                line[c] = values[corners[c]] - means[c]


@compiled()
def add_patches(patches, means, weights, corners, size, total, mass):
    """Add weight * (patch + mean) of every column to `total` where it was taken, and the weights to `mass`."""
    width = total.shape[1]
    totals, masses = total.reshape(-1), mass.reshape(-1)
    for a in range(size):
        for b in range(size):
            line = patches[a * size + b]
            values, weight = totals[a * width + b :], masses[a * width + b :]
            for c in range(corners.size):
                values[corners[c]] += weights[c] * (line[c] + means[c])
                weight[corners[c]] += weights[c]


@compiled()
def select(coefficients, costs, budget, highest, weights):
    """Zero the small coefficients of every column: those within the largest threshold whose loss fits the budget.

    coefficients: (m, M) float32. Dropping z_j costs costs[j] z_j^2; squares above `highest` are never dropped.
    weights: (M,) float32 out, 1 / (1 + kept).
    """
    m, count = coefficients.shape
    low = np.zeros(count, np.float32)
    high = np.full(count, highest, np.float32)
    middle = np.empty(count, np.float32)
    loss = np.empty(count, np.float32)
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
            fits = loss[c] <= budget
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
        weights[c] = ONE / loss[c]


@compiled()
def shrink(coefficients, guide, weights):
    """Multiply every coefficient, in units of its noise, by the Wiener gain g = q^2 / (q^2 + 1) of its guide q.

    coefficients, guide: (m, M) float32. weights: (M,) float32 out, 1 / (1 + sum of g^2).
    """
    m, count = coefficients.shape
    energy = np.ones(count, np.float32)
    for j in range(m):
        row = coefficients[j]
        clean = guide[j]
        for c in range(count):
            square = clean[c] * clean[c]
            gain = square / (square + ONE)
            row[c] *= gain
            energy[c] += gain * gain
    for c in range(count):
        weights[c] = ONE / energy[c]


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
