"""Compiled kernels of filters along one axis: every value is the same sum, in the same order, whatever is around it."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np

from dstl_cli.base.kernels.compiled import compiled

FUSED = {"contract"}  # a product and a sum may be one operation


@compiled(fastmath=FUSED)
def filter_rows(values, taps, first, step, out, start, stride):
    """out[start + stride * i] = the sum over k of taps[k] * values[first + step * i + k], of all rows i of out."""
    for i in range((out.shape[0] - start + stride - 1) // stride):
        row, top = out[start + stride * i], first + step * i
        multiply(values[top], taps[0], row)
        for k in range(1, taps.size):
            add(values[top + k], taps[k], row)


@compiled(fastmath=FUSED)
def filter_columns(values, taps, first, step, out, start, stride):
    """The same along the columns: out[:, start + stride * j] from values[:, first + step * j + k]; step: 1 or 2."""
    length, count = values.shape[1], (out.shape[1] - start + stride - 1) // stride
    phases = np.zeros((step, length // step + 1), values.dtype)  # every step-th value
    line = np.empty(count, values.dtype)
    for y in range(out.shape[0]):
        for phase in range(step):
            for j in range((length - phase + step - 1) // step):
                phases[phase, j] = values[y, phase + step * j]
        for k in range(taps.size):
            place = first + k
            source = phases[place % step, place // step : place // step + count]
            if k == 0:
                multiply(source, taps[k], line)
            else:
                add(source, taps[k], line)
        for j in range(count):
            out[y, start + stride * j] = line[j]


@compiled(fastmath=FUSED)
def multiply(values, factor, out):
    """out = factor * values"""
    for x in range(out.size):
        out[x] = factor * values[x]


@compiled(fastmath=FUSED)
def add(values, factor, out):
    """out += factor * values"""
    for x in range(out.size):
        out[x] += factor * values[x]
