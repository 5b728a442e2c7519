"""Sums of gradients over virtual shards: means, unused parameters, buckets in order, wide sums."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.core.backward.engine import on_finish
from disttrain.distributed.ddp.reducer.buckets import Bucket, Slot
from disttrain.distributed.invariant.gradients import ShardedGradients, wide
from disttrain.distributed.invariant.shards import VirtualShards
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

F4 = np.dtype("f4")


def sharded(params, shards, kind=F4):
    """Two buckets: the last parameter alone, then the others."""
    last = len(params) - 1
    sizes = [p.numel() for p in params]
    slots, at = [], 0
    for i in range(last):
        slots.append(Slot(i, at, sizes[i]))
        at += sizes[i]
    buckets = [
        Bucket(kind, (Slot(last, 0, sizes[last]),), sizes[last]),
        Bucket(kind, tuple(slots), at),
    ]

    def begin():
        def end():
            made.finish()
            shards.advance()

        on_finish(end)

    made = ShardedGradients(params, buckets, dist.group.WORLD, shards, begin)
    return made


def step(params, shards, loss):
    """Backwards of this rank's shards; ``loss(k)`` of shard k."""
    for k in shards.ids:
        loss(k).backward()


def test_the_mean_over_all_shards_is_everyones_gradient():
    def body():
        a, b, c = params = [
            nn.Parameter(dt.ones(2)),
            nn.Parameter(dt.ones(2, 2)),
            nn.Parameter(dt.ones(1)),
        ]
        shards = VirtualShards(4, dist.get_rank(), dist.get_world_size())
        sharded(params, shards)
        step(params, shards, lambda k: (a * (k + 1.0)).sum() + (b * k).sum() + c.sum() * 2)
        return [p.grad.reshape(-1).tolist() for p in params], shards.step

    for ranks in (1, 2, 4):
        assert on_ranks(body, ranks) == [([[2.5] * 2, [1.5] * 4, [2.0]], 1)] * ranks


def test_bits_do_not_depend_on_ranks():
    def body():
        rng = np.random.default_rng(0)
        x = rng.standard_normal((8, 3)).astype("f4") * 10.0 ** rng.integers(-4, 5, (8, 1))
        params = [nn.Parameter(dt.ones(3)), nn.Parameter(dt.ones(1))]
        shards = VirtualShards(8, dist.get_rank(), dist.get_world_size())
        sharded(params, shards)
        step(params, shards, lambda k: (params[0] * dt.tensor(x[k])).sum() + params[1].sum())
        return params[0].grad.numpy().tobytes()

    assert len({found for ranks in (1, 2, 4, 8) for found in on_ranks(body, ranks)}) == 1


def test_what_nobody_uses_keeps_its_gradient_and_what_some_use_is_everyones():
    def body():
        a, unused, some = params = [nn.Parameter(dt.ones(1)) for _ in range(3)]
        unused.grad = dt.full((1,), 7.0)
        shards = VirtualShards(2, dist.get_rank(), 2)
        sharded(params, shards)
        step(params, shards, lambda k: a.sum() + (some.sum() * 4 if k == 1 else 0))
        return a.grad.item(), unused.grad.item(), some.grad.item()

    assert on_ranks(body) == [(1.0, 7.0, 2.0)] * 2


def test_gradients_that_are_not_dropped_add_up_and_steps_follow_each_other():
    def body():
        params = [nn.Parameter(dt.ones(1)), nn.Parameter(dt.ones(1))]
        shards = VirtualShards(2, dist.get_rank(), 1)
        sharded(params, shards)
        seen = []
        for _ in range(3):
            step(params, shards, lambda k: params[0].sum() * (k + 1) + params[1].sum())
            seen.append(params[0].grad.item())
        return seen, shards.step

    assert on_ranks(body, 1) == [([1.5, 3.0, 4.5], 3)]


def test_afterwards_leaves_add_up_as_ever():
    def body():
        params = [nn.Parameter(dt.ones(1)), nn.Parameter(dt.ones(1))]
        sharded(params, VirtualShards(2, 0, 1)).detach()
        (params[0] * 3).sum().backward()
        return params[0].grad.item()

    assert on_ranks(body, 1) == [3.0]


def test_narrow_types_are_summed_in_float32():
    assert [wide(np.dtype(k)) for k in ("f2", "f4", "f8", "i2", "c8")] == [
        "f4",
        "f4",
        "f8",
        "i2",
        "c8",
    ]

    def body():
        params = [nn.Parameter(dt.ones(1, dtype=dt.bfloat16)) for _ in range(2)]
        shards = VirtualShards(4, dist.get_rank(), 2)
        sharded(params, shards, params[0].array.dtype)
        step(params, shards, lambda k: params[0].sum() * (1 + k * 2.0**-7) + params[1].sum())
        return params[0].grad.dtype is dt.bfloat16, params[0].grad.item()

    assert on_ranks(body) == [(True, 1 + 2.0**-6)] * 2
