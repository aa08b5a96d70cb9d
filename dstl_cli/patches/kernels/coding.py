"""Compiled kernels: private, on plain buffers, each equal to a slow and obvious version in tests/naive.py.

Every row (patch) is worked on by itself, so results do not depend on how the rows were cut into calls.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.base.kernels.compiled import compiled


@compiled()
def keep_largest(rows, levels):
    """Zero all but the levels[i] entries of largest magnitude of row i, in place (ties: lowest index stays).

    rows: (N, n) float; levels: (N,) int64. Returns (energy left out, energy of all), summed over the rows.
    """
    count, n = rows.shape
    scratch = np.empty(n, rows.dtype)
    left_out = 0.0
    energy = 0.0
    for i in range(count):
        row = rows[i]
        total = 0.0
        for j in range(n):
            scratch[j] = abs(row[j])
            total += float(row[j]) * float(row[j])
        energy += total
        r = levels[i]
        if r >= n:
            continue
        if r <= 0:
            left_out += total
            row[:] = 0
            continue
        # Quickselect: afterwards scratch[r - 1] is the r-th largest magnitude.
        low, high = 0, n - 1
        while low < high:
            pivot = scratch[(low + high) // 2]
            a, b = low, high
            while a <= b:
                while scratch[a] > pivot:
                    a += 1
                while scratch[b] < pivot:
                    b -= 1
                if a <= b:
                    scratch[a], scratch[b] = scratch[b], scratch[a]
                    a += 1
                    b -= 1
            if r - 1 <= b:
                high = b
            elif r - 1 >= a:
                low = a
            else:
                break
        threshold = scratch[r - 1]
        above = 0
        for j in range(n):
            above += abs(row[j]) > threshold
        ties = r - above
        for j in range(n):
            magnitude = abs(row[j])
            if magnitude > threshold:
                continue
            if magnitude == threshold and ties > 0:
                ties -= 1
                continue
            left_out += float(row[j]) * float(row[j])
            row[j] = 0
    return left_out, energy


@compiled(fastmath={"reassoc", "contract", "nsz"})
def tail_below(squares, threshold):
    """Energy of the squares at or below the threshold, and how many are above it."""
    energy = np.float32(0)
    above = np.int32(0)
    for j in range(squares.size):
        q = squares[j]
        energy += q if q <= threshold else np.float32(0)
        above += np.int32(q > threshold)
    return energy, above


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def square(row, squares):
    """Fill `squares` with those of the row; return their sum and the largest."""
    energy = np.float32(0)
    largest = np.float32(0)
    for j in range(row.size):
        q = row[j] * row[j]
        squares[j] = q
        energy += q
        largest = max(largest, q)
    return energy, largest


@compiled()
def leave_out(rows, limit, most, counts):
    """Zero, in place, the fewest largest entries of each row that bring the energy left to `limit` or below.

    rows: (N, n) float32, afterwards the coefficients left out; at most `most` entries a row are taken;
    counts: (N,) int32, how many were. No sort: the threshold is bracketed by bisection on a logarithmic scale,
    then the few entries within the bracket are taken one by one (ties: lowest index first).
    """
    total_rows, n = rows.shape
    squares = np.empty(n, np.float32)
    for i in range(total_rows):
        row = rows[i]
        energy, largest = square(row, squares)
        if energy <= limit or most <= 0:
            counts[i] = 0
            continue
        # At `high` too much is left out, at `low` little enough (or `most` entries are taken).
        high = largest
        low = np.float32(limit / n * 0.999)
        tail, above = tail_below(squares, low)
        if not (tail <= limit or above >= most):
            low = np.float32(0)
        high_tail, high_above = energy, np.int32(0)
        for _ in range(12):
            middle = np.float32(np.sqrt(low) * np.sqrt(high)) if low > 0 else high * np.float32(0.25)
            if not low < middle < high:
                break
            tail, above = tail_below(squares, middle)
            if tail <= limit or above >= most:
                low = middle
                if above - high_above <= 1:
                    break
            else:
                high, high_tail, high_above = middle, tail, above
        for j in range(n):
            if squares[j] > high:
                row[j] = 0
        taken = high_above
        while taken < most and high_tail > limit:
            best = -1
            value = np.float32(-1)
            for j in range(n):
                q = squares[j]
                if q <= high and q > value and row[j] != 0:
                    value = q
                    best = j
            if best < 0:
                break
            row[best] = 0
            squares[best] = 0
            high_tail, above = tail_below(squares, high)  # summed anew: a difference would lose the small ones
            taken += 1
        counts[i] = taken


@compiled()
def leave_out_weighted(rows, products, weights, limit, most, counts):
    """Take entries of each row r, largest first, until r' M r <= limit or counts reaches `most`, in place.

    rows: (N, n) float32, the coefficients still left out; products: (N, n) float32, M r of each row;
    weights: M, (n, n) float32 symmetric; counts: (N,) int32, how many had been taken before.
    Taking entry j changes the error by -2 r_j (M r)_j + r_j^2 M_jj.
    """
    total_rows, n = rows.shape
    for i in range(total_rows):
        row = rows[i]
        product = products[i]
        error = 0.0
        for j in range(n):
            error += float(row[j]) * float(product[j])
        taken = counts[i]
        while error > limit and taken < most:
            best = 0
            value = np.float32(-1)
            for j in range(n):
                magnitude = abs(row[j])
                if magnitude > value:
                    value = magnitude
                    best = j
            r = row[best]
            if r == 0:
                break
            error += float(r) * (float(r) * float(weights[best, best]) - 2.0 * float(product[best]))
            column = weights[best]
            for j in range(n):
                product[j] -= r * column[j]
            row[best] = 0
            taken += 1
        counts[i] = taken
