"""Each rank's parameters to all others: in few messages, copied or as views of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.optim import sharing
from disttrain.distributed.optim.sharing import Sharing
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

SHAPES = [[(3,), (2, 2)], [(5,)], []]  # of each rank; the last has none


def owned():
    return [[nn.Parameter(dt.full(s, -1.0)) for s in shapes] for shapes in SHAPES]


def fill(mine):
    for k, p in enumerate(mine):
        p.data.fill_(10.0 * (dist.get_rank() + 1) + k)


def values(params):
    return [[float(p.detach().reshape(-1)[-1]) for p in each] for each in params]


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_all_have_what_each_owns(views, chunk, monkeypatch):
    monkeypatch.setattr(sharing, "CHUNK_BYTES", chunk)

    def body():
        params = owned()
        shared = Sharing(dist.group.WORLD, params, views)
        for _ in range(2):
            fill(params[dist.get_rank()])
            shared.sync()
        assert all((p == p.reshape(-1)[0]).all() for each in params for p in each)
        return values(params), len(shared.chunks)

    found = on_ranks(body, 3)
    assert [f[0] for f in found] == [[[10.0, 11.0], [20.0], []]] * 3
    assert {f[1] for f in found} == {1 if views or chunk > 8 else 2}


def test_what_comes_counts_as_written():
    def body():
        params = owned()
        shared = Sharing(dist.group.WORLD, params)
        losses = [(p * p).sum() for each in params for p in each]
        shared.sync()
        own = dist.get_rank()
        stale = []
        for p, loss in zip([p for each in params for p in each], losses, strict=True):
            try:
                loss.backward()
            except RuntimeError:
                stale.append(all(p is not q for q in params[own]))
        return stale

    assert on_ranks(body, 2 + 1) == [[True], [True, True], [True] * 3]


def test_views_lie_one_behind_the_other_until_they_are_released():
    def body():
        params = owned()
        kept = [p for each in params for p in each]
        shared = Sharing(dist.group.WORLD, params, views=True)
        assert all(np.shares_memory(p.detach().numpy(), shared.flat) for p in kept)
        assert [p.shape for p in kept] == [(3,), (2, 2), (5,)] and kept[0].tolist() == [-1.0] * 3
        shared.release()
        assert not any(np.shares_memory(p.detach().numpy(), shared.flat) for p in kept)
        return kept[1].tolist()

    assert on_ranks(body, 3) == [[[-1.0, -1.0]] * 2] * 3


def test_alone_or_with_nothing_there_is_nothing_to_send():
    def body():
        group = dist.group.WORLD
        for params in ([[nn.Parameter(dt.ones(2))]], [[]]):
            shared = Sharing(group, params)
            assert shared.chunks == []
            shared.sync()
            shared.release()

    on_ranks(body, 1)
