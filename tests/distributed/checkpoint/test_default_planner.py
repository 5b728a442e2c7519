"""Plans by hand: which items a rank has, who writes what, which reads fill what."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import (
    default_planner,
)
from disttrain.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    EmptyStateDictLoadPlanner,
    LoadReport,
    check_agreement,
    compare,
    create_default_local_load_plan,
    create_default_local_save_plan,
    describe,
    flatten_state_dict,
    read_items,
    share_out,
    write_items,
)
from disttrain.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from disttrain.distributed.checkpoint.planner import LoadItemType, SavePlan, WriteItemType
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError, LaunchError, SerializationError

pytestmark = pytest.mark.simulated


def on_ranks(body: Callable[[], None], world_size: int) -> None:
    """Simulated ranks with a process group."""

    def with_group() -> None:
        dist.init_process_group()
        body()
        dist.destroy_process_group()

    simulate(with_group, world_size=world_size)


def state(k: float = 1.0) -> dict:
    return {"a": dt.full((4, 3), k), "b": dt.arange(5.0) * k, "n": int(7 * k), "o": [k, "x"]}


class Renaming(dcp.DefaultLoadPlanner):
    """Loads under other names; reads what is no tensor as the documentation shows."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.original_state_dict = state_dict
        renamed = {f"foo_{k}": v for k, v in state_dict.items()}
        self.state_dict, self.mappings = flatten_state_dict(renamed)
        self.metadata, self.is_coordinator = metadata, is_coordinator

    def load_bytes(self, read_item, value):
        name = read_item.dest_index.fqn[4:]
        self.original_state_dict[name] = serialize.load(value, weights_only=False)


class Named(dcp.DefaultSavePlanner):
    """Saves under other names, and numbers by ``save``."""

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        renamed = {f"foo_{k}": v for k, v in state_dict.items()}
        super().set_up_planner(renamed, storage_meta, is_coordinator)

    def transform_object(self, write_item, object):
        if write_item.type is WriteItemType.BYTE_IO and write_item.index.fqn == "foo_n":
            out = io.BytesIO()
            serialize.save(object, out)
            return out
        return super().transform_object(write_item, object)


class Narrow(dcp.DefaultSavePlanner):
    """Saves tensors with fewer bits."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        for item in plan.items:
            if item.tensor_data is not None:
                item.tensor_data.properties.dtype = dt.float16
        return plan

    def resolve_data(self, write_item):
        found = super().resolve_data(write_item)
        return found if write_item.type is WriteItemType.BYTE_IO else found.to(dt.float16)


class Widen(dcp.DefaultLoadPlanner):
    """Reads into memory of its own, and puts it where it belongs afterwards."""

    def resolve_tensor(self, read_item):
        return dt.empty(super().resolve_tensor(read_item).shape, dtype=dt.float16)

    def commit_tensor(self, read_item, tensor):
        super().resolve_tensor(read_item).copy_(tensor)


def test_planners_that_rename_read_what_is_no_tensor_by_load(tmp_path: Path):
    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path / "c", planner=Named())
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path / "c", planner=Renaming())
        assert target["a"].sum().item() == 12.0 and target["n"] == 7 and target["o"] == [1.0, "x"]

    on_ranks(body, world_size=2)


def test_planners_that_convert_by_resolving_and_committing(tmp_path: Path):
    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path, planner=Narrow())
        about = dcp.FileSystemReader(tmp_path).read_metadata()
        assert about.state_dict_metadata["a"].properties.dtype == dt.float16
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path, planner=Widen())
        assert target["b"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and target["b"].dtype == dt.float32

    on_ranks(body, world_size=2)


def test_planners_that_share_the_work_out_their_own_way(tmp_path: Path):
    class Turns(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans):
            items, n = all_plans[0].items, len(all_plans)
            return super().create_global_plan(
                [dataclasses.replace(p, items=items[r::n]) for r, p in enumerate(all_plans)]
            )

    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path, planner=Turns())
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path)
        assert target["a"].sum().item() == 12.0 and target["o"] == [1.0, "x"]

    on_ranks(body, world_size=3)


def test_a_sharded_tensor_in_a_tuple_is_refused_when_it_is_saved(tmp_path: Path):
    def body() -> None:
        mesh = init_device_mesh("cpu", (2,))
        dcp.save({"t": (distribute_tensor(dt.ones(4), mesh, [Shard(0)]),)}, checkpoint_id=tmp_path)

    with pytest.raises(LaunchError, match="a tuple with a sharded tensor"):
        on_ranks(body, world_size=2)
    assert not list(tmp_path.iterdir())


class Rows:
    """A tensor of which a rank holds some rows."""

    dtype, requires_grad = dt.float32, False

    def __init__(self, full, *cuts):
        self.full, self.cuts = full, cuts

    def size(self):
        return dt.Size(self.full.shape)

    def __create_chunk_list__(self):
        width = self.full.shape[1:]
        return [
            ChunkStorageMetadata(dt.Size((a, *(0 for _ in width))), dt.Size((b - a, *width)))
            for a, b in self.cuts
        ]

    def __get_tensor_shard__(self, index):
        a = index.offset[0]
        return self.full[a : a + {x: y - x for x, y in self.cuts}[a]]


def plan_of(state):
    return create_default_local_save_plan(state)


def stored(*chunks, size=(4,), kind=dt.float32):
    boxes = [ChunkStorageMetadata(dt.Size(at), dt.Size(n)) for at, n in chunks]
    return TensorStorageMetadata(TensorProperties(kind), dt.Size(size), boxes)


def test_items_of_whole_tensors_pieces_and_other_values():
    (whole,) = write_items("w", dt.ones(2, 3))
    assert (whole.type, whole.index) == (WriteItemType.TENSOR, MetadataIndex("w", (0, 0)))
    assert whole.tensor_storage_size() == 24 and tuple(whole.tensor_data.size) == (2, 3)
    first, second = write_items("r", Rows(dt.ones(5, 2), (0, 2), (3, 5)))
    assert first.type is WriteItemType.SHARD and second.index.offset == (3, 0)
    assert (first.index.index, second.index.index) == (0, 1)
    assert tuple(second.tensor_data.chunk.sizes) == (2, 2)
    (value,) = write_items("n", {"a": 1})
    assert value.type is WriteItemType.BYTE_IO and value.tensor_storage_size() is None
    assert write_items("e", Rows(dt.ones(4, 2), (2, 2))) == []  # an empty piece of what is not
    assert len(write_items("e", dt.ones(0, 2))) == 1  # but what is empty is there


def test_what_has_no_numbers_is_refused():
    with pytest.raises(ConfigError, match="'w' is on the meta device and has no numbers"):
        write_items("w", dt.ones(2, device="meta"))
    with pytest.raises(ConfigError, match=r"'t' is a list with a sharded tensor of shape \[4, 1\]"):
        write_items("t", (1, [Rows(dt.ones(4, 1), (0, 2))]))


def test_small_tensors_are_written_by_the_lowest_rank_and_large_ones_in_turn(monkeypatch):
    state = {"a": dt.ones(8), "b": dt.ones(6), "c": dt.ones(4), "n": 1}

    def written(**options):
        plans = share_out([plan_of(state), plan_of(state)], **options)
        return [sorted(i.index.fqn for i in p.items) for p in plans]

    assert written() == [["a", "b", "c", "n"], []]
    monkeypatch.setattr(default_planner, "SHARED_OUT_FROM", 1)
    assert written() == [["a", "n"], ["b", "c"]]  # 32 bytes and 40
    assert written(to_lowest_rank=True) == [["a", "b", "c", "n"], []]


def test_what_one_rank_alone_holds_counts_as_its_load(monkeypatch):
    monkeypatch.setattr(default_planner, "SHARED_OUT_FROM", 1)
    shared = {"a": dt.ones(2)}
    plans = share_out([plan_of({**shared, "own": dt.ones(9)}), plan_of(shared), plan_of(shared)])
    assert [[i.index.fqn for i in p.items] for p in plans] == [["own"], ["a"], []]


def test_pieces_must_make_a_tensor_up():
    full = dt.ones(4, 2)
    halves = [plan_of({"w": Rows(full, (0, 2))}), plan_of({"w": Rows(full, (2, 4)), "n": 1})]
    about = describe(halves)
    assert isinstance(about["n"], BytesStorageMetadata)
    assert [tuple(c.offsets) for c in about["w"].chunks] == [(0, 0), (2, 0)]
    with pytest.raises(ConfigError, match="'w' is not whole: its pieces have 4 of 8 elements"):
        describe(halves[:1])
    with pytest.raises(ConfigError, match="overlap"):
        describe([*halves, plan_of({"w": Rows(full, (1, 3))})])


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            dt.ones(3),
            r"a tensor of shape \[2\] and .*float32 on rank 0 and a tensor of shape \[3\]",
        ),
        (dt.ones(2, dtype=dt.float64), "float32 on rank 0 and .*float64 on rank 1"),
        (1, "on rank 0 and no tensor on rank 1; all ranks must agree"),
    ],
)
def test_ranks_that_hold_different_things_under_one_name(other, told):
    with pytest.raises(ConfigError, match=told):
        check_agreement([plan_of({"w": dt.ones(2)}), plan_of({"w": other})])
    check_agreement([plan_of({"w": dt.ones(2)}), plan_of({"x": other}), SavePlan([])])


def test_what_a_checkpoint_and_a_state_dict_do_not_have_in_common():
    about = Metadata({"w": stored(((0,), (4,))), "n": BytesStorageMetadata(), "x": stored()})
    report = compare({"w": dt.ones(5), "n": dt.ones(2), "v": 1}, about)
    assert (report.missing, report.unexpected) == (["v"], ["x"])
    assert len(report.mismatched) == 1 and "for w" in report.mismatched[0]
    assert "is a tensor of shape [4] in the checkpoint and a int here" in str(
        compare({"w": 1}, about)
    )
    assert str(LoadReport()) == "all there"
    assert (
        str(LoadReport(missing=list("abcdefghij"))) == "missing: 10 (a, b, c, d, e, f, g, h, ...)"
    )


def test_all_that_does_not_fit_is_said_at_once():
    about = Metadata({"w": stored(((0,), (4,)))})
    state = {"w": dt.ones(5), **{f"k{i}": 1 for i in range(13)}}
    with pytest.raises(
        SerializationError, match=r"13 of 14; allow_partial_load.*Size mismatch"
    ) as e:
        create_default_local_load_plan(state, about)
    assert "k11, ..." in str(e.value) and "k12" not in str(e.value)
    with pytest.raises(SerializationError, match="does not fit: Size mismatch"):
        create_default_local_load_plan(state, about, strict=False)
    plan = create_default_local_load_plan({"w": dt.ones(4), "k": 1}, about, strict=False)
    assert [i.dest_index.fqn for i in plan.items] == ["w"]


def test_reads_are_where_pieces_meet():
    about = stored(((0,), (3,)), ((3,), (5,)), size=(8,))
    reads = read_items("w", about, Rows(dt.ones(8), (2, 6)))
    found = [(i.storage_index.offset, i.storage_offsets, i.dest_offsets, i.lengths) for i in reads]
    assert found == [((0,), (2,), (0,), (1,)), ((3,), (0,), (1,), (3,))]
    (one,) = read_items("n", BytesStorageMetadata(), dt.ones(2))
    assert one.type is LoadItemType.BYTE_IO


def test_a_save_planner_writes_values_as_bytes_and_pieces_as_they_lie():
    planner = DefaultSavePlanner()
    full = dt.arange(8.0).reshape(4, 2)
    planner.set_up_planner({"m": {"r": Rows(full, (1, 3))}, "n": [1, "x"], "e": {}})
    plan = planner.create_local_plan()
    by_name = {i.index.fqn: planner.resolve_data(i) for i in plan.items}
    assert sorted(by_name) == ["e", "m.r", "n"] and by_name["m.r"].tolist() == [[2, 3], [4, 5]]
    assert serialize.packed.unpack(by_name["n"].getvalue(), "here") == [1, "x"]
    assert plan.planner_data["m.r"] == ("m", "r")
    flat = DefaultSavePlanner(flatten_state_dict=False)
    flat.set_up_planner({"m": {"w": dt.ones(1)}})
    assert [i.type for i in flat.create_local_plan().items] == [WriteItemType.BYTE_IO]
    assert flat.create_global_plan([flat.plan])[1].planner_data is None


def test_the_lowest_ranks_paths_count():
    plans = [SavePlan([], planner_data={"a.0": ("a", k)}) for k in ("0", 0)]
    _, about = DefaultSavePlanner().create_global_plan(plans)
    assert about.planner_data == {"a.0": ("a", "0")}


def test_a_load_planner_makes_room_and_fills_boxes():
    about = Metadata(
        {"w": stored(((0,), (4,))), "s.m": stored(((0,), (4,)), kind=dt.float64),
         "s.n": BytesStorageMetadata()},
        {"w": ("w",), "s.m": ("s", "m"), "s.n": ("s", "n")},
    )  # fmt: skip
    state = {"w": dt.ones(4, device="meta"), "s": {}}
    planner = DefaultLoadPlanner()
    planner.set_up_planner(state, about)
    assert (
        not state["w"].is_meta and state["s"]["m"].dtype is dt.float64 and state["s"]["n"] is None
    )
    items = {i.dest_index.fqn: i for i in planner.create_local_plan().items}
    planner.load_bytes(items["s.n"], io.BytesIO(serialize.packed.pack(5)))
    assert state["s"]["n"] == 5
    part = dataclasses.replace(items["w"], dest_offsets=dt.Size((1,)), lengths=dt.Size((2,)))
    planner.resolve_tensor(part).fill_(7.0)
    state["w"][0] = state["w"][3] = 0.0
    assert state["w"].tolist() == [0.0, 7.0, 7.0, 0.0]
    assert planner.resolve_tensor(items["w"]).shape == (4,) and str(planner.report) == "all there"


def test_an_empty_state_dict_gets_what_lies_under_keys():
    about = Metadata(
        {"a.w": stored(((0,), (4,))), "ab.w": stored(((0,), (4,))), "a.n": BytesStorageMetadata()},
        {"a.w": ("a", "w"), "ab.w": ("ab", "w"), "a.n": ("a", "n")},
    )
    for keys, names in (({"a"}, ["a.w", "a.n"]), ({"a.n"}, ["a.n"]), ([], []), (None, None)):
        state, planner = {}, EmptyStateDictLoadPlanner(keys)
        planner.set_up_planner(state, about)
        wanted = list(about.state_dict_metadata) if names is None else names
        assert list(planner.state_dict) == wanted
        assert list(state) == list(dict.fromkeys(n.split(".")[0] for n in wanted))
    with pytest.raises(ConfigError, match="fills an empty state dict"):
        EmptyStateDictLoadPlanner().set_up_planner({"a": 1}, about)
