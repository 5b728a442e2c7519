"""When a rank records: levels, windows of steps, ranks, wrong arguments, threads."""

from __future__ import annotations

import json
import os
import threading

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain import context
from disttrain.errors import ConfigError
from disttrain.record import recording, rows
from disttrain.record.reader import read
from support.recordings import only, train

pytestmark = pytest.mark.simulated


def test_levels_are_one_inside_the_other(tmp_path):
    kinds = []
    for level in rows.LEVELS:
        train(tmp_path / level, level)
        kinds.append({r.kind for r in only(tmp_path / level)})
    assert kinds[0] < kinds[1] < kinds[2]


@pytest.mark.parametrize("level", rows.LEVELS)
def test_a_window_of_steps(tmp_path, level):
    dt.manual_seed(0)
    w = dt.zeros(3, requires_grad=True)
    optimizer = dt.optim.SGD([w], lr=0.1)
    with dt.record(tmp_path, level, steps=(2, 4)):
        for _ in range(6):
            (w * w).sum().backward()
            optimizer.step()
    assert {r.step for r in only(tmp_path)} == {2, 3}


def test_nothing_is_left_on_afterwards(tmp_path):
    train(tmp_path)
    me = context.current()
    assert not context.thread.stack
    assert "record" not in me.slots and context.REPEATABLE_SLOT not in me.slots


def test_steps_go_on_from_the_first(tmp_path):
    train(tmp_path, steps=2, first_step=7)
    assert {r.step for r in only(tmp_path)} == {7, 8}


def test_about_says_what_ran(tmp_path):
    train(tmp_path, "modules", steps=1)
    told = json.loads((tmp_path / rows.RECORD).read_text())
    assert (told["version"], told["world"], told["level"]) == (rows.VERSION, 1, "modules")
    assert set(told["versions"]) == {"python", "numpy", "disttrain"}


def test_ranks_that_are_not_asked_record_nothing(tmp_path):
    def body():
        dist.init_process_group()
        with dt.record(tmp_path, ranks=[1]):
            dt.ones(2).add(1)

    dist.simulate(body, 3)
    assert list(read(str(tmp_path)).streams) == [1]
    assert not os.path.exists(tmp_path / "rank_0.bin")


def test_simulated_ranks_record_apart(tmp_path):
    def body():
        dist.init_process_group()
        me = dist.get_rank()
        with dt.record(tmp_path):
            for _ in range(me + 1):
                dt.ones(2).add(1)

    dist.simulate(body, 3)
    assert [len(s) for s in read(str(tmp_path)).streams.values()] == [1, 2, 3]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"level": "all"}, "one of collectives, modules, ops"),
        ({"steps": (3, 3)}, "first < end"),
        ({"steps": (3,)}, "first < end"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, given, said):
    with pytest.raises(ConfigError, match=said):
        dt.record(tmp_path, **given)


def test_one_recording_at_a_time(tmp_path):
    with dt.record(tmp_path / "a"):
        with pytest.raises(ConfigError, match="records already"):
            dt.record(tmp_path / "b").__enter__()
    with dt.record(tmp_path / "b"):
        dt.ones(1).add(1)
    assert len(only(tmp_path / "b")) == 1


def test_an_error_ends_the_recording(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with dt.record(tmp_path):
            dt.ones(2).add(1)
            1 / 0
    assert [r.name for r in only(tmp_path)] == ["add"]
    assert not context.thread.stack


def test_other_threads_go_on(tmp_path):
    found = []
    with dt.record(tmp_path):
        thread = threading.Thread(target=lambda: found.append(dt.ones(2).add(1).tolist()))
        thread.start()
        thread.join()
    assert found == [[2.0, 2.0]]


def test_it_works_from_the_settings(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(recording.atexit, "register", ended.append)
    recording.begin()
    assert not ended
    monkeypatch.setenv("DISTTRAIN_RECORD_DIR", str(tmp_path))
    monkeypatch.setenv("DISTTRAIN_RECORD", "modules")
    monkeypatch.setenv("DISTTRAIN_RECORD_STEPS", "0:2")
    monkeypatch.setenv("DISTTRAIN_GENERATION", "3")
    recording.begin()
    dt.nn.Linear(2, 2)(dt.ones(1, 2))
    ended[0]()
    assert read(str(tmp_path / "attempt_2")).level == "modules"


@pytest.mark.parametrize("text", ["3", "5:3", "a:b", ":"])
def test_steps_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="A:B"):
        recording.parse_steps(text)


def test_lists_of_ranks():
    assert recording.parse_ranks("0, 3") == (0, 3)
    assert recording.parse_ranks("") is None
    with pytest.raises(ConfigError, match="numbers such as"):
        recording.parse_ranks("0;3")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written into"), dt.record(tmp_path / "file"):
        pass
    with (
        pytest.raises(ConfigError, match="cannot be written into"),
        dt.record(tmp_path / "file" / "run"),
    ):
        pass
