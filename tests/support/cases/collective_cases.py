"""Every collective that derivatives go through, on ranks and as one process would compute it.

``CASES[name]`` is (here, alone): ``here(x, size)`` gives this rank's results, ``alone(xs)`` those
of all ranks, each a list.
"""

from __future__ import annotations

import numpy as np

import disttrain as dt
import disttrain.distributed.nn.functional as dnn
from disttrain import core
from disttrain import distributed as dist
from disttrain.comm.calls.reduce_ops import premul_sum
from disttrain.distributed import ReduceOp

REDUCE = {
    "sum": (ReduceOp.SUM, lambda xs: sum(xs[1:], xs[0])),
    "avg": (ReduceOp.AVG, lambda xs: sum(xs[1:], xs[0]) / len(xs)),
    "premul": (premul_sum(0.5), lambda xs: sum(xs[1:], xs[0]) * 0.5),
    "product": (ReduceOp.PRODUCT, lambda xs: dt.stack(list(xs)).prod(0)),
    "max": (ReduceOp.MAX, lambda xs: dt.stack(list(xs)).amax(0)),
    "min": (ReduceOp.MIN, lambda xs: dt.stack(list(xs)).amin(0)),
}


def inputs(rank: int, size: int) -> dt.Tensor:
    rng = np.random.default_rng(10 + rank)
    return core.wrap(rng.uniform(0.5, 1.5, (2 * size, 3)))


def pieces(x: dt.Tensor, size: int) -> list[dt.Tensor]:
    return [x[2 * i : 2 * i + 2] for i in range(size)]


def like(x: dt.Tensor) -> dt.Tensor:
    return dt.zeros(tuple(x.shape), dtype=x.dtype)


def case_all_reduce(op):
    def here(x, size):
        return [dnn.all_reduce(x, op=REDUCE[op][0])]

    def alone(xs):
        return [[REDUCE[op][1](xs)] for _ in xs]

    return here, alone


def case_reduce(op):
    def here(x, size):
        out = dnn.reduce(x, size - 1, op=REDUCE[op][0])
        return [out if dist.get_rank() == size - 1 else out * 0]

    def alone(xs):
        return [[REDUCE[op][1](xs)] if r == len(xs) - 1 else [x * 0] for r, x in enumerate(xs)]

    return here, alone


def case_reduce_scatter(op):
    def here(x, size):
        parts = pieces(x, size)
        return [dnn.reduce_scatter(like(parts[0]), parts, op=REDUCE[op][0])]

    def alone(xs):
        n = len(xs)
        return [[REDUCE[op][1]([pieces(x, n)[r] for x in xs])] for r in range(n)]

    return here, alone


def case_broadcast():
    return (lambda x, size: [dnn.broadcast(x, size - 1)]), (lambda xs: [[xs[-1]] for _ in xs])


def case_gather():
    def alone(xs):
        return [xs if r == 0 else [x * 0 for x in xs] for r in range(len(xs))]

    return (lambda x, size: dnn.gather(x, 0)), alone


def case_scatter():
    def alone(xs):
        return [[pieces(xs[-1], len(xs))[r]] for r in range(len(xs))]

    return (lambda x, size: [dnn.scatter(pieces(x, size), size - 1)]), alone


def case_all_gather():
    return (lambda x, size: dnn.all_gather(x)), (lambda xs: [xs for _ in xs])


def case_all_gather_base():
    def here(x, size):
        return [dnn._all_gather_base(dt.zeros((2 * size * size, 3), dtype=x.dtype), x)]

    return here, (lambda xs: [[dt.cat(xs)] for _ in xs])


def case_all_to_all():
    """Piece r has r + 1 rows, so what arrives differs in shape between ranks."""

    def cut(x, n):
        return [x[: r + 1] * (r + 1.0) for r in range(n)]

    def here(x, size):
        mine = dist.get_rank() + 1
        outs = [dt.zeros((mine, 3), dtype=x.dtype) for _ in range(size)]
        return dnn.all_to_all(outs, cut(x, size))

    def alone(xs):
        return [[cut(x, len(xs))[r] for x in xs] for r in range(len(xs))]

    return here, alone


def case_all_to_all_single():
    def here(x, size):
        return [dnn.all_to_all_single(like(x), x)]

    def alone(xs):
        n = len(xs)
        return [[dt.cat([pieces(x, n)[r] for x in xs])] for r in range(n)]

    return here, alone


def case_all_to_all_single_uneven():
    """All but the last of 2n rows go to rank 0, the last one to the last rank."""

    def splits(n):
        return [2 * n] if n == 1 else [2 * n - 1, *[0] * (n - 2), 1]

    def here(x, size):
        take = splits(size)[dist.get_rank()]
        out = dt.zeros((take * size, 3), dtype=x.dtype)
        return [dnn.all_to_all_single(out, x, [take] * size, splits(size))]

    def alone(xs):
        n = len(xs)
        starts = np.cumsum([0, *splits(n)])
        return [[dt.cat([x[starts[r] : starts[r + 1]] for x in xs])] for r in range(n)]

    return here, alone


def case_ring():
    """Everyone sends to the next rank and receives from the one before."""

    def here(x, size):
        rank = dist.get_rank()
        if size == 1:
            return [x]
        if rank % 2 == 0:
            token = dnn.send(x, (rank + 1) % size)
            return [dnn.recv(like(x), (rank - 1) % size, after=token)]
        got = dnn.recv(like(x), (rank - 1) % size, after=(x * 0).sum())
        return [got + dnn.send(x, (rank + 1) % size)]

    return here, (lambda xs: [[xs[r - 1]] for r in range(len(xs))])


CASES = {
    **{f"all_reduce-{op}": case_all_reduce(op) for op in REDUCE},
    **{f"reduce-{op}": case_reduce(op) for op in REDUCE},
    **{f"reduce_scatter-{op}": case_reduce_scatter(op) for op in REDUCE},
    "broadcast": case_broadcast(),
    "gather": case_gather(),
    "scatter": case_scatter(),
    "all_gather": case_all_gather(),
    "all_gather_base": case_all_gather_base(),
    "all_to_all": case_all_to_all(),
    "all_to_all_single": case_all_to_all_single(),
    "all_to_all_single uneven": case_all_to_all_single_uneven(),
    "ring": case_ring(),
}
