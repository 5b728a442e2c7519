"""Objects with names, saved and restored together."""

from __future__ import annotations

import gc

import pytest

import disttrain as dt
from disttrain.autograd.cells import arrived, awaiting
from disttrain.distributed.objects import CheckpointManager, ObjectCheckpoint, latest, listing
from disttrain.graphs.cells import Container, GraphCell


@pytest.fixture(autouse=True)
def nothing_waits():
    awaiting().clear()


class CellCheckpoint(ObjectCheckpoint):
    """Of cells."""

    def is_leaf(self, value):
        return isinstance(value, GraphCell)

    def state(self, value):
        return value.value

    def put(self, value, state, name):
        value.move("assign", state)


class Count:
    """An iterator with a position."""

    def __init__(self):
        self.at = 0

    def __next__(self):
        self.at += 1
        return self.at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def made():
    return ObjectCheckpoint(model=dt.nn.Linear(2, 1), parts={"t": [dt.zeros(2)]}, it=Count())


def test_all_is_restored(tmp_path):
    first = made()
    next(first.it)
    first.parts["t"][0].fill_(3.0)
    path = first.save(tmp_path / "all")
    assert latest(tmp_path) == path == str(tmp_path / "all-1") == ObjectCheckpoint.latest(tmp_path)
    assert ObjectCheckpoint.value(tmp_path, "parts/t/0").tolist() == [3.0, 3.0]
    assert ("parts/t/0", [2]) in ObjectCheckpoint.shapes(path)
    assert listing(tmp_path).model_checkpoint_path == path and listing(tmp_path, "other") is None
    with pytest.raises(FileNotFoundError, match="Key z not found"):
        ObjectCheckpoint.value(path, "z")
    other = made()
    other.restore(path).assert_consumed()
    assert other.parts["t"][0].tolist() == [3.0, 3.0]
    assert other.it.at == other.save_counter == 1
    assert other.model.weight.tolist() == first.model.weight.tolist()


def test_matches_and_failures(tmp_path):
    path = made().write(tmp_path / "c")
    part = ObjectCheckpoint(it=Count())
    with pytest.raises(AssertionError, match="Unresolved object"):
        part.read(path).assert_consumed()
    with pytest.raises(AssertionError, match="1 Python objects"):
        ObjectCheckpoint(q=dt.ones(1)).read(path).assert_existing_objects_matched()
    path = ObjectCheckpoint(t=dt.ones(2)).write(tmp_path / "t")
    with pytest.raises(ValueError, match=r"incompatible tensor with shape \(2,\)"):
        ObjectCheckpoint(t=dt.ones(3)).read(path)
    with pytest.raises(ValueError, match="trackable"):
        ObjectCheckpoint(x=5)
    with pytest.raises(FileNotFoundError, match="Failed to find"):
        part.restore(str(tmp_path / "none"))
    assert part.restore(None).assert_consumed()


def test_a_manager_keeps_the_last(tmp_path):
    manager = CheckpointManager(made(), tmp_path, 2)
    assert manager.restore_or_initialize() is None
    for _ in range(3):
        manager.save()
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == ["checkpoint", "ckpt-2.objects", "ckpt-3.objects"]
    assert CheckpointManager(made(), tmp_path, 2).restore_or_initialize().endswith("ckpt-3")


def test_objects_may_have_the_names_of_methods(tmp_path):
    names = ("state", "held", "count", "children", "values", "put", "failed")
    first = ObjectCheckpoint(**{n: dt.full((2,), float(i)) for i, n in enumerate(names)})
    path = first.save(tmp_path / "c")
    other = ObjectCheckpoint(**{n: dt.zeros(2) for n in names})
    other.restore(path).assert_consumed()
    assert [int(vars(other)[n][0]) for n in names] == list(range(len(names)))


def test_what_is_made_later_is_restored_then(tmp_path):
    net = Container()
    net.w, net.parts = GraphCell(dt.tensor([1.0, 2.0])), [GraphCell(dt.tensor(3.0))]
    path = CellCheckpoint(net=net).write(tmp_path / "c")
    late = Container()
    status = CellCheckpoint(net=late).read(path)
    with pytest.raises(AssertionError, match="Unresolved object"):
        status.assert_consumed()
    late.w = GraphCell(dt.zeros(2))
    assert late.w.now().tolist() == [1.0, 2.0]
    late.w.move("add", dt.ones(2))
    late.parts = []
    late.parts.append(GraphCell(dt.tensor(0.0)))
    assert late.parts[0].now().tolist() == 3.0
    assert late.w.now().tolist() == [2.0, 3.0]
    status.assert_consumed()
    assert not awaiting()


def test_a_second_restore_takes_the_place_of_the_first(tmp_path):
    one, two = Container(), Container()
    one.w, two.w = GraphCell(dt.tensor(1.0)), GraphCell(dt.tensor(2.0))
    paths = [CellCheckpoint(net=n).write(tmp_path / str(i)) for i, n in enumerate((one, two))]
    late = Container()
    for path in paths:
        CellCheckpoint(net=late).read(path)
    assert len(awaiting()) == 1
    late.w = GraphCell(dt.tensor(0.0))
    assert late.w.now().tolist() == 2.0 and not awaiting()


def test_nothing_waits_for_objects_that_are_gone(tmp_path):
    net = Container()
    net.w = GraphCell(dt.tensor(1.0))
    path = CellCheckpoint(net=net).write(tmp_path / "c")
    late = Container()
    CellCheckpoint(net=late).read(path)
    assert awaiting()
    del late
    gc.collect()
    arrived()
    assert not awaiting()
