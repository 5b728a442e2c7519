"""One rank's values to all in few messages, and collectives that are started as one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.core import wrap
from disttrain.distributed.collectives.coalesced import broadcast_coalesced, coalescing_manager
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def tensors(value):
    kinds = ("f4", "f8", "f4", ml_dtypes.bfloat16, "i8", "?", "f4")
    shapes = ((3,), (2, 2), (), (5,), (1,), (2,), (0, 3))
    return [wrap(np.full(s, value, k)) for s, k in zip(shapes, kinds, strict=True)]


@pytest.mark.parametrize("chunk", [1, 12, 1 << 20])
@pytest.mark.parametrize("root", [0, 2])
def test_every_rank_gets_the_roots_values_whatever_types_they_have(chunk, root):
    def body():
        mine = tensors(dist.get_rank() + 1)
        turned = wrap(np.full((2, 3), dist.get_rank() + 1, "f4").T)
        broadcast_coalesced(dist.group.WORLD, [*mine, turned], chunk, root)
        assert turned.shape == (3, 2)
        return [t.float().unique().tolist() for t in (*mine, turned)]

    whole = float(root + 1)
    want = [[whole]] * 5 + [[1.0], [], [whole]]
    assert on_ranks(body, 3) == [want] * 3


def test_messages_are_as_few_as_their_size_allows():
    def body(chunk):
        group, sent = dist.group.WORLD, []
        plain = group.broadcast

        class Counting:
            size, rank = group.size, group.rank

            def broadcast(self, flat, root):
                sent.append(flat.size)
                plain(flat, root)

        broadcast_coalesced(Counting(), [wrap(np.ones(n, "f4")) for n in (3, 1, 4, 2)], chunk)
        return sent

    assert on_ranks(lambda: body(16)) == [[4, 4, 2]] * 2
    assert on_ranks(lambda: body(1000)) == [[10]] * 2
    assert on_ranks(lambda: body(1000), 1) == [[]]  # alone nobody is told anything


def test_a_graph_that_has_saved_a_buffer_stays_usable():
    def body():
        x, buffer = dt.ones(2, requires_grad=True), dt.full((2,), 3.0)
        y = (x * buffer).sum()
        broadcast_coalesced(dist.group.WORLD, [buffer])
        y.backward()
        return x.grad.tolist()

    assert on_ranks(body) == [[3.0, 3.0]] * 2


@pytest.mark.parametrize("async_ops", [False, True])
def test_collectives_are_started_together(async_ops):
    def body():
        rank = dist.get_rank()
        a, b = dt.full((2,), rank + 1.0), dt.full((3,), 10.0 * rank)
        out = dt.zeros(4)
        with coalescing_manager(async_ops=async_ops) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
            dist.all_gather_into_tensor(out, dt.full((2,), float(rank)))
        assert len(manager.works) == 3
        manager.wait()
        return a.tolist(), b.tolist(), out.tolist()

    assert on_ranks(body) == [([3.0] * 2, [10.0] * 3, [0.0, 0.0, 1.0, 1.0])] * 2


def test_one_within_another_is_refused_and_the_group_goes_on():
    def body():
        with pytest.raises(ConfigError, match="non-empty op list at the start of coalescing"):
            with coalescing_manager():
                with coalescing_manager():
                    pass
        with pytest.raises(ZeroDivisionError), coalescing_manager():
            1 / 0
        t = dt.ones(1)
        with coalescing_manager():
            dist.all_reduce(t)
        return t.item()

    assert on_ranks(body) == [2.0, 2.0]
