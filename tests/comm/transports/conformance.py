"""What every transport must do, as one class of tests.

A transport's test file subclasses ``Conformance`` (and ``Failures``) and gives a fixture ``ranks``:

    ranks.run(n, fn)       call fn(group) on n ranks; the results by rank, or the first failure
    ranks.outcomes(n, fn)  the same, with every rank's Outcome (support.ranks)
    ranks.die()            called on a rank: end it at once, as kill -9 would

``fn`` may be a closure, and must not keep state outside its rank. Inputs are made from (rank, size,
dtype), so every rank can compute what all of them must get.
"""

from __future__ import annotations

import functools
import itertools
import threading

import ml_dtypes
import numpy as np
import pytest

from disttrain import context
from disttrain.comm.calls.reduce_ops import ReduceOp, premul_sum
from disttrain.distributed.equality.exchange import explain
from disttrain.distributed.equality.leaves import leaves
from disttrain.distributed.equality.ledger import entry, ledger_of
from disttrain.errors import (
    CollectiveMismatch,
    CommError,
    ConfigError,
    Deadlock,
    DTypeError,
    PeerFailed,
    ShapeError,
    ValuesDiffer,
    WaitTimeout,
)

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(t) for t in ("float16", "float32", "float64")] + [BF16]
INTS = [np.dtype(t) for t in ("int8", "int16", "int32", "int64", "uint8")]
BOOL, COMPLEX = np.dtype(bool), np.dtype(np.complex64)
DTYPES = [*FLOATS, *INTS, BOOL, COMPLEX]
WORLDS = [1, 2, 3, 4]
SMALL = [0, 1, 13, 5003]
LARGE = 600_011  # float32: 2.4 MB, several chunks of every kind

ARITHMETIC = [ReduceOp.SUM, ReduceOp.PRODUCT]
ORDER = [ReduceOp.MIN, ReduceOp.MAX]
BITS = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
HALF = premul_sum(0.5)
CARRYING = {  # calls on a group whose headers may carry values that must be equal
    "all_reduce": lambda g, x, later: g.all_reduce(x, async_op=later),
    "all_reduce_large": lambda g, x, later: g.all_reduce(np.zeros(1 << 16), async_op=later),
    "reduce": lambda g, x, later: g.reduce(x, 0, async_op=later),
    "broadcast": lambda g, x, later: g.broadcast(x, 1, async_op=later),
    "all_gather": lambda g, x, later: g.all_gather([x.copy() for _ in g.ranks], x, async_op=later),
    "reduce_scatter": lambda g, x, later: g.reduce_scatter(
        x, [x.copy() for _ in g.ranks], async_op=later
    ),
    "all_to_all": lambda g, x, later: g.all_to_all(
        [x.copy() for _ in g.ranks], [x.copy() for _ in g.ranks], async_op=later
    ),
    "gather": lambda g, x, later: g.gather(
        x, [x.copy() for _ in g.ranks] if g.rank == 1 else None, 1, async_op=later
    ),
    "barrier": lambda g, x, later: g.barrier(async_op=later),
    "coalesced": lambda g, x, later: g.all_reduce_coalesced([x, x.copy()], async_op=later),
    "split": lambda g, x, later: g.split(0),
}


def ops_of(dtype):
    if dtype == COMPLEX:
        return [*ARITHMETIC, ReduceOp.AVG]
    if dtype == BOOL:
        return [*ARITHMETIC, *ORDER, *BITS]
    if dtype in INTS:
        return [*ARITHMETIC, *ORDER, *BITS]
    return [*ARITHMETIC, *ORDER, ReduceOp.AVG, HALF]


def data(rank, n, dtype):
    """Small whole numbers, exact in every type; different on every rank."""
    x = (np.arange(n) * (rank + 2) + rank) % 5 + 1
    if dtype == BOOL:
        return x > 2
    if dtype == COMPLEX:
        return (x + 1j * ((x + rank) % 3)).astype(dtype)
    return x.astype(dtype)


_FOLD = {
    "SUM": np.add,
    "AVG": np.add,
    "PREMUL_SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def joined(fold, parts):
    """Neighbours first: pairs, pairs of pairs ...; what is left over joins last."""
    while len(parts) > 1:
        pairs = [fold(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def reduced(arrays, op):
    """The reduction, by its definition: as a balanced tree, narrow floats in float32."""
    dtype = arrays[0].dtype
    wide = np.float32 if dtype in (np.dtype(np.float16), BF16) else dtype
    parts = [a.astype(wide) for a in arrays]
    if op.factor is not None:
        parts = [p * np.asarray(op.factor, wide) for p in parts]
    total = joined(_FOLD[op.name], parts)
    if op.name == "AVG":
        total = total / np.asarray(len(arrays), wide)
    return total.astype(dtype)


def same(got, want, *what):
    assert got.dtype == want.dtype and got.shape == want.shape, what
    assert got.tobytes() == np.ascontiguousarray(want).tobytes(), (what, got[:8], want[:8])


def placed(group, values, kind):
    """``values`` in plain memory, in memory of the transport, or with gaps between."""
    if kind == "own":
        out = group.empty(values.shape, values.dtype)
    elif kind == "gaps":
        out = np.empty((*values.shape, 2), values.dtype)[..., 0]
    else:
        out = np.empty_like(values)
    out[...] = values
    return out


KINDS = ["plain", "own", "gaps"]


class Conformance:
    """Every verb on every kind of array."""

    worlds = WORLDS

    def pytest_generate_tests(self, metafunc):
        if "world" in metafunc.fixturenames:
            metafunc.parametrize("world", self.worlds)

    # -- reductions ---------------------------------------------------------------------------

    def test_all_reduce(self, ranks, world):
        def body(group):
            for dtype, n in itertools.product(DTYPES, SMALL):
                inputs = [data(r, n, dtype) for r in range(world)]
                for op in ops_of(dtype):
                    x = inputs[group.rank].copy()
                    assert group.all_reduce(x, op) is None
                    same(x, reduced(inputs, op), dtype, n, op)
            group.close()

        ranks.run(world, body)

    def test_all_reduce_each(self, ranks, world):
        """Together where all call it so; a rank that does them one by one meets it."""

        def body(group):
            for i, (dtype, n) in enumerate(itertools.product(DTYPES, (*SMALL, 5000))):
                kinds = [data(r, 3 * n + 1, dtype) for r in range(world)]
                cuts = [slice(0, n), slice(n, 3 * n), slice(3 * n, 3 * n + 1)]
                for op in ops_of(dtype):
                    parts = [kinds[group.rank][cut].copy() for cut in cuts]
                    if i % 3 and group.rank == i % world:
                        for part in parts:
                            group.all_reduce(part, op)
                    else:
                        group.all_reduce_each(parts, op)
                    for part, cut in zip(parts, cuts, strict=True):
                        same(part, reduced([whole[cut] for whole in kinds], op), dtype, n, op)
            group.close()

        ranks.run(world, body)

    def test_all_reduce_each_is_compared_one_by_one(self, ranks, world):
        def body(group):
            a, b = np.ones(3), np.ones(4)
            group.all_reduce_each([a, b])
            with pytest.raises(CollectiveMismatch):
                if group.rank:
                    group.all_reduce(a)
                    group.all_reduce(np.ones(5))
                else:
                    group.all_reduce_each([a, b])
            group.all_reduce_each([a, b])

        if world > 1:
            ranks.run(world, body)

    @pytest.mark.parametrize("kind", KINDS)
    def test_all_reduce_large(self, ranks, world, kind):
        def body(group):
            for dtype, op in [(np.dtype("f4"), ReduceOp.AVG), (BF16, ReduceOp.SUM)]:
                inputs = [data(r, LARGE, dtype) for r in range(world)]
                want = reduced(inputs, op)
                for async_op in (False, True):
                    x = placed(group, inputs[group.rank], kind)
                    work = group.all_reduce(x, op, async_op=async_op)
                    if async_op:
                        assert work.wait() is x
                    same(x, want, dtype, kind, async_op)
            group.close()

        ranks.run(world, body)

    def test_order_of_reduction_is_a_tree_over_ranks(self, ranks, world):
        """Random floats: the bits of a balanced tree over ranks, for every size and memory."""
        sizes = [5, 3071, 3072, 3073, 40_000, LARGE]
        inputs = {
            (r, n): np.random.default_rng(r).standard_normal(n).astype(np.float32)
            for r in range(world)
            for n in sizes
        }

        def body(group):
            for n, kind in itertools.product(sizes, ("plain", "own")):
                x = placed(group, inputs[group.rank, n], kind)
                group.all_reduce(x)
                want = joined(np.add, [inputs[r, n] for r in range(world)])
                same(x, want, n, kind)
            group.close()

        ranks.run(world, body)

    def test_ranks_may_differ_in_memory(self, ranks, world):
        """One rank's array lies in shared memory, another's does not, a third's has gaps."""
        inputs = [data(r, LARGE, np.dtype("f4")) for r in range(world)]

        def body(group):
            for shift in range(2):
                kind = KINDS[(group.rank + shift) % len(KINDS)]
                x = placed(group, inputs[group.rank], kind)
                group.all_reduce(x)
                same(x, reduced(inputs, ReduceOp.SUM))
                x = placed(group, inputs[group.rank], kind)
                group.broadcast(x, world - 1)
                same(x, inputs[world - 1])
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("n", [13, 30_003])
    def test_outputs_over_inputs(self, ranks, world, n):
        """What a rank gives may lie where it receives what another one gives."""
        give, total = lambda r: np.full(n, r + 1.0), world * (world + 1) / 2

        def hold(rows, values):
            same(np.array([[row.min(), row.max()] for row in rows]), np.array([values] * 2).T)

        def body(group):
            me, other = group.rank, (group.rank + 1) % world
            each = [r + 1.0 for r in range(world)]
            for async_op in (False, True, False):  # at first, memory is moved in other ways

                def run(verb, *args, how=async_op):
                    work = verb(*args, async_op=how)
                    return work and work.wait()

                outs = [np.zeros(n) for _ in range(world)]
                outs[other][:] = give(me)
                run(group.all_gather, outs, outs[other])
                hold(outs, each)
                flat = np.zeros((world, n))
                flat[other] = give(me)
                run(group.all_gather_single, flat.reshape(-1), flat[other])
                hold(flat, each)
                flat[:] = give(me)
                run(group.reduce_scatter_single, flat[other], flat.reshape(-1))
                hold([flat[other]], [total])
                outs = [give(me) for _ in range(world)]
                run(group.reduce_scatter, outs[other], outs)
                hold([outs[other]], [total])
                outs = [give(me) for _ in range(world)]
                run(group.gather, outs[-1], None if me else outs, 0)
                hold(outs if me == 0 else [give(r) for r in range(world)], each)
                outs = [give(r) for r in range(world)] if me == 0 else None
                into = np.zeros(n) if outs is None else outs[-1]
                run(group.scatter, into, outs, 0)
                hold([into], [me + 1.0])
                flat[:] = give(me)
                run(group.all_to_all_single, flat.reshape(-1), flat.reshape(-1))
                hold(flat, each)
                outs = [give(me) for _ in range(world)]
                run(group.all_to_all, outs[::-1], outs)
                hold(outs[::-1], each)
            group.close()

        ranks.run(world, body)

    def test_reduce(self, ranks, world):
        def body(group):
            for dtype, n in itertools.product(DTYPES, (*SMALL, 200_003)):
                inputs = [data(r, n, dtype) for r in range(world)]
                for root in {0, world - 1}:
                    x = inputs[group.rank].copy()
                    group.reduce(x, root)
                    want = (
                        reduced(inputs, ReduceOp.SUM) if group.rank == root else inputs[group.rank]
                    )
                    same(x, want, dtype, n, root)
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("kind", KINDS)
    def test_reduce_scatter(self, ranks, world, kind):
        def body(group):
            for dtype, n in itertools.product(DTYPES, (0, 1, 7, 3001, 150_001)):
                if n > 4000 and dtype != np.dtype("f4"):
                    continue
                inputs = [data(r, n * world, dtype) for r in range(world)]
                total = reduced(inputs, ReduceOp.SUM).reshape(world, n)
                x = placed(group, inputs[group.rank], kind)
                out = placed(group, np.zeros(n, dtype), kind)
                group.reduce_scatter_single(out, x)
                same(out, total[group.rank], dtype, n, "single")
                out = placed(group, np.zeros(n, dtype), kind)
                group.reduce_scatter(out, list(x.reshape(world, n)))
                same(out, total[group.rank], dtype, n, "list")
                if kind != "gaps":
                    piece = x.reshape(world, n)[group.rank]
                    group.reduce_scatter_single(piece, x)
                    same(piece, total[group.rank], dtype, n, "in place")
            group.close()

        ranks.run(world, body)

    def test_reduce_scatter_uneven(self, ranks, world):
        sizes = [3, 0, 70_001, 5][:world]

        def body(group):
            inputs = [[data(r + i, n, np.dtype("i4")) for i, n in enumerate(sizes)]
                      for r in range(world)]  # fmt: skip
            out = np.zeros(sizes[group.rank], np.int32)
            group.reduce_scatter(out, inputs[group.rank], ReduceOp.MAX)
            same(out, reduced([i[group.rank] for i in inputs], ReduceOp.MAX))
            group.close()

        ranks.run(world, body)

    # -- copies -------------------------------------------------------------------------------

    def test_broadcast(self, ranks, world):
        def body(group):
            for dtype, n in itertools.product(DTYPES, (*SMALL, LARGE)):
                if n == LARGE and dtype not in (np.dtype("f4"), BF16):
                    continue
                for root, kind in itertools.product({0, world - 1}, KINDS):
                    x = placed(group, data(group.rank, n, dtype), kind)
                    group.broadcast(x, root)
                    same(x, data(root, n, dtype), dtype, n, root, kind)
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("kind", KINDS)
    def test_all_gather(self, ranks, world, kind):
        def body(group):
            for dtype, n in itertools.product(DTYPES, (*SMALL, LARGE)):
                if n == LARGE and dtype != np.dtype("f4"):
                    continue
                x = placed(group, data(group.rank, n, dtype), kind)
                want = [data(r, n, dtype) for r in range(world)]
                out = placed(group, np.zeros((world, n), dtype), kind)
                group.all_gather_single(out, x)
                same(out, np.stack(want), dtype, n, "single")
                outs = [placed(group, np.zeros(n, dtype), kind) for _ in range(world)]
                group.all_gather(outs, x)
                for o, w in zip(outs, want, strict=True):
                    same(o, w, dtype, n, "list")
                if kind != "gaps":
                    out[...] = 0
                    out[group.rank] = x
                    group.all_gather_single(out, out[group.rank])
                    same(out, np.stack(want), dtype, n, "in place")
            group.close()

        ranks.run(world, body)

    def test_all_gather_uneven(self, ranks, world):
        sizes = [2, 300_000, 0, 41][:world]

        def body(group):
            outs = [np.zeros(n, np.int16) for n in sizes]
            group.all_gather(outs, data(group.rank, sizes[group.rank], np.dtype("i2")))
            for r, out in enumerate(outs):
                same(out, data(r, sizes[r], np.dtype("i2")), r)
            group.close()

        ranks.run(world, body)

    def test_all_to_all(self, ranks, world):
        def piece(a, b, n, dtype):
            return data(a * 7 + b, n, dtype)

        def body(group):
            me = group.rank
            for dtype, n in itertools.product(DTYPES, (0, 1, 9, 1500, 150_000)):
                if n == 150_000 and dtype != np.dtype("f4"):
                    continue
                want = np.concatenate([piece(r, me, n, dtype) for r in range(world)])
                x = np.concatenate([piece(me, r, n, dtype) for r in range(world)])
                out = np.zeros_like(x)
                group.all_to_all_single(out, x)
                same(out, want, dtype, n, "single")
                outs = [np.zeros(n, dtype) for _ in range(world)]
                group.all_to_all(outs, list(x.reshape(world, n)))
                same(np.concatenate(outs), want, dtype, n, "list")
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("kind", KINDS)
    def test_all_to_all_uneven(self, ranks, world, kind):
        def count(a, b, scale):
            return (3 * a + 5 * b + a * b) % 4 * scale

        def body(group):
            me = group.rank
            for scale in (1, 30_000):
                sends = [count(me, r, scale) for r in range(world)]
                recvs = [count(r, me, scale) for r in range(world)]
                pieces = [data(me * 7 + r, 2 * n, np.dtype("f8")) for r, n in enumerate(sends)]
                x = placed(group, np.concatenate(pieces).reshape(-1, 2), kind)
                out = placed(group, np.zeros((sum(recvs), 2)), kind)
                group.all_to_all_single(out, x, recvs, sends)
                want = [data(r * 7 + me, 2 * n, np.dtype("f8")) for r, n in enumerate(recvs)]
                same(out, np.concatenate(want).reshape(-1, 2), scale)
                outs = [np.zeros((n, 2)) for n in recvs]
                group.all_to_all(outs, [p.reshape(-1, 2) for p in pieces])
                same(np.concatenate(outs), np.concatenate(want).reshape(-1, 2), scale, "list")
            group.close()

        ranks.run(world, body)

    def test_gather_and_scatter(self, ranks, world):
        def body(group):
            me = group.rank
            for dtype, n in itertools.product(DTYPES, (0, 1, 11, 2500, 120_000)):
                if n == 120_000 and dtype != np.dtype("f4"):
                    continue
                root = n % world
                want = [data(r, n, dtype) for r in range(world)]
                outs = [np.zeros(n, dtype) for _ in range(world)] if me == root else None
                group.gather(want[me], outs, root)
                if me == root:
                    same(np.stack(outs), np.stack(want), dtype, n)
                out = np.zeros(n, dtype)
                group.scatter(out, want if me == root else None, root)
                same(out, want[me], dtype, n)
            group.close()

        ranks.run(world, body)

    def test_barrier(self, ranks, world):
        def body(group):
            for _ in range(3):
                assert group.barrier() is None
            group.barrier(async_op=True).wait()
            group.close()

        ranks.run(world, body)

    # -- async --------------------------------------------------------------------------------

    def test_async_operations_keep_their_order(self, ranks, world):
        def body(group):
            works, checks = [], []
            for i in range(12):
                n = (7, 5003, 90_001)[i % 3]
                inputs = [data(r + i, n, np.dtype("f4")) for r in range(world)]
                x = placed(group, inputs[group.rank], KINDS[i % 2])
                if i % 5 == 4:
                    group.all_reduce(x)
                    assert all(w.is_completed() for w in works)
                else:
                    works.append(group.all_reduce(x, async_op=True))
                checks.append((x, reduced(inputs, ReduceOp.SUM)))
            for work in reversed(works):
                work.wait()
            for i, (x, want) in enumerate(checks):
                same(x, want, i)
            group.close()

        ranks.run(world, body)

    def test_some_ranks_may_wait_where_others_do_not(self, ranks, world):
        """One operation, synchronous on some ranks and asynchronous on others."""

        def body(group):
            for i, n in enumerate((1, 7, 5003, 90_001) * 2):
                inputs = [data(r + i, n, np.dtype("f4")) for r in range(world)]
                x = placed(group, inputs[group.rank], KINDS[i % 2])
                if (group.rank + i) % 2:
                    group.all_reduce(x)
                else:
                    group.all_reduce(x, async_op=True).wait()
                same(x, reduced(inputs, ReduceOp.SUM), i)
            group.close()

        ranks.run(world, body)

    def test_every_verb_async(self, ranks, world):
        def body(group):
            me, n = group.rank, 6001
            inputs = [data(r, n * world, np.dtype("f4")) for r in range(world)]
            total, x = reduced(inputs, ReduceOp.SUM), inputs[me]
            a, b, c, d = (np.zeros((world, n * world), np.float32), np.zeros(n, np.float32),
                          np.zeros(n * world, np.float32), x.copy())  # fmt: skip
            e, f = x.copy(), np.zeros(n, np.float32)
            outs = list(np.zeros_like(a)) if me == 0 else None
            works = [
                group.all_gather_single(a, x, async_op=True),
                group.reduce_scatter_single(b, x, async_op=True),
                group.all_to_all_single(c, x, async_op=True),
                group.broadcast(d, 0, async_op=True),
                group.reduce(e, 0, async_op=True),
                group.gather(x, outs, 0, async_op=True),
                group.scatter(f, list(x.reshape(world, n)) if me == 0 else None, 0, async_op=True),
                group.barrier(async_op=True),
            ]
            for work in works:
                work.wait()
                assert work.is_completed() and work.exception() is None
            same(a, np.stack(inputs))
            same(b, total.reshape(world, n)[me])
            same(c, np.concatenate([i.reshape(world, n)[me] for i in inputs]))
            same(d, inputs[0])
            same(e, total if me == 0 else x)
            same(f, inputs[0].reshape(world, n)[me])
            if me == 0:
                same(np.stack(outs), np.stack(inputs))
            group.close()

        ranks.run(world, body)

    def test_work_then(self, ranks, world):
        def body(group):
            x = np.ones(5000)
            doubled = group.all_reduce(x, async_op=True).then(lambda y: y * 2)
            same(doubled.wait(), np.full(5000, 2.0 * world))
            failed = doubled.then(lambda y: y + "text")
            with pytest.raises(TypeError):
                failed.wait()
            group.close()

        ranks.run(world, body)

    def test_many_async_in_flight(self, ranks, world):
        """More than any table of headers holds."""

        def body(group):
            xs = [np.full(3, float(i)) for i in range(150)]
            works = [group.all_reduce(x, async_op=True) for x in xs]
            for i, (x, work) in enumerate(zip(xs, works, strict=True)):
                work.wait()
                same(x, np.full(3, float(i * world)))
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("ahead", [1, 2])
    def test_some_ranks_are_far_ahead(self, ranks, world, ahead):
        """They fill the table of headers before the others come: they wait, and accuse nobody."""

        def body(group):
            if group.rank >= ahead:
                context.sleep(0.4)
            xs = [np.full(3, float(i)) for i in range(150)]
            for work in [group.all_reduce(x, async_op=True) for x in xs]:
                work.wait()
            same(xs[149], np.full(3, 149.0 * world))
            group.close()

        ranks.run(world, body)

    # -- groups -------------------------------------------------------------------------------

    def test_split(self, ranks, world):
        def body(group):
            me = group.rank
            half = group.split(me % 2, key=-me)
            members = sorted([r for r in range(world) if r % 2 == me % 2], reverse=True)
            assert half.ranks == members and half.ranks[half.rank] == me
            for n in (3, 20_000):
                x = np.full(n, float(me))
                half.all_reduce(x)
                same(x, np.full(n, float(sum(members))))
            alone = half.split(None if me == 0 else me)
            assert (alone is None) == (me == 0)
            if alone is not None:
                assert alone.size == 1
                alone.close()
            half.close()
            group.close()

        ranks.run(world, body)

    def test_new_group(self, ranks, world):
        def body(group):
            me = group.rank
            chosen = list(range(world))[::-1][: max(1, world - 1)]
            sub = group.new_group(chosen)
            assert (sub is None) == (me not in chosen)
            if sub is not None:
                assert sub.group_rank(me) == sub.rank == chosen.index(me)
                x = np.array([me])
                sub.broadcast(x, 0)
                assert x[0] == chosen[0]
                sub.send(np.array([me]), (sub.rank + 1) % sub.size)
                source = sub.recv(x, (sub.rank - 1) % sub.size)
                assert x[0] == chosen[source]
            group.barrier()
            group.close()

        ranks.run(world, body)

    def test_groups_interleave(self, ranks, world):
        """An operation in flight on one group goes on while its rank waits in another group."""

        def body(group):
            other = group.new_group(list(range(world)))
            x, y = placed(group, np.ones(50_000), "own"), np.ones(3)
            work = other.all_reduce(x, async_op=True)
            if group.rank % 2:
                work.wait()
            group.all_reduce(y)
            work.wait()
            same(x, np.full(50_000, float(world)))
            group.close()

        ranks.run(world, body)

    # -- messages -----------------------------------------------------------------------------

    def test_send_recv_ring(self, ranks, world):
        def body(group):
            me = group.rank
            after, before = (me + 1) % world, (me - 1) % world
            for dtype, n in itertools.product(DTYPES, (*SMALL, 150_000)):
                work = group.isend(data(me, n, dtype), after)
                x = np.zeros(n, dtype)
                assert group.recv(x, before) == before
                same(x, data(before, n, dtype), dtype, n)
                work.wait()
            group.close()

        ranks.run(world, body)

    @pytest.mark.parametrize("kind", KINDS)
    def test_large_messages(self, ranks, world, kind):
        def body(group):
            me = group.rank
            mine = placed(group, data(me, LARGE, np.dtype("f4")), kind)
            into = placed(group, np.zeros(LARGE, np.float32), kind)
            work = group.irecv(into, (me - 1) % world)
            group.isend(mine, (me + 1) % world).wait()
            assert work.wait() == (me - 1) % world
            same(into, data((me - 1) % world, LARGE, np.dtype("f4")))
            group.close()

        ranks.run(world, body)

    def test_tags_and_order(self, ranks, world):
        def body(group):
            me = group.rank
            after, before = (me + 1) % world, (me - 1) % world
            for i in range(20):
                group.send(np.array([i, me]), after, tag=i % 2)
            x = np.zeros(2, np.int64)
            for tag in (1, 0):
                for i in range(tag, 20, 2):
                    group.recv(x, before, tag=tag)
                    assert x.tolist() == [i, before]
            group.close()

        ranks.run(world, body)

    def test_recv_from_anyone(self, ranks, world):
        def body(group):
            if group.rank:
                group.send(np.array([group.rank * 11]), 0)
            else:
                seen = {}
                for _ in range(world - 1):
                    x = np.zeros(1, np.int64)
                    source = group.recv(x)
                    seen[source] = int(x[0])
                assert seen == {r: r * 11 for r in range(1, world)}
            group.close()

        ranks.run(world, body)

    def test_many_messages_and_batch(self, ranks, world):
        def body(group):
            me, n = group.rank, 200
            after, before = (me + 1) % world, (me - 1) % world
            xs = [np.zeros(100, np.int64) for _ in range(n)]
            messages = []
            for i in range(n):
                message = np.full(100, me * 1000 + i)
                messages.append(functools.partial(group.isend, message, after, i % 3))
            messages += [functools.partial(group.irecv, x, before, i % 3) for i, x in enumerate(xs)]
            group.batch(messages).wait()
            for i, x in enumerate(xs):
                same(x, np.full(100, before * 1000 + i))
            group.close()

        ranks.run(world, body)

    # -- arguments ----------------------------------------------------------------------------

    def test_wrong_arguments(self, ranks, world):
        def body(group):
            x = np.ones(4, np.float32)
            frozen = np.ones(4, np.float32)
            frozen.flags.writeable = False
            wrong = [
                (ConfigError, lambda: group.all_reduce([1, 2])),
                (ConfigError, lambda: group.all_reduce(frozen)),
                (ConfigError, lambda: group.all_reduce(x, "sum")),
                (ConfigError, lambda: group.broadcast(x, world)),
                (ConfigError, lambda: group.broadcast(x, -1)),
                (ConfigError, lambda: group.send(x, world)),
                (ConfigError, lambda: group.send(x, 0, tag=-1)),
                (ConfigError, lambda: group.all_gather([x] * (world + 1), x)),
                (ConfigError, lambda: group.new_group([])),
                (ConfigError, lambda: group.new_group([world])),
                (ConfigError, lambda: group.group_rank(world)),
                (ShapeError, lambda: group.all_gather_single(np.ones(3, np.float32), x)),
                (ShapeError, lambda: group.reduce_scatter_single(np.ones(3, np.float32), x)),
                (ShapeError, lambda: group.all_to_all_single(x, x, [9] * world, [9] * world)),
                (DTypeError, lambda: group.all_gather_single(np.ones(4 * world), x)),
                (DTypeError, lambda: group.all_reduce(np.array(["a"]))),
                (DTypeError, lambda: group.all_reduce(x, ReduceOp.BAND)),
                (DTypeError, lambda: group.all_reduce(np.ones(3, int), ReduceOp.AVG)),
                (DTypeError, lambda: group.all_reduce(np.ones(3, complex), ReduceOp.MAX)),
                (DTypeError, lambda: group.all_reduce(np.ones(4, ">f4"))),
            ]
            for kind, call in wrong:
                with pytest.raises(kind, match="given"):
                    call()
            group.all_reduce(x)  # nothing of it has moved the group on
            same(x, np.full(4, world, np.float32))
            group.close()

        ranks.run(world, body)


# How one rank can make a call that does not fit, by the classes of RELIABILITY R22. Each gets the
# group and whether this is the odd rank.


def _size(group, odd):
    group.all_reduce(np.ones(5 if odd else 4, np.float32))


def _dtype(group, odd):
    group.broadcast(np.ones(4, np.float16 if odd else BF16), 0)


def _verb(group, odd):
    x = np.ones(4)
    if odd:
        group.broadcast(x, 0)
    else:
        group.all_reduce(x)


def _reduce_op(group, odd):
    group.all_reduce(np.ones(4), ReduceOp.MAX if odd else ReduceOp.SUM)


def _factor(group, odd):
    group.all_reduce(np.ones(4), premul_sum(2.0 if odd else 3.0))


def _root(group, odd):
    group.broadcast(np.ones(4), group.size - 1 if odd else 0)


def _order(group, odd):
    a, b = np.ones(4), np.ones(5)
    if odd:
        group.all_reduce(b)
        group.all_reduce(a)
    else:
        group.all_reduce(a)
        group.all_reduce(b)


def _skipped(group, odd):
    x = np.ones(4)
    if not odd:
        group.all_reduce(x)
    group.all_reduce(x)


def _count(group, odd):
    for _ in range(2 if odd else 3):
        group.all_reduce(np.ones(4))


def _other_group(group, odd):
    other = group.new_group(list(range(group.size)))
    (other if odd else group).all_reduce(np.ones(4))


def _async(group, odd):
    works = [group.all_reduce(np.ones(9000), async_op=True) for _ in range(2)]
    works.append(group.all_reduce(np.ones(9001 if odd else 9000), async_op=True))
    for work in works:
        work.wait()


def _large(group, odd):
    group.all_reduce(np.ones(LARGE, np.float64 if odd else np.int64))


def _pair(group, odd):
    n, far = 4, (group.rank + 1) % group.size
    sends = [n + (odd and r == far) for r in range(group.size)]
    group.all_to_all([np.ones(n) for _ in sends], [np.ones(k) for k in sends])


MISMATCHES = [
    *(_size, _dtype, _verb, _reduce_op, _factor, _root, _order, _skipped, _count),
    *(_other_group, _async, _large, _pair),
]


class Failures:
    """What happens when ranks do not agree, fail or die. Nobody hangs, nobody gets wrong data."""

    @pytest.mark.parametrize("world", [2, 3, 4])
    @pytest.mark.parametrize("wrong", MISMATCHES, ids=lambda f: f.__name__.strip("_"))
    def test_mismatch_raises_on_all_ranks(self, ranks, wrong, world):
        odd = world - 1

        def body(group):
            group.timeout = 8.0
            wrong(group, group.rank == odd)
            group.close()

        outcomes = ranks.outcomes(world, body)
        for o in outcomes:
            assert isinstance(o.error, (CollectiveMismatch, Deadlock)), (o.rank, o)
        for o in outcomes:
            text = str(o.error)
            assert f"rank {odd}" in text and ("rank 0" in text or "ranks 0" in text), text
            assert (
                text.count(f"conformance.py:{_line_of(wrong, text)}")
                or "destroy_process_group" in text
            ), text

    @pytest.mark.parametrize("verb", ["all_reduce", "all_gather", "broadcast", "barrier"])
    def test_a_call_that_all_have_made_ends_though_one_of_them_has_failed_since(self, ranks, verb):
        """A rank that looks late finds what was sent to it before the failure."""

        def body(group):
            me, n = group.rank, group.size
            x, outs = np.full(3, me + 1.0), [np.zeros(3) for _ in range(n)]
            work = {
                "all_reduce": lambda: group.all_reduce(x, async_op=True),
                "all_gather": lambda: group.all_gather(outs, x, async_op=True),
                "broadcast": lambda: group.broadcast(x, n - 1, async_op=True),
                "barrier": lambda: group.barrier(async_op=True),
            }[verb]()
            if me == 1:
                context.sleep(0.3)
            work.wait()
            if me == n - 1:
                raise ValueError("no such layer")
            return float((x + sum(outs)).sum())

        *well, failed = ranks.outcomes(4, body)
        expected = {"all_reduce": [30] * 3, "broadcast": [12] * 3, "barrier": [3, 6, 9]}
        expected["all_gather"] = [33, 36, 39]
        assert [o.value for o in well] == expected[verb], [o.traceback for o in well]
        assert failed.cause() == "ValueError: no such layer"

    def test_a_mismatch_leaves_the_group_usable(self, ranks):
        def body(group):
            for _ in range(3):
                with pytest.raises(CollectiveMismatch, match=r"float32\[4\].*conformance\.py"):
                    group.all_reduce(np.ones(4 if group.rank else 5, np.float32))
            x = np.ones(LARGE)
            group.all_reduce(x)
            same(x, np.full(LARGE, 3.0))
            group.close()

        ranks.run(3, body)

    @pytest.mark.parametrize("name", [*CARRYING])
    @pytest.mark.parametrize("waits", ["sync", "async", "later"])
    def test_a_call_compares_values_that_must_be_equal(self, ranks, name, waits):
        """In its header, without a message more; all ranks are told alike which differs first."""

        def body(group):
            ledger = ledger_of(group, functools.partial(explain, group))
            for value in (1, 2.5, group.rank == 2, "end"):
                ledger.add(entry("checked", leaves(value), f"line of {value}"))
            x = np.ones(4, np.float32)
            begun = group.all_reduce(x, async_op=True) if waits == "later" else None
            told = []
            for _ in range(2):
                try:
                    work = CARRYING[name](group, x, waits != "sync" and name != "split")
                    if waits != "sync" and name != "split":
                        work.wait()
                except ValuesDiffer as error:
                    told.append(str(error))
                else:
                    told.append("")
                if begun is not None:
                    try:
                        begun.wait()
                    except ValuesDiffer as error:
                        told.insert(0, str(error))
                    begun = None
            group.barrier()
            return told

        found = ranks.run(3, body)
        assert found[0] == found[1] == found[2]
        first, *others = found[0]
        assert not any(others)
        assert "first that differs is value 3 of 4" in first
        assert "ranks 0, 1 have False from line of False" in first
        assert "rank 2 has True from line of True; it differs by 1" in first

    def test_equal_values_change_nothing(self, ranks):
        def body(group):
            ledger = ledger_of(group, functools.partial(explain, group))
            x = np.arange(6.0)
            for number in range(20):
                ledger.add(entry("", leaves({"number": number}), "here"))
                group.all_reduce(x, ReduceOp.AVG)
                group.send(x, (group.rank + 1) % group.size)
                group.recv(x, (group.rank - 1) % group.size)
            assert not ledger.pending
            ledger.add(entry("", leaves(number), "here"))  # compared when the group is left
            group.close()
            return x

        for x in ranks.run(3, body):
            assert (x == np.arange(6.0)).all()

    def test_who_has_checked_nothing_is_told(self, ranks):
        def body(group):
            if group.rank != 1:
                ledger = ledger_of(group, functools.partial(explain, group))
                ledger.add(entry("lr", leaves(0.1), "here"))
            with pytest.raises(CollectiveMismatch, match="use of same differs") as raised:
                group.barrier()
            group.barrier()
            return str(raised.value)

        for text in ranks.run(2, body):
            assert "rank 0 called barrier() after same(lr=0.1) at" in text

    def test_values_are_compared_when_the_group_is_left(self, ranks):
        def body(group):
            ledger = ledger_of(group, functools.partial(explain, group))
            ledger.add(entry("lr", leaves(group.rank), "here"))
            with pytest.raises(
                CollectiveMismatch, match=r"values differs|number of calls"
            ) as raised:
                group.close()
            return str(raised.value)

        for text in ranks.run(2, body):
            assert "same(lr=0)" in text and "same(lr=1)" in text

    def test_calls_may_come_from_different_lines_with_other_shapes(self, ranks):
        def body(group):
            me, n = group.rank, group.size
            x = np.full((2, 6) if me else (3, 4), me + 1.0)
            if me == 0:
                group.all_reduce(x)
                group.broadcast(x, 2)
                group.barrier()
                outs = [np.zeros(12) for _ in range(n)]
                group.all_gather(outs, x.ravel())
                work = group.all_reduce(x, async_op=True)
            elif me == 1:
                group.all_reduce(x)
                group.broadcast(x, 2)
                group.barrier()
                outs = [np.zeros((2, 6)) for _ in range(n)]
                group.all_gather(outs, x)
                work = group.all_reduce(x, async_op=True)
            else:
                group.all_reduce(x)
                group.broadcast(x, 2)
                group.barrier()
                outs = [np.zeros((2, 6)) for _ in range(n)]
                group.all_gather(outs, x)
                work = group.all_reduce(x, async_op=True)
            work.wait()
            assert [o.ravel()[5] for o in outs] == [6.0] * n
            if me:
                group.send(x, 0)
            else:
                for src in (1, 2):
                    group.recv(x.reshape(1, 12), src)
            group.close()
            return x.ravel().tolist()

        assert ranks.run(3, body) == [[18.0] * 12] * 3

    @pytest.mark.parametrize("what", ["line", "shape"])
    def test_a_strict_group_wants_lines_and_shapes_to_agree(self, ranks, what):
        def body(group):
            strict = group.new_group([0, 1], strict=True)
            x = np.ones(12) if what == "line" or group.rank else np.ones((3, 4))
            with pytest.raises(CollectiveMismatch, match=f"{what} differs.*[^$]*strict"):
                if group.rank and what == "line":
                    strict.all_reduce(x)
                else:
                    strict.all_reduce(x)
            for root in (0, 1):
                strict.broadcast(np.ones(3), root)
            strict.barrier()
            strict.close()
            group.close()

        ranks.run(2, body)

    def test_strict_is_for_all_ranks_or_none(self, ranks):
        def body(group):
            sub = group.new_group([0, 1], strict=group.rank == 0)
            with pytest.raises(CollectiveMismatch, match="Make the group strict on every rank"):
                sub.all_reduce(np.ones(2))
            group.close(abort=True)

        ranks.run(2, body)

    def test_a_skipped_call_is_shown_where_lines_came_apart(self, ranks):
        def body(group):
            x = np.ones(2)
            with pytest.raises(CollectiveMismatch) as error:
                group.all_reduce(x)
                if group.rank != 1:
                    group.all_reduce(x)
                group.all_reduce(x)
                group.all_reduce(np.ones(3))
            group.close(abort=True)
            return str(error.value)

        for text in ranks.run(3, body):
            assert "(operation 3, numel differs)" in text, text
            assert "operation 2 came from different lines" in text, text

    @pytest.mark.parametrize("odd", [0, 1], ids=["first", "second"])
    @pytest.mark.parametrize("more", [0, 2], ids=["skipped", "repeated"])
    def test_another_number_of_calls_is_found_at_the_end(self, ranks, odd, more):
        def body(group):
            for _ in range(more if group.rank == odd else 1):
                group.all_reduce(np.ones(2))
            group.close()

        for o in ranks.outcomes(3, body):
            assert isinstance(o.error, (CollectiveMismatch, Deadlock)), (o.rank, o)
            text = str(o.error)
            assert "destroy_process_group()" in text and "all_reduce(float64[2]" in text

    def test_who_drops_the_group_after_the_same_calls_is_not_missed(self, ranks):
        """One rank leaves while it handles an exception, the others in good order."""

        def body(group):
            sub = group.new_group([0, 2])
            x = np.ones(3)
            group.all_reduce(x)
            if group.rank == 1:
                group.close(abort=True)
            else:
                sub.all_reduce(x)
                if group.rank == 0:
                    sub.close(abort=True)
                else:
                    sub.close()
                group.close()
            return x[0]

        assert ranks.run(3, body) == [6.0, 3.0, 6.0]

    @pytest.mark.parametrize("n", [3, 100_000])
    def test_send_and_recv_that_do_not_fit(self, ranks, n):
        def body(group):
            x = placed(group, np.ones(n, np.float32), "own")
            with pytest.raises(CollectiveMismatch, match=r"send\(float32.*"):
                if group.rank == 0:
                    group.send(x, 1)
                    group.recv(np.zeros(1, bool), 1, tag=9)  # after the receiver has looked
                    group.send(x, 1)
                else:
                    try:
                        group.recv(np.zeros(n, np.int32), 0)
                    finally:
                        group.send(np.zeros(1, bool), 0, tag=9)

        ranks.run(2, body)

    def test_a_dead_rank_is_named(self, ranks):
        def body(group):
            x = np.ones(30_000)
            group.all_reduce(x)
            if group.rank == 1:
                ranks.die()
            while True:
                group.all_reduce(x)

        outcomes = ranks.outcomes(3, body)
        for o in (outcomes[0], outcomes[2]):
            assert isinstance(o.error, PeerFailed), o
            assert o.error.rank == 1 and "rank 1" in str(o.error)

    @pytest.mark.parametrize("how", ["async", "message", "other group", "barrier"])
    def test_a_failed_rank_ends_every_wait(self, ranks, how):
        def body(group):
            sub = group.new_group([0, 1])
            if group.rank == 2:
                raise ValueError("on purpose")
            if how == "async":
                group.all_reduce(np.ones(3), async_op=True).wait()
            elif how == "message":
                group.recv(np.zeros(3), 2)
            elif how == "other group":
                sub.recv(np.zeros(3), 1 - sub.rank)
            else:
                group.barrier()

        outcomes = ranks.outcomes(3, body)
        for o in outcomes[:2]:
            assert isinstance(o.error, PeerFailed) and o.error.rank == 2, o
            assert "on purpose" in o.error.cause

    def test_a_deadline_names_who_is_missing(self, ranks):
        def body(group):
            if group.rank == 1:
                context.sleep(1.5)  # until the others have given up
                return None
            group.timeout = 0.2
            with pytest.raises(WaitTimeout, match=r"all_reduce.*rank 1 has not arrived") as caught:
                group.all_reduce(np.ones(2))
            with pytest.raises(CommError, match="cannot be used any more"):
                group.all_reduce(np.ones(2))
            return str(caught.value)

        outcomes = ranks.outcomes(3, body)
        assert all(o.error is None for o in outcomes if o.rank != 1), outcomes

    def test_a_thread_in_the_middle_of_anothers_collective_is_told(self, ranks):
        """The other's call goes on; then threads may take turns."""

        def body(group):
            x = np.ones(4)
            if group.rank:
                group.recv(np.zeros(1), 0)
                group.all_reduce(x)
                return x.tolist(), None
            told, first, calls = [], threading.get_ident(), group._calls

            def second():
                context.wait_until(
                    lambda: calls._running(first) is not None, lambda: "the call of the first"
                )
                try:
                    group.broadcast(np.ones(1), 0)
                except CommError as error:
                    told.append(str(error))
                group.send(np.zeros(1), 1)  # lets the peer come

            context.current().waiter.start_thread(second, "second")
            group.all_reduce(x)
            context.wait_until(lambda: told, lambda: "what the second was told", 20)
            return x.tolist(), told[0]

        (one, told), (other, _) = ranks.run(2, body)
        assert one == other == [2.0] * 4
        assert "broadcast was called in thread 'second'" in told and "is in all_reduce" in told

    def test_work_can_be_waited_for_again_after_a_deadline(self, ranks):
        def body(group):
            x = np.ones(2)
            if group.rank == 0:
                work = group.all_reduce(x, async_op=True)
                assert not work.is_completed()
                with pytest.raises(WaitTimeout):
                    work.wait(timeout=0.05)
                group.send(x, 1)
                work.wait()
            else:
                group.recv(np.zeros(2), 0)
                group.all_reduce(x)
            group.close()
            return x[0]

        ranks.run(2, body)


def _line_of(wrong, text):
    """A line of the function ``wrong`` that the text names, or none."""
    first = wrong.__code__.co_firstlineno
    lines = [first + i for i in range(12)]
    return next((n for n in lines if f"conformance.py:{n} in {wrong.__name__}" in text), "none")
