"""Loads as programs ask for them: in place, into objects with a state, by keys, by older names."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import background as backgrounds
from disttrain.distributed.checkpoint import state_dict_loader
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def test_part_of_a_checkpoint_without_a_state_dict(tmp_path: Path):
    dcp.save({"m": {"w": dt.ones(2), "v": dt.zeros(1)}, "n": 3}, checkpoint_id=tmp_path)
    found = state_dict_loader.load_from_keys({"m.w", "n"}, checkpoint_id=tmp_path)
    assert found["m"]["w"].tolist() == [1.0, 1.0] and found["n"] == 3 and list(found["m"]) == ["w"]


class Counter:
    """An object with a state."""

    def __init__(self, n: int = 0) -> None:
        self.n, self.seen = n, dt.zeros(2)

    def state_dict(self) -> dict:
        return {"n": self.n, "seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        self.n = state["n"]


def test_tensors_are_filled_in_place_and_other_values_replaced(tmp_path: Path):
    dcp.save({"w": dt.ones(2), "n": 3, "l": [dt.ones(1), 2]}, checkpoint_id=tmp_path)
    w = dt.zeros(2, dtype=dt.float64)
    target = {"w": w, "n": 0, "l": [dt.zeros(1), 0]}
    assert dcp.load(target, checkpoint_id=tmp_path) is None
    assert target["w"] is w and w.tolist() == [1.0, 1.0] and w.dtype is dt.float64
    assert target["n"] == 3 and target["l"][0].item() == 1.0 and target["l"][1] == 2


def test_objects_are_given_their_state(tmp_path: Path):
    saved = Counter(5)
    saved.seen.fill_(2.0)
    dcp.save({"c": saved}, checkpoint_id=tmp_path)
    loaded = Counter()
    target = {"c": loaded}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["c"] is loaded and loaded.n == 5 and loaded.seen.tolist() == [2.0, 2.0]


def test_who_reads_from_where_must_be_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="neither checkpoint_id nor storage_reader given"):
        dcp.load({})
    with pytest.raises(dcp.CheckpointException, match="load: plan failed"):
        dcp.load({}, checkpoint_id=tmp_path / "nothing")
    dcp.save({"a": 1}, checkpoint_id=tmp_path / "one")
    dcp.save({"a": 2}, checkpoint_id=tmp_path / "two")
    reader = dcp.FileSystemReader(tmp_path / "one")
    for where, value in ((None, 1), (tmp_path / "two", 2)):
        target = {"a": 0}
        dcp.load(target, storage_reader=reader, checkpoint_id=where)
        assert target == {"a": value}


def test_all_or_one_key_as_a_nested_dict(tmp_path: Path):
    dcp.save({"m": {"w": dt.ones(1)}, "n": 3}, checkpoint_id=tmp_path)
    assert state_dict_loader.load_from_keys("n", checkpoint_id=tmp_path) == {"n": 3}
    assert sorted(state_dict_loader.load_from_keys(checkpoint_id=tmp_path)) == ["m", "n"]


def _older(target: dict, reader: dcp.FileSystemReader) -> None:
    with pytest.warns(FutureWarning, match="use 'load'"):
        dcp.load_state_dict(target, reader)


@pytest.mark.parametrize(
    "way", [_older, state_dict_loader._load_state_dict], ids=["older", "oldest"]
)
def test_older_forms_also_wait_for_a_save_that_runs(tmp_path: Path, way):
    """The save of a thread ends while the load waits for it."""
    go = threading.Event()

    def slow(group: object) -> None:
        go.wait(60)
        dcp.state_dict_saver.write(
            lambda: {"a": 7}, dcp.FileSystemWriter(tmp_path), backgrounds_together(), None
        )

    backgrounds.background(None, slow)
    threading.Timer(0.1, go.set).start()
    target = {"a": 0}
    way(target, dcp.FileSystemReader(tmp_path))
    assert target == {"a": 7}


def backgrounds_together() -> object:
    return dcp.state_dict_saver.Together(None)
