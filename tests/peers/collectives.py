"""Random collectives, on PyTorch's gloo and here, by the same processes: python -m
peers.collectives --ranks 2,3,4 --cases 1000 --seed 0 (from tests/, in an environment with PyTorch).

A case is drawn alike on all ranks: a verb, a type, a shape, how the memory lies, an operator, a
root, a group, whether it is waited for later. Every rank carries it out on both sides from the same
numbers and compares what its tensors hold afterwards. What PyTorch refuses is not compared; what
only this project refuses is a difference.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from typing import Any

import numpy as np
import torch
import torch.distributed as torch_dist

import disttrain as dt
from disttrain import distributed as dist
from support.ranks import run_ranks

VERBS = (
    "all_reduce reduce broadcast all_gather all_gather_into_tensor reduce_scatter "
    "reduce_scatter_tensor all_to_all all_to_all_single gather scatter barrier send_recv "
    "all_reduce_coalesced objects batch"
).split()
DTYPES = (
    "float32 float64 float16 bfloat16 int8 uint8 int32 int64 bool complex64 complex128"
).split()
OPS = "SUM SUM SUM PRODUCT MIN MAX BAND BOR BXOR AVG".split()
SHAPES = ((), (1,), (5,), (0,), (2, 3), (3, 0, 2), (4, 1, 3), (1000,), (70, 130))


class Case:
    """One collective, alike on all ranks."""

    def __init__(self, seed: int, size: int) -> None:
        d = random.Random(seed)
        self.seed, self.verb, self.dtype = seed, d.choice(VERBS), d.choice(DTYPES)
        self.shape, self.op, self.later = d.choice(SHAPES), d.choice(OPS), d.random() < 0.3
        self.layout = d.choice(("plain", "plain", "turned", "gaps"))
        self.root, self.part = d.randrange(size), d.random() < 0.3 and size > 2
        self.splits = [[d.randrange(4) for _ in range(size)] for _ in range(size)]
        self.uneven = d.random() < 0.5
        if self.verb.startswith("reduce_scatter"):  # gloo (2.13) dies of some of these
            self.shape = (2, 3) if 0 in self.shape or not self.shape else self.shape
            self.dtype = d.choice(("float32", "float64", "int32", "int64"))
            self.op = d.choice(("SUM", "PRODUCT", "MIN", "MAX"))

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class Side:
    """One of the two libraries, on one rank."""

    def __init__(self, lib: Any, d: Any, part: Any, members: list[int]) -> None:
        self.lib, self.dist, self.part, self.members = lib, d, part, members

    def tensor(self, case: Case, who: int, shape: tuple | None = None) -> Any:
        """The numbers of rank ``who``: small whole ones, so that no order of sums matters."""
        shape = case.shape if shape is None else shape
        rng = np.random.default_rng(case.seed * 16 + who)
        values = rng.integers(0, 3, shape)
        if case.dtype.startswith("complex"):
            values = values + 1j * rng.integers(0, 2, shape)
        t = self.lib.tensor(values.tolist(), dtype=getattr(self.lib, case.dtype)).reshape(shape)
        if case.layout == "turned" and len(shape) > 1:
            return t.transpose(0, 1).contiguous().transpose(0, 1)
        if case.layout == "gaps" and shape and shape[0]:
            return self.lib.cat([t, t])[: shape[0]]
        return t

    def run(self, case: Case, me: int, size: int) -> list[Any]:
        d, group = self.dist, self.part if case.part else None
        ranks = self.members if case.part else list(range(size))
        if me not in ranks:
            return []
        root = ranks[case.root % len(ranks)]
        op = getattr(d.ReduceOp, case.op)
        return getattr(self, case.verb)(case, d, group, ranks, me, root, op)

    def finish(self, case: Case, work: Any) -> None:
        if work is not None:
            work.wait()

    def all_reduce(self, case, d, group, ranks, me, root, op):
        x = self.tensor(case, me)
        self.finish(case, d.all_reduce(x, op, group, case.later))
        return [x]

    def reduce(self, case, d, group, ranks, me, root, op):
        x = self.tensor(case, me)
        self.finish(case, d.reduce(x, root, op, group, case.later))
        return [x] if me == root else []  # elsewhere gloo leaves parts of sums

    def broadcast(self, case, d, group, ranks, me, root, op):
        x = self.tensor(case, me)
        self.finish(case, d.broadcast(x, root, group, case.later))
        return [x]

    def all_gather(self, case, d, group, ranks, me, root, op):
        outs = [self.tensor(case, 9) for _ in ranks]
        self.finish(case, d.all_gather(outs, self.tensor(case, me), group, case.later))
        return outs

    def all_gather_into_tensor(self, case, d, group, ranks, me, root, op):
        shape = (len(ranks) * (case.shape or (1,))[0], *case.shape[1:])
        x, out = self.tensor(case, me), self.tensor(case, 9, shape).contiguous()
        self.finish(case, d.all_gather_into_tensor(out, x.contiguous(), group, case.later))
        return [out]

    def reduce_scatter(self, case, d, group, ranks, me, root, op):
        ins, out = [self.tensor(case, me + r) for r in ranks], self.tensor(case, 9)
        self.finish(case, d.reduce_scatter(out, ins, op, group, case.later))
        return [out]

    def reduce_scatter_tensor(self, case, d, group, ranks, me, root, op):
        shape = (len(ranks) * (case.shape or (1,))[0], *case.shape[1:])
        x, out = self.tensor(case, me, shape).contiguous(), self.tensor(case, 9).contiguous()
        self.finish(case, d.reduce_scatter_tensor(out, x, op, group, case.later))
        return [out]

    def all_to_all(self, case, d, group, ranks, me, root, op):
        ins, outs = (
            [self.tensor(case, me + r) for r in ranks],
            [self.tensor(case, 9) for _ in ranks],
        )
        self.finish(case, d.all_to_all(outs, ins, group, case.later))
        return outs

    def all_to_all_single(self, case, d, group, ranks, me, root, op):
        n, at, rest = len(ranks), ranks.index(me), case.shape[1:]
        gives = [case.splits[at][i] if case.uneven else 2 for i in range(n)]
        takes = [case.splits[i][at] if case.uneven else 2 for i in range(n)]
        x = self.tensor(case, me, (sum(gives), *rest)).contiguous()
        out = self.tensor(case, 9, (sum(takes), *rest)).contiguous()
        splits = (takes, gives) if case.uneven else (None, None)
        self.finish(case, d.all_to_all_single(out, x, *splits, group, case.later))
        return [out]

    def gather(self, case, d, group, ranks, me, root, op):
        outs = [self.tensor(case, 9) for _ in ranks] if me == root else None
        self.finish(case, d.gather(self.tensor(case, me), outs, root, group, case.later))
        return outs or []

    def scatter(self, case, d, group, ranks, me, root, op):
        ins = [self.tensor(case, r) for r in ranks] if me == root else None
        out = self.tensor(case, 9)
        self.finish(case, d.scatter(out, ins, root, group, case.later))
        return [out]

    def barrier(self, case, d, group, ranks, me, root, op):
        self.finish(case, d.barrier(group, case.later))
        return []

    def all_reduce_coalesced(self, case, d, group, ranks, me, root, op):
        xs = [self.tensor(case, me), self.tensor(case, me + 1, (3,))]
        self.finish(case, d.all_reduce_coalesced(xs, op, group, case.later))
        return xs

    def send_recv(self, case, d, group, ranks, me, root, op):
        """Along the ranks, from one to the next."""
        at, x = ranks.index(me), self.tensor(case, me)
        source = None
        if at:
            source = d.recv(x, ranks[at - 1], group, case.seed % 7)
        if at + 1 < len(ranks):
            d.send(x, ranks[at + 1], group, case.seed % 7)
        return [x, source]

    def batch(self, case, d, group, ranks, me, root, op):
        n, at = len(ranks), ranks.index(me)
        out = self.tensor(case, 9)
        ops = [
            d.P2POp(d.isend, self.tensor(case, me), ranks[(at + 1) % n], group),
            d.P2POp(d.irecv, out, ranks[(at - 1) % n], group),
        ]
        for work in d.batch_isend_irecv(ops):
            work.wait()
        return [out]

    def objects(self, case, d, group, ranks, me, root, op):
        mine = {"me": me, "list": list(range(me)), "pair": (me, "ü"), "set": {me}}
        every, shared, out = [None] * len(ranks), [me, None], [None]
        d.all_gather_object(every, mine, group)
        d.broadcast_object_list(shared, root, group)
        at_root = [None] * len(ranks) if me == root else None
        d.gather_object(mine, at_root, root, group)
        d.scatter_object_list(out, [[r] for r in ranks] if me == root else None, root, group)
        return [every, shared, at_root, out]


def _plain(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, dt.Tensor)):
        name = str(value.dtype).rpartition(".")[2]
        wide = torch.float32 if isinstance(value, torch.Tensor) else dt.float32
        numbers = value.to(wide) if name in ("bfloat16", "float16") else value
        return name, tuple(value.shape), numbers.tolist()
    return value


def attempt(side: Side, case: Case, me: int, size: int) -> Any:
    try:
        return [_plain(v) for v in side.run(case, me, size)]
    except Exception as error:
        return error


def body(me: int, size: int, path: str, seeds: range) -> list[tuple[str, str]]:
    """What differs on one rank."""
    torch.set_num_threads(1)
    torch_dist.init_process_group("gloo", init_method=f"file://{path}/t", rank=me, world_size=size)
    dist.init_process_group("gloo", init_method=f"file://{path}/d", rank=me, world_size=size)
    members = sorted({0, size - 1})
    sides = [
        Side(lib, d, d.new_group(members), members) for lib, d in ((torch, torch_dist), (dt, dist))
    ]
    found, refused = [], 0
    for seed in seeds:
        case = Case(seed, size)
        theirs = attempt(sides[0], case, me, size)
        if isinstance(theirs, Exception):
            refused += 1
            continue
        ours = attempt(sides[1], case, me, size)
        if isinstance(ours, Exception):
            text = "".join(traceback.format_exception(ours)[-3:])
            found.append((f"{case.verb} {type(ours).__name__}", f"{case}\n{text}"))
            if "cannot be used any more" in str(ours):
                break
        elif repr(ours) != repr(theirs):
            text = f"{case}\n  PyTorch {str(theirs)[:300]}\n  here    {str(ours)[:300]}"
            found.append((f"{case.verb} {case.dtype} {case.op}", text))
    return [*found, ("refused by PyTorch", str(refused))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m peers.collectives", description=__doc__)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    seeds = range(options.seed, options.seed + options.cases)
    for size in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as path:
            results = run_ranks(
                size, functools.partial(body, size=size, path=path, seeds=seeds), 900.0
            )
        counts = Counter(name for found in results for name, _ in found[:-1])
        print(f"{size} ranks, {options.cases} cases, {results[0][-1]}: {counts or 'no difference'}")
        examples = {name: text for found in results for name, text in found[:-1]}
        for name, text in list(examples.items())[:12]:
            print(f"=== {name}\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
