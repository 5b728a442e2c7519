"""Where tensors lie, and tensors of blocks: in one process and over ranks."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import func as F
from disttrain.context import Rank, attach
from disttrain.distributed import spmd
from disttrain.distributed.spmd import Mesh, OneDevice, OverMesh, Spec, arrays, simulate
from disttrain.distributed.tensor import DTensor, Partial
from support.simulated import on_ranks


@pytest.fixture
def four():
    with attach(Rank()):
        simulate(4)
        yield OverMesh(Mesh.of((2, 2), ("x", "y"), None), Spec("x"))


def test_in_one_process_a_tensor_is_whole(four):
    x = dt.arange(4.0)
    laid = spmd.lay(x, four)
    assert laid.tolist() == x.tolist() and spmd.layout_of(laid) is four
    assert spmd.layout_of(x) is None and not arrays.is_placed(x) and arrays.is_placed(laid)
    found = spmd.shards(laid, four)
    assert [s.data.tolist() for s in found] == [[0.0, 1.0], [0.0, 1.0], [2.0, 3.0], [2.0, 3.0]]
    assert [s.replica_id for s in found] == [0, 1, 0, 1]
    with pytest.raises(spmd.Indivisible):
        spmd.lay(dt.arange(3.0), four)
    inside = F.vmap(lambda v: spmd.lay(v, four))(dt.ones(2, 4))
    assert inside.tolist() == [[1.0] * 4] * 2
    parts = {d: np.full(2, d.id) for d in four.device_set}
    assert set(spmd.assembled((4,), four, parts).tolist()) <= {0, 1, 2, 3}
    assert arrays.of_local(np.ones(4), four).tolist() == [1.0] * 4


def test_over_ranks_it_is_a_dtensor():
    def body():
        me = dist.get_rank()
        layout = OverMesh(Mesh.of((2,), ("x",), None), Spec("x"))
        x = spmd.lay(dt.arange(4.0), layout)
        assert isinstance(x, DTensor) and not arrays.is_here(x) and arrays.over_ranks([x])
        assert spmd.layout_of(x * 2) == (layout.mesh, ("x",))
        (own,) = spmd.shards(x, layout)
        everything = spmd.shards(x, layout, everywhere=True)
        assert [s.data is None for s in everything] == [me == 1, me == 0]
        assert spmd.lay(x, OneDevice(spmd.devices()[me])).tolist() == [0.0, 1.0, 2.0, 3.0]
        joined = spmd.assembled((4,), layout, {spmd.devices()[me]: np.full(2, me)})
        part = DTensor.from_local(dt.ones(2), layout.mesh.ranks(), [Partial()])
        assert arrays.summed(part).to_local().tolist() == [2.0, 2.0]
        assert arrays.is_here(part) and arrays.summed(own.data) is own.data
        return own.data.tolist(), joined.full_tensor().tolist()

    assert on_ranks(body) == [([0.0, 1.0], [0, 0, 1, 1]), ([2.0, 3.0], [0, 0, 1, 1])]
