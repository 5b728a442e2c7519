"""Parameters spread over other ranks, as plain ones over this rank's part."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.ddp.reducer.dtensor_params import Part, is_spread, part_of, taking_parts
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import DTensor, Shard, distribute_tensor
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def spread():
    mesh = init_device_mesh("cpu", (2,))
    return nn.Parameter(distribute_tensor(dt.arange(4.0), mesh, [Shard(0)]))


def test_plain_parameters_are_themselves():
    p = nn.Parameter(dt.ones(2))
    assert part_of(p) is p and not is_spread(p)
    store = lambda leaf, g: None
    assert taking_parts(p, store) is store


def test_a_part_shares_memory_and_the_accumulator():
    def body():
        whole = spread()
        part = part_of(whole)
        assert is_spread(whole) and isinstance(part, Part) and part.whole is whole
        assert part.graph_node() is whole.graph_node()
        part.array[...] = 7.0
        return whole.full_tensor().tolist(), part.shape

    assert on_ranks(body) == [([7.0] * 4, (2,))] * 2


def test_gradients_written_to_the_part_show_on_the_whole_and_back():
    def body():
        whole = spread()
        part = part_of(whole)
        assert part._grad is None
        mine = dt.full((2,), 3.0)
        part._grad = mine
        assert part._grad is mine and isinstance(whole.grad, DTensor)
        assert whole.grad.full_tensor().tolist() == [3.0] * 4
        kept = whole.grad
        part._grad = mine  # the same: nothing changes
        assert whole.grad is kept
        part._grad = None
        assert whole.grad is None
        (whole * 2).sum().backward()
        assert part._grad.tolist() == [2.0, 2.0] and part._grad is part._grad
        return True

    assert on_ranks(body) == [True, True]


def test_a_part_whose_memory_has_moved_takes_the_gradient_along():
    def body():
        whole = spread()
        part = part_of(whole)
        part._grad = dt.ones(2)
        part._grad.array = dt.full((2,), 5.0).array  # as buckets do it
        assert part._grad.tolist() == [5.0, 5.0]
        return whole.grad.full_tensor().tolist()

    assert on_ranks(body) == [[5.0] * 4] * 2


def test_stores_are_given_this_ranks_part_of_a_gradient():
    def body():
        whole, seen = spread(), []
        part = part_of(whole)
        store = taking_parts(part, lambda leaf, g: seen.append((leaf is part, g.tolist())))
        g = distribute_tensor(dt.arange(4.0), init_device_mesh("cpu", (2,)), [Shard(0)])
        store(whole, g)
        store(whole, g.array)
        return seen

    assert on_ranks(body) == [[(True, [0, 1])] * 2, [(True, [2, 3])] * 2]
