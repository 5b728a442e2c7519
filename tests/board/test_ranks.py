"""The ranks of a run from its black boxes: rows, rates between two looks, the timeline."""

from __future__ import annotations

import os
import time

import pytest

from disttrain.board import ranks
from disttrain.board.ranks import Watcher
from disttrain.board.runs import Run
from disttrain.comm.job.blackbox import MARK, PID, Box


@pytest.fixture
def run(tmp_path):
    """A run of two ranks on this host, which are this process: (the run, its box, recorders)."""
    path = tmp_path / "blackbox"
    box = Box.create(2, {"host": "here"}, fd=os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    made = [box.recorder(r) for r in range(2)]
    yield Run(".", tmp_path, 0.0, False, False, (str(path),)), box, made
    box.close()


def begun(rank, seq, text="all_reduce(x)"):
    return rank.begin(
        seq, MARK.pack(10, rank.text(text), rank.group("g", range(2)), -1, 2, 11, 1, 1)
    )


def test_spans_are_told_by_the_clock_of_the_wall(run):
    found, _, (one, two) = run
    before = time.time() * 1e3
    word = begun(one, 1)
    time.sleep(0.003)
    one.end(word)
    one.label = one.text("bucket 0")
    begun(two, 1)
    told = Watcher().look(found)
    done, open_one = told["spans"]
    assert told["live"] and [r["rank"] for r in told["ranks"]] == [0, 1]
    assert (done["rank"], done["verb"], done["group"], done["state"]) == (
        0,
        "all_reduce",
        "g",
        "ended",
    )
    assert 3.0 <= done["ms"] < 60_000 and abs(done["begun"] - before) < 60_000
    assert open_one["state"] == "under way" and open_one["ms"] > 0
    assert done["text"] == "all_reduce(x)"


def test_of_dead_ranks_nothing_goes_on(run):
    found, box, (one, two) = run
    one.end(begun(one, 1))
    begun(two, 1)
    time.sleep(0.01)
    for rank in (0, 1):
        box.ended(rank, 9)
    told = Watcher().look(found)
    again = Watcher().look(found)
    assert not told["live"] and told == again  # the clock that goes on changes nothing
    assert [r["state"] for r in told["ranks"]] == ["exit 9", "exit 9"]
    assert told["spans"][1]["ms"] >= 9  # until the last that is known


def test_rates_need_two_looks_that_are_far_enough_apart(run, monkeypatch):
    found, _, (one, _) = run
    watcher = Watcher()
    assert watcher.look(found)["ranks"][0]["steps_per_second"] is None
    (begin, first) = watcher._before[found.boxes[0]]
    for _ in range(6):
        one.steps.add(4)
    told = watcher.look(found)["ranks"][0]
    assert told["step"] == 6 and told["steps_per_second"] > 0
    assert watcher._before[found.boxes[0]][1] is first  # too near to begin anew from there
    watcher._before[found.boxes[0]] = (
        begin,
        type(first)(first.at - 10**9, first.ranks, first.usages),
    )
    watcher.look(found)
    assert watcher._before[found.boxes[0]][1].at > first.at
    watcher._before[found.boxes[0]] = (begin + 1, first)  # of an earlier attempt
    assert watcher.look(found)["ranks"][0]["steps_per_second"] is None


def test_boxes_that_cannot_be_read_and_too_many_spans_are_left_out(run, monkeypatch, tmp_path):
    found, _, (one, _) = run
    for seq in range(1, 6):
        one.end(begun(one, seq))
    (tmp_path / "short").write_bytes(b"x")
    boxes = (str(tmp_path / "missing"), str(tmp_path / "short"), *found.boxes)
    several = Run(".", tmp_path, 0.0, False, False, boxes)
    assert len(Watcher().look(several)["spans"]) == 5
    monkeypatch.setattr(ranks, "_MOST_SPANS", 3)
    assert len(Watcher().look(several)["spans"]) == 3
    monkeypatch.setattr(ranks, "_MOST_BOXES", 2)
    assert Watcher().look(several) == {"ranks": [], "spans": [], "live": False}


def test_a_rank_whose_process_is_gone_does_not_keep_the_run_alive(run):
    found, _, recorders = run
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    for one in recorders:
        one.words[PID] = child
    told = Watcher().look(found)
    assert not told["live"] and told["ranks"][0]["state"] == "gone"
