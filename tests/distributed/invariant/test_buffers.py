"""Buffers over virtual shards: first values for each, the mean of all for the step."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.invariant.buffers import ShardedBuffers
from disttrain.distributed.invariant.shards import VirtualShards
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def module(kind=dt.float32):
    m = nn.Module()
    m.register_buffer("mean", dt.tensor([1.0, 2.0], dtype=kind))
    m.register_buffer("count", dt.tensor(0))
    m.register_buffer("same", dt.tensor([5.0]))
    return m


def alone(array):
    """The sum over one rank."""


def run(m, shards, change, join=alone):
    """One step: ``change(m, i)`` is the forward of shard i."""
    buffers = ShardedBuffers(m, shards, join)
    for i in range(shards.each):
        buffers.begin()
        change(m, i)
        buffers.finish()
        shards.advance()
    return buffers


def test_every_shard_sees_the_first_values_and_the_mean_stays():
    seen = []

    def change(m, i):
        seen.append(m.mean.tolist())
        m.mean.add_(float(i))
        m.count.add_(1)

    m = module()
    run(m, VirtualShards(4, 0, 1), change)
    assert seen == [[1.0, 2.0]] * 4
    assert m.mean.tolist() == [2.5, 3.5] and m.same.tolist() == [5.0]
    assert m.count.item() == 1  # whole numbers start anew, too, and stay what the last one made


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_shards_that_leave_a_buffer_alone_count_with_its_first_values(which):
    m = module()
    run(m, VirtualShards(4, 0, 1), lambda m, i: m.mean.add_(4.0) if i == which else None)
    assert m.mean.tolist() == [2.0, 3.0]


def test_writes_count_and_memory_stays():
    m = module()
    place, version = m.mean.data_ptr(), m.mean._version
    run(m, VirtualShards(2, 0, 1), lambda m, i: m.mean.mul_(2.0))
    assert m.mean.data_ptr() == place and m.mean._version > version


def test_a_program_may_replace_its_buffers():
    def change(m, i):
        m.mean = m.mean + 1.0

    m = module()
    run(m, VirtualShards(2, 0, 1), change)
    assert m.mean.tolist() == [2.0, 3.0]


def test_narrow_types_are_summed_wide():
    m = module(dt.bfloat16)
    run(m, VirtualShards(4, 0, 1), lambda m, i: m.mean.fill_(1.0 + i * 2.0**-7))
    assert m.mean.tolist() == [1.0 + 2.0**-6, 1.0 + 2.0**-6]  # 1.5 parts, rounded once to even


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_end_with_the_mean_over_all_shards(ranks, strided):
    """Only shards 2 and 5 of 8 change anything."""

    def body():
        m, group = module(), dist.group.WORLD
        shards = VirtualShards(8, dist.get_rank(), ranks, strided=strided)
        ids = list(shards.ids)

        def change(m, i):
            if ids[i] in (2, 5):
                m.mean.add_(float(ids[i]))

        run(m, shards, change, group.all_reduce)
        return m.mean.tolist(), m.same.tolist()

    assert on_ranks(body, ranks) == [([1.0 + 7 / 8, 2.0 + 7 / 8], [5.0])] * ranks
