"""Copies of state dicts: what is copied, into which memory, and what stays shared."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import state_dict_loader
from disttrain.distributed.checkpoint.metadata import MetadataIndex
from disttrain.distributed.checkpoint.staging import (
    BlockingAsyncStager,
    DefaultStager,
    StagingOptions,
)
from disttrain.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from support.simulated import on_ranks as on_simulated

pytestmark = pytest.mark.simulated


def test_copies_that_come_as_futures_give_futures_of_both(tmp_path: Path):
    stager, value = DefaultStager(StagingOptions()), dt.ones(3)
    saved = dcp.async_save({"a": value}, checkpoint_id=tmp_path / "c", async_stager=stager)
    assert isinstance(saved, AsyncSaveResponse)
    assert saved.staging_completion.result() is None
    value.zero_()
    saved.upload_completion.result()
    target = {"a": dt.zeros(3)}
    dcp.load(target, checkpoint_id=tmp_path / "c")
    assert target["a"].tolist() == [1.0] * 3

    saved = dcp.async_save({"a": 1}, checkpoint_id=tmp_path / "d", async_stager=Refuses())
    for future in (saved.staging_completion, saved.upload_completion):
        with pytest.raises(Exception, match="no room"):
            future.result()


class Refuses(BlockingAsyncStager):
    def stage(self, state_dict):
        future: Future = Future()
        future.set_exception(ValueError("no room"))
        return future


def test_two_stagers_have_memory_of_their_own():
    first, second = (DefaultStager(StagingOptions(use_async_staging=False)) for _ in range(2))
    one, two = first.stage({"a": dt.ones(2)}), second.stage({"a": dt.zeros(2)})
    assert one["a"].tolist() == [1.0, 1.0] and two["a"].tolist() == [0.0, 0.0]
    plain = BlockingAsyncStager()
    one, two = plain.stage({"a": dt.ones(2)}), plain.stage({"a": dt.zeros(2)})
    assert one["a"].tolist() == [1.0, 1.0] and two["a"].tolist() == [0.0, 0.0]


def test_a_writer_may_make_the_copy(tmp_path: Path):
    class Doubling(dcp.FileSystemWriter):
        def stage(self, state_dict):
            return {k: v * 2 for k, v in super().stage(state_dict).items()}

    dcp.async_save({"a": dt.ones(2)}, storage_writer=Doubling(tmp_path)).result()
    assert state_dict_loader.load_from_keys("a", checkpoint_id=tmp_path)["a"].tolist() == [2.0, 2.0]


def test_results_inside_tuples_are_copied(tmp_path: Path):
    grown = dt.ones(2).requires_grad_() * 3
    dcp.async_save({"t": (grown, [grown])}, checkpoint_id=tmp_path).result()
    target = {"t": None}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["t"][0].tolist() == [3.0, 3.0] and target["t"][1][0].tolist() == [3.0, 3.0]


def plain():
    return DefaultStager(StagingOptions(use_async_staging=False))


def test_memory_is_used_again_while_shapes_and_types_stay():
    stager = plain()
    first = stager.stage({"a": dt.ones(3), "b": [dt.zeros(2)]})
    places = first["a"].data_ptr(), first["b"][0].data_ptr()
    second = stager.stage({"a": dt.full((3,), 2.0), "b": [dt.ones(2)]})
    assert (second["a"].data_ptr(), second["b"][0].data_ptr()) == places
    assert first["a"].tolist() == [2.0] * 3  # the copy before is written over
    third = stager.stage({"a": dt.ones(4), "b": [dt.ones(2, dtype=dt.float64)]})
    assert third["a"].data_ptr() != places[0] and third["b"][0].dtype is dt.float64
    assert len(stager.kept) == 2
    stager.stage({"a": dt.ones(4)})
    assert len(stager.kept) == 1
    stager.close()
    stager.synchronize_staging()
    assert not stager.kept


def test_a_blocking_stager_keeps_memory_only_where_it_is_asked_to():
    for cached in (False, True):
        stager = BlockingAsyncStager(cache_staged_state_dict=cached)
        one, two = stager.stage({"a": dt.ones(2)}), stager.stage({"a": dt.zeros(2)})
        assert (one["a"].data_ptr() == two["a"].data_ptr()) is cached


def test_what_stands_in_several_places_is_copied_once():
    t, inner = dt.ones(2), {"x": 1}
    found = plain().stage({"a": t, "b": (t,), "c": inner, "d": inner})
    assert found["a"] is found["b"][0] and found["a"] is not t and found["c"] is found["d"]
    inner["x"] = 2
    t.zero_()
    assert found["c"] == {"x": 1} and found["a"].tolist() == [1.0, 1.0]


def test_gradients_are_asked_for_as_before_and_graphs_are_left_behind():
    leaf = dt.ones(2, requires_grad=True)
    found = plain().stage({"leaf": leaf, "plain": dt.ones(1), "meta": dt.ones(1, device="meta")})
    assert found["leaf"].requires_grad and found["leaf"].is_leaf
    assert not found["plain"].requires_grad and found["meta"].is_meta
    nested = plain().stage({"o": OrderedDict(b=[1, (2, dt.ones(1))])})
    assert nested["o"]["b"][1][1].tolist() == [1.0]


def test_an_error_of_the_copy_comes_with_its_future():
    class Odd:
        def __deepcopy__(self, memo):
            raise ValueError("not to be copied")

    future = DefaultStager().stage({"a": Odd()})
    with pytest.raises(ValueError, match="not to be copied"):
        future.result()


def test_of_a_sharded_tensor_this_ranks_pieces_are_copied():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        t = distribute_tensor(dt.arange(6.0), mesh, [Shard(0)])
        found = plain().stage({"t": t})["t"]
        t.to_local().zero_()
        (chunk,) = found.__create_chunk_list__()
        piece = found.__get_tensor_shard__(MetadataIndex("t", chunk.offsets))
        return found.size(), tuple(chunk.offsets), piece.tolist()

    assert on_simulated(body) == [((6,), (0,), [0.0, 1.0, 2.0]), ((6,), (3,), [3.0, 4.0, 5.0])]
