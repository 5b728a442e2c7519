"""What a rank holds of a value: whole, in one piece, in pieces of one's own, or nothing."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.checkpoint.metadata import ChunkStorageMetadata
from disttrain.distributed.checkpoint.state.pieces import is_tensor, piece, pieces_of
from disttrain.distributed.mesh import DeviceMesh, init_device_mesh
from disttrain.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from disttrain.errors import ConfigError
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


class Own:
    """A sharded tensor of a program's."""

    dtype, requires_grad = dt.float32, True

    def size(self):
        return dt.Size((4,))

    def __create_chunk_list__(self):
        return [ChunkStorageMetadata(dt.Size((k,)), dt.Size((1,))) for k in (0, 3)]

    def __get_tensor_shard__(self, index):
        return dt.full((1,), float(index.offset[0]), requires_grad=True)


def test_a_plain_tensor_is_whole_and_shares_its_memory():
    t = dt.ones(2, 3, requires_grad=True)
    held = pieces_of(t)
    assert (held.size, held.boxes, held.whole) == ((2, 3), [((0, 0), (2, 3))], True)
    assert held.properties.requires_grad
    part = piece(t, "t", None)
    assert part.data_ptr() == t.data_ptr() and not part.requires_grad


def test_what_has_the_methods_is_sharded():
    held = pieces_of(Own())
    assert (held.size, held.whole) == ((4,), False) and held.properties.requires_grad
    assert held.boxes == [((0,), (1,)), ((3,), (1,))]
    part = piece(Own(), "o", (3,))
    assert part.tolist() == [3.0] and not part.requires_grad


def test_what_is_no_tensor():
    assert [is_tensor(v) for v in (dt.ones(1), Own(), [dt.ones(1)], 3, Own)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert pieces_of([1]) is None and pieces_of(Own) is None


def test_a_rank_holds_a_box_of_a_dtensor():
    def body():
        mesh = init_device_mesh("cpu", (2, 2))
        t = distribute_tensor(dt.arange(15.0).reshape(3, 5), mesh, [Shard(0), Shard(1)])
        (box,) = pieces_of(t).boxes
        part = piece(t, "t", box[0])
        same = distribute_tensor(dt.ones(3), mesh, [Replicate(), Replicate()])
        assert pieces_of(same).boxes == [((0,), (3,))] and not pieces_of(same).whole
        return box, part.tolist()

    first, second, third, fourth = on_ranks(body, 4)
    assert first == (((0, 0), (2, 3)), [[0, 1, 2], [5, 6, 7]])
    assert second == (((0, 3), (2, 2)), [[3, 4], [8, 9]])
    assert third == (((2, 0), (1, 3)), [[10, 11, 12]]) and fourth[0] == ((2, 3), (1, 2))


def test_a_rank_outside_of_the_mesh_holds_nothing():
    def body():
        mesh = DeviceMesh("cpu", [0, 1])
        t = distribute_tensor(dt.ones(4), mesh, [Shard(0)]) if dist.get_rank() < 2 else None
        if t is None:
            t = DTensor.from_local(dt.ones(0), mesh, [Shard(0)], run_check=False, shape=(4,),
                                   stride=(1,))  # fmt: skip
        return pieces_of(t).boxes

    assert on_ranks(body, 3) == [[((0,), (2,))], [((2,), (2,))], []]


def test_parts_of_a_sum_are_no_pieces():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        t = DTensor.from_local(dt.ones(2), mesh, [Partial()])
        with pytest.raises(ConfigError, match="every rank holds a part of a sum"):
            pieces_of(t)

    on_ranks(body)
