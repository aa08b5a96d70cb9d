"""Operations on 8 or 16 numbers at a time, for kernels whose loops are too short for the compiler's own vectors.

Kernels call them like functions, with flat float32 arrays and places in them. They are written in LLVM's language, as
numba allows it; LLVM makes of them what the processor has. Numba is imported where a kernel is compiled.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-any-generics

from collections.abc import Callable
from typing import Any

LANES = 16  # of products
SHORT = 8  # of what is copied and added: rows of patches
ROWS = 4  # of a block of products
MOST_VECTORS = 4  # in a row of a block: all sums of a block stay in registers


class Operation:
    """What a kernel calls for machine instructions of its own: see `numba.extending.intrinsic`."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = define
        self._type: Any = None

    def __call__(self, *arguments: Any) -> None:
        """What happens outside of compiled kernels."""
        raise TypeError("Only compiled kernels can do this.")

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for where a kernel calls it."""
        if self._type is None:
            from numba.core.registry import cpu_target
            from numba.extending import intrinsic

            made = intrinsic(self.define)
            cpu_target.typing_context.refresh()
            self._type = cpu_target.typing_context.resolve_value_type(made)
        return self._type


@Operation
def copy_vector(typing, out, place, source, start):
    """out[place : place + 8] = source[start : start + 8]"""
    from numba import types

    def generate(context, builder, signature, values):
        target, origin = (_address(context, builder, signature, values, number) for number in (0, 2))
        _store(builder, _load(builder, origin, values[3], SHORT), target, values[1])
        return context.get_dummy_value()

    return types.void(out, types.uint64, source, types.uint64), generate


@Operation
def add_vector(typing, out, place, source, start, factor, count):
    """out[place : place + count] += factor * source[start : start + count], count <= 8; all eight are written."""
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, values):
        target, origin = (_address(context, builder, signature, values, number) for number in (0, 2))
        numbers = ir.Constant(ir.VectorType(ir.IntType(64), SHORT), list(range(SHORT)))
        wanted = builder.icmp_unsigned("<", numbers, _spread(builder, values[5], SHORT))
        before, found = _load(builder, target, values[1], SHORT), _load(builder, origin, values[3], SHORT)
        found = builder.select(wanted, found, ir.Constant(_vector(SHORT), None))  # 0 times what is no number is none
        added = _fused(builder, _spread(builder, values[4], SHORT), found, before)
        _store(builder, added, target, values[1])
        return context.get_dummy_value()

    return types.void(out, types.uint64, source, types.uint64, types.float32, types.uint64), generate


@Operation
def square_differences(typing, out, place, flat, first, second, step, count, planes, plane_step):
    """out[place + x] = the sum of (flat[first + x] - flat[second + x])^2 over rows of some planes, x < 16."""
    from numba import types
    from numba.core import cgutils

    def generate(context, builder, signature, values):
        target, numbers = (_address(context, builder, signature, values, number) for number in (0, 2))
        total = cgutils.alloca_once_value(builder, _vector(LANES)(None))
        with cgutils.for_range(builder, values[7]) as plane:
            above = builder.mul(plane.index, values[8])
            with cgutils.for_range(builder, values[6]) as row:
                offset = builder.add(above, builder.mul(row.index, values[5]))
                one, other = (_load(builder, numbers, builder.add(values[n], offset), LANES) for n in (3, 4))
                difference = builder.fsub(one, other)
                builder.store(_fused(builder, difference, difference, _read(builder, total)), total)
        _store(builder, _read(builder, total), target, values[1])
        return context.get_dummy_value()

    index = types.uint64
    return types.void(out, index, flat, index, index, index, index, index, index), generate


@Operation
def sum_neighbours(typing, out, place, source, start, count):
    """out[place + x] = the sum of source[start + x : start + x + count], x < 16."""
    from numba import types
    from numba.core import cgutils

    def generate(context, builder, signature, values):
        target, origin = (_address(context, builder, signature, values, number) for number in (0, 2))
        total = cgutils.alloca_once_value(builder, _vector(LANES)(None))
        with cgutils.for_range(builder, values[4]) as loop:
            read = _load(builder, origin, builder.add(values[3], loop.index), LANES)
            builder.store(builder.fadd(_read(builder, total), read), total)
        _store(builder, _read(builder, total), target, values[1])
        return context.get_dummy_value()

    return types.void(out, types.uint64, source, types.uint64, types.uint64), generate


@Operation
def multiply_block(
    typing, out, place, out_step, left, corner, row_step, inner_step, right, start, right_step, inner, columns, subtract
):
    """out[r, j] = the sum over k < inner of left[r, k] * right[k, j], or with `subtract` out[r, j] minus that.

    r < 4, j < columns, a multiple of 16, inner > 0. The first numbers are at `place`, `corner` and `start`; rows of out
    and right are out_step and right_step apart, rows and columns of left row_step and inner_step. Columns of `right`
    may become those of `out` that they are. Steps may be 0.
    """
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context, builder, signature, values):
        known = list(values)
        for number in (0, 3, 7):
            known[number] = _address(context, builder, signature, values, number)
        known[12] = context.get_value_as_argument(builder, types.boolean, values[12])
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in known])
        function = cgutils.get_or_insert_function(builder.module, kind, "dstl_multiply_block")
        if function.is_declaration:
            _define_blocks(function)
        builder.call(function, known)
        return context.get_dummy_value()

    index = types.uint64
    known = (out, index, index, left, index, index, index, right, index, index, index, index, types.boolean)
    return types.void(*known), generate


def _define_blocks(function: Any) -> None:
    """The body of `multiply_block`, once for all calls: columns in blocks of as many vectors as possible."""
    from llvmlite import ir

    function.linkage = "internal"  # fastmath of the module that it is in changes it: none may be taken for another
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block())
    whole = ir.IntType(64)
    columns = function.args[11]
    before, head, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(head)
    builder.position_at_end(head)
    done = builder.phi(whole)
    done.add_incoming(whole(0), before)
    left = builder.udiv(builder.sub(columns, done), whole(LANES))
    blocks = [builder.append_basic_block() for _ in range(MOST_VECTORS)]
    choice = builder.switch(left, blocks[-1])
    choice.add_case(whole(0), end)
    for count, block in enumerate(blocks, 1):
        if count < MOST_VECTORS:
            choice.add_case(whole(count), block)
        builder.position_at_end(block)
        _emit_block(builder, function.args, done, count)
        done.add_incoming(builder.add(done, whole(count * LANES)), builder.block)
        builder.branch(head)
    builder.position_at_end(end)
    builder.ret_void()


def _emit_block(builder: Any, values: Any, done: Any, vectors: int) -> None:
    """A loop that reads `vectors` of one row and a number of each of four, and adds their products to sums."""
    from llvmlite import ir

    out, place, out_step, left, corner, row_step, inner_step, right, start, right_step, inner, _, subtract = values
    whole, kind = ir.IntType(64), _vector(LANES)
    before, body, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    rows = [builder.add(corner, builder.mul(row_step, whole(r))) for r in range(ROWS)]
    starts = [builder.add(builder.add(start, done), whole(LANES * v)) for v in range(vectors)]
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(whole)
    k.add_incoming(whole(0), before)
    sums = [builder.phi(kind) for _ in range(ROWS * vectors)]
    read = [_load(builder, right, builder.add(first, builder.mul(k, right_step)), LANES) for first in starts]
    offset = builder.mul(k, inner_step)
    added = []
    for r, row in enumerate(rows):
        factor = _spread(builder, _read(builder, builder.gep(left, [builder.add(row, offset)])), LANES)
        added += [_fused(builder, factor, read[v], sums[r * vectors + v]) for v in range(vectors)]
    for total, new in zip(sums, added, strict=True):
        total.add_incoming(ir.Constant(kind, None), before)
        total.add_incoming(new, body)
    following = builder.add(k, whole(1))
    k.add_incoming(following, body)
    builder.cbranch(builder.icmp_unsigned("<", following, inner), body, end)
    builder.position_at_end(end)
    less = builder.icmp_unsigned("!=", subtract, subtract.type(0))
    for r in range(ROWS):
        first = builder.add(builder.add(place, done), builder.mul(out_step, whole(r)))
        for v in range(vectors):
            target, total = builder.add(first, whole(LANES * v)), added[r * vectors + v]
            with builder.if_else(less) as (then, otherwise):
                with then:
                    _store(builder, builder.fsub(_load(builder, out, target, LANES), total), out, target)
                with otherwise:
                    _store(builder, total, out, target)


def _vector(lanes: int) -> Any:
    from llvmlite import ir

    return ir.VectorType(ir.FloatType(), lanes)


def _address(context, builder, signature, values, number):
    """Where the numbers of an array are."""
    return context.make_array(signature.args[number])(context, builder, values[number]).data


def _vector_at(builder, pointer, place, kind):
    return builder.bitcast(builder.gep(pointer, [place]), kind.as_pointer())


def _load(builder, pointer, place, lanes):
    return _read(builder, _vector_at(builder, pointer, place, _vector(lanes)))


def _read(builder, pointer):
    read = builder.load  # from memory
    return read(pointer, align=4)


def _store(builder, value, pointer, place):
    builder.store(value, _vector_at(builder, pointer, place, value.type), align=4)


def _spread(builder, number, lanes):
    """The same number in every place of a vector."""
    from llvmlite import ir

    alone = builder.insert_element(ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined), number, _zero())
    return builder.shuffle_vector(alone, alone, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))


def _zero():
    from llvmlite import ir

    return ir.IntType(32)(0)


def _fused(builder, factor, vector, total):
    """factor * vector + total"""
    from llvmlite import ir
    from numba.core import cgutils

    kind = total.type
    name = f"llvm.fma.v{kind.count}f32"
    multiply = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(multiply, [factor, vector, total])
