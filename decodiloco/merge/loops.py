"""Deltas added up, block by block, and stepped, in compiled loops: the bits of the numpy form.

A block is a table of sixteen rows, whose columns the first four levels of its tree add up: lane by
lane, so any vector width gives the same sums. What is done to a patch of that table, a line of
the cache from each even row or from each odd one, is written as vectors, and its rows are unrolled
by Python: so sums stay in registers. Each CPU takes the vectors apart as it needs to.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from decodiloco.merge.exact import BLOCK_ELEMENTS
from decodiloco.merge.kept import FLOATS, STRICT, kept, read, written

ROWS = 16
ROW = BLOCK_ELEMENTS // ROWS  # the tree's first four levels meet elements this far apart
LANES = 16  # of each row at a time: a cache line of float32, which is then not wanted again
HALF = range(ROWS // 2)  # rows at a time: more sums than these do not fit into registers
PATCH = len(HALF) * LANES
PITCH = 2 * ROW  # from one even row to the next
LINE_BYTES = 64
_TO_READ, _INTO_SECOND_CACHE, _DATA = 0, 2, 1  # what `llvm.prefetch` is told

_ADDRESS, _FLAG = ir.IntType(64), ir.IntType(32)
_ADDRESS_BYTES, _DOUBLE_BYTES, _SINGLE_BYTES = 8, 8, 4


class _Vectors:
    """Writes the code of vectors of so many lanes, of float64 or of what becomes such."""

    def __init__(self, context, builder, lanes):
        self.context, self.builder, self.lanes = context, builder, lanes
        self.single = ir.VectorType(ir.FloatType(), lanes)
        self.double = ir.VectorType(ir.DoubleType(), lanes)

    def start(self, kind, array):
        """The address of an array's first element."""
        data = self.context.make_array(kind)(self.context, self.builder, array).data
        return self.builder.ptrtoint(data, _ADDRESS)

    def count(self, kind, array):
        return self.context.make_array(kind)(self.context, self.builder, array).nitems

    def at(self, address, count, size):
        """The address `count` times `size` bytes further on."""
        count = _ADDRESS(count) if isinstance(count, int) else count
        return self.builder.add(address, self.builder.mul(count, _ADDRESS(size)))

    def load(self, address, kind, align):
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=align)

    def store(self, value, address, align):
        to = self.builder.inttoptr(address, value.type.as_pointer())
        self.builder.store(value, to, align=align)

    def singles(self, address):
        return self.load(address, self.single, _SINGLE_BYTES)

    def doubles(self, address):
        return self.load(address, self.double, _DOUBLE_BYTES)

    def halves(self, address):
        """The float32 values of bf16 words, which are the upper halves of such."""
        words = self.load(address, ir.VectorType(ir.IntType(16), self.lanes), 2)
        wide = ir.VectorType(ir.IntType(32), self.lanes)
        upper = self.builder.shl(self.builder.zext(words, wide), wide([16] * self.lanes))
        return self.builder.bitcast(upper, self.single)

    def wide(self, singles):
        return self.builder.fpext(singles, self.double)

    def rounded(self, doubles):
        return self.builder.fptrunc(doubles, self.single)

    def all(self, scalar):
        """A vector of this value in each lane."""
        kind = ir.VectorType(scalar.type, self.lanes)
        first = self.builder.insert_element(kind(ir.Undefined), scalar, _FLAG(0))
        zeros = ir.VectorType(_FLAG, self.lanes)([0] * self.lanes)
        return self.builder.shuffle_vector(first, kind(ir.Undefined), zeros)

    def plus(self, x, y, total):
        """x y + total. Of float32 values x y is exact: fused or not, the bits are the same."""
        kind = ir.FunctionType(self.double, [self.double] * 3)
        name = f"llvm.fmuladd.v{self.lanes}f64"
        multiply_add = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(multiply_add, [x, y, total])

    def folded(self, factors, rows=HALF):
        """The sum of the products of each row's two factors, as the tree adds them up.

        Upper half onto lower half until one row is left: all even ones so, plus all odd ones so.
        """
        if len(rows) == 2:
            x, y = factors(rows[0])
            return self.plus(x, y, self.builder.fmul(*factors(rows[1])))
        even = self.folded(factors, rows[::2])
        return self.builder.fadd(even, self.folded(factors, rows[1::2]))

    def keep(self, value, address, odd):
        """Keeps what the even rows came to, or adds to it what the odd ones did."""
        with self.builder.if_else(self.builder.trunc(odd, ir.IntType(1))) as (then, otherwise):
            with then:
                both = self.builder.fadd(self.doubles(address), value)
                self.store(both, address, _DOUBLE_BYTES)
            with otherwise:
                self.store(value, address, _DOUBLE_BYTES)

    def prefetch(self, address, size):
        """Asks for these bytes, which are needed soon. It does no harm where there are none."""
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _FLAG, _FLAG, _FLAG])
        prefetch = self.builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        for line in range(0, size, LINE_BYTES):
            to = self.builder.inttoptr(self.at(address, line, 1), pointer)
            self.builder.call(
                prefetch, [to, _FLAG(_TO_READ), _FLAG(_INTO_SECOND_CACHE), _FLAG(_DATA)]
            )


class _Patches(_Vectors):
    """The patches that lie at one place in several deltas of an item type, one after the other."""

    def __init__(self, context, builder, addresses, item, first):
        super().__init__(context, builder, LANES)
        kind, array = addresses
        self.addresses, self.number = self.start(kind, array), self.count(kind, array)
        self.item, self.size, self.first = item, item.bitwidth // 8, first

    def delta(self, k):
        return self.load(self.at(self.addresses, k, _ADDRESS_BYTES), _ADDRESS, _ADDRESS_BYTES)

    def row(self, delta, row):
        """A row of a delta's patch."""
        address = self.at(self.at(delta, self.first, self.size), row * PITCH, self.size)
        return self.wide((self.halves if self.item == types.uint16 else self.singles)(address))


@intrinsic
def _weigh(typing, addresses, item, first, ahead, scales, out, own, lanes, odd):
    """out = sum of scales x, rounded once; own, lanes: the squares of that, and of each x, folded.

    Without `lanes` (None) those of each x are left out, and nothing is fetched ahead.
    """
    signature = types.none(addresses, item, first, ahead, scales, out, own, lanes, odd)

    def code(context, builder, signature, arguments):
        kinds, (_, _, first, ahead, *_, odd) = signature.args, arguments
        v = _Patches(context, builder, (kinds[0], arguments[0]), item, first)
        scales, out, own = (v.start(kinds[n], arguments[n]) for n in (4, 5, 6))
        lanes = None if kinds[7] == types.none else v.start(kinds[7], arguments[7])
        nothing = v.double([-0.0] * LANES)  # it changes nothing it is added to; 0.0 would a -0.0
        totals = [cgutils.alloca_once_value(builder, nothing) for _ in HALF]
        with cgutils.for_range(builder, v.number) as loop:
            delta = v.delta(loop.index)
            at_scale = v.at(scales, loop.index, _DOUBLE_BYTES)
            scale = v.all(v.load(at_scale, ir.DoubleType(), _DOUBLE_BYTES))

            def weighed(row):
                x = v.row(delta, row)
                builder.store(v.plus(scale, x, builder.load(totals[row])), totals[row])
                return x, x

            if lanes is None:
                for row in HALF:
                    weighed(row)
            else:
                v.prefetch(v.at(delta, ahead, v.size), PATCH * v.size)
                v.keep(v.folded(weighed), v.at(lanes, loop.index, ROW * _DOUBLE_BYTES), odd)

        def placed(row):
            total = v.rounded(builder.load(totals[row]))
            v.store(total, v.at(out, row * PITCH, _SINGLE_BYTES), _SINGLE_BYTES)
            return v.wide(total), v.wide(total)

        v.keep(v.folded(placed), own, odd)
        return context.get_dummy_value()

    return signature, code


@intrinsic
def _multiply(typing, addresses, item, first, y, lanes, odd):
    """lanes: the products of each x with y, folded."""
    signature = types.none(addresses, item, first, y, lanes, odd)

    def code(context, builder, signature, arguments):
        kinds, (_, _, first, _, _, odd) = signature.args, arguments
        v = _Patches(context, builder, (kinds[0], arguments[0]), item, first)
        y, lanes = (v.start(kinds[n], arguments[n]) for n in (3, 4))
        others = [v.wide(v.singles(v.at(y, row * PITCH, _SINGLE_BYTES))) for row in HALF]
        with cgutils.for_range(builder, v.number) as loop:
            delta = v.delta(loop.index)
            found = v.folded(lambda row: (v.row(delta, row), others[row]))
            v.keep(found, v.at(lanes, loop.index, ROW * _DOUBLE_BYTES), odd)
        return context.get_dummy_value()

    return signature, code


@njit(**STRICT)
def _halved(lanes):
    """The rest of the tree: what the lanes of one block come to."""
    half = ROW // 2
    while half:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    return lanes[0]


@njit(**STRICT)
def _add(addresses, item, scales, voices, history, out, sums):
    """The blocks of deltas of one item type.

    While half the rows of a block are added up, the other half, and then half of the next block,
    are fetched in order: rows read side by side, far apart, would come slowly.
    """
    count, single = len(addresses), np.float32(0)
    heard, lanes = np.empty(BLOCK_ELEMENTS, np.float32), np.empty((sums.shape[1], ROW))
    past = np.full(1, history.ctypes.data, np.uint64)
    for block in range(len(out) // BLOCK_ELEMENTS):
        start = block * BLOCK_ELEMENTS
        for odd in range(2):
            for at in range(0, ROW, LANES):
                within = odd * ROW + at
                first, done = start + within, at // LANES * PATCH
                ahead = start + (BLOCK_ELEMENTS if odd else ROW) + done // ROW * PITCH + done % ROW
                g, own = out[first:], lanes[count:, at:]
                _weigh(addresses, item, first, ahead, scales, g, own, lanes[:, at:], odd)
                if len(voices):  # the sum S by voices, <S, S> and <x, S>; see `direction.Listener`
                    s, own = heard[within:], lanes[count + 1 :, at:]
                    _weigh(addresses, item, first, 0, voices, s, own, None, odd)
                    _multiply(addresses, item, first, s, own[1:], odd)
                if len(history):
                    h, own = history[first:], lanes[2 * count + 2 :, at:]
                    _multiply(past, single, first, h, own, odd)
                    _multiply(addresses, item, first, h, own[1:], odd)
        for row in range(sums.shape[1]):
            sums[block, row] = _halved(lanes[row])


_ADD = [
    types.none(
        read(types.uint64), types.int64, read(types.float64), read(types.float64), FLOATS,
        written(types.float32), written(types.float64, 2),
    )
]  # fmt: skip


@kept(_ADD)
def add_blocks(addresses, item_bytes, scales, voices, history, out, sums):
    """Whole blocks of `compiled.add_piece`."""
    if item_bytes == 2:
        _add(addresses, np.uint16(0), scales, voices, history, out, sums)
    else:
        _add(addresses, np.float32(0), scales, voices, history, out, sums)


def _stepping(lanes):
    """The outer step on elements [first, last), so many at a time; 0, or NaN if not all is finite.

    b' = f32(mu b + g), d = f32(g + mu b'), p' = f32(p - lr d); see `outer.outer_chunk`.
    """

    @intrinsic
    def step(typing, first, last, parameter, momentum, gradient, stepped, factor, rate, decay):
        signature = types.float32(
            first, last, parameter, momentum, gradient, stepped, factor, rate, decay
        )

        def code(context, builder, signature, arguments):
            v = _Vectors(context, builder, lanes)
            first, last, *arrays, factor, rate, decay = arguments
            starts = [v.start(*pair) for pair in zip(signature.args[2:6], arrays, strict=True)]
            factor, mu, minus_lr = v.all(factor), v.all(decay), v.all(builder.fneg(rate))
            lost = cgutils.alloca_once_value(builder, v.single([0.0] * lanes))
            with cgutils.for_range_slice(builder, first, last, _ADDRESS(lanes)) as (i, _):
                at_p, at_b, at_g, at_stepped = (v.at(one, i, _SINGLE_BYTES) for one in starts)
                g = v.wide(builder.fmul(v.singles(at_g), factor))
                b = v.rounded(v.plus(mu, v.wide(v.singles(at_b)), g))
                d = v.rounded(v.plus(mu, v.wide(b), g))
                p = v.rounded(v.plus(minus_lr, v.wide(d), v.wide(v.singles(at_p))))
                v.store(b, at_g, _SINGLE_BYTES)
                v.store(p, at_stepped, _SINGLE_BYTES)
                nothing = builder.fmul(p, v.single([0.0] * lanes))  # NaN where p is not finite
                builder.store(builder.fadd(builder.load(lost), nothing), lost)
            total = ir.FloatType()(0.0)
            for lane in range(lanes):
                one = builder.extract_element(builder.load(lost), _FLAG(lane))
                total = builder.fadd(total, one)
            return total

        return signature, code

    return step


_step_lanes, _step_one = _stepping(LANES), _stepping(1)

_STEP = [
    types.boolean(
        FLOATS, FLOATS, written(types.float32), written(types.float32),
        types.float32, types.float64, types.float64,
    )
]  # fmt: skip


@kept(_STEP)
def step_all(parameter, momentum, gradient, stepped, factor, rate, decay):
    """`compiled.step_piece`: whether all parameters are finite."""
    count = len(parameter)
    whole = count - count % LANES
    arrays = parameter, momentum, gradient, stepped
    lost = _step_lanes(0, whole, *arrays, factor, rate, decay)
    lost += _step_one(whole, count, *arrays, factor, rate, decay)
    return lost == 0.0
