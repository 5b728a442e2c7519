"""The table of a running job, and the screen that shows it: what stands there, keys, resizing."""

from __future__ import annotations

import os
import re
import select
import signal
import time

import pytest

from disttrain.cli import main
from disttrain.comm.job.blackbox import MARK, PID, STACKS_FD, Box
from disttrain.watch import processes, running, table
from disttrain.watch.waiting import lateness, names, standings

NAME = "all_reduce(float32[10]) at /home/me/exp/train.py:3"
SHOWN = "all_reduce(float32[10]) at exp/train.py:3"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of which this process is the agent and all ranks: (the job, its ranks' recorders)."""
    monkeypatch.setattr(running, "directories", lambda: [str(tmp_path / "jobs")])
    box = Box.create(3, {"host": "here"})
    ranks = [box.recorder(r) for r in range(3)]
    made = running.this_process("exp", "train.py --lr 1", box.fd, num_ranks=3, world_size=3)
    path = running.announce(made)
    yield made, ranks, box
    running.withdraw(path)
    box.close()


def _step(ranks, seq, late=(0.0, 0.0, 0.0), ends=True):
    """All ranks begin operation ``seq``, each so many seconds later than the one before."""
    begun = []
    for rank, seconds in zip(ranks, late, strict=True):
        if seconds is None:
            begun.append(None)
            continue
        time.sleep(seconds)
        mark = MARK.pack(10, rank.text(NAME), rank.group("world", range(3)), -1, 2, 11, 1, 1)
        begun.append(rank.begin(seq, mark))
    for rank, word in zip(ranks, begun, strict=True):
        if ends and word is not None:
            rank.end(word)


def test_who_waits_for_whom_and_who_is_late(job):
    _, ranks, box = job
    for seq in (1, 2):
        _step(ranks, seq, (0.0, 0.0, 0.004))
        for rank in ranks:
            rank.steps.add(16)
    before = table.look(box)
    _step(ranks, 3, (0.0, 0.0, None), ends=False)
    ranks[0].waits()
    ranks[1].waits()
    time.sleep(0.01)
    now = table.look(box)
    first, second, third = standings(now.ranks, now.at)
    assert (first.state, first.waits_for, second.waits_for) == ("waits", (2,), (2,))
    assert re.fullmatch(rf"waits 0\.\d s for rank 2 in {re.escape(NAME)}", first.text)
    assert third.state == "computes" and third.text.endswith(f"since {NAME}")
    late = lateness(now.ranks)
    assert late[0] == 0 and late[2] > late[1] and late[2] > 3.9
    rows = table.rows("here", now, before)
    assert rows[2].doing.endswith(f"since {SHOWN}")
    assert [row.state for row in rows[:2]] == ["waits", "waits"] and rows[0].waited > 0.3
    assert [row.step for row in rows] == [2, 2, 2] and rows[0].steps_per_second == 0
    assert table.rows("here", now, None)[0].cpu is None  # nothing to compare with
    lines = table.lines(rows, "l")
    assert lines[0].split()[:4] == ["RANK", "HOST", "PID", "STATE"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "1", "0"]
    box.ended(2, 137)
    assert standings(table.look(box).ranks, now.at)[2].state == "ended"
    assert names((1,)) == "rank 1" and names(tuple(range(9))).endswith("7, ...")


def test_rates_and_sizes():
    assert [table.size(n) for n in (0, 5 << 20, 3 << 30)] == ["-", "5M", "3.0G"]
    assert [table.milliseconds(x) for x in (0.5, 12.3, 12_345)] == ["0.5ms", "12ms", "12.3s"]
    assert table.clock(3725) == "1:02:05"


def _read(fd, until, seconds=20.0):
    """What is drawn until ``until`` (a regular expression) appears."""
    data, end = "", time.monotonic() + seconds
    while not re.search(until, data):
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{until!r} is not in {data[-2000:]!r}"
        data += os.read(fd, 1 << 16).decode()
    return data


def test_a_rank_that_is_no_python_is_not_asked(job, capsys):
    _, ranks, _ = job
    ranks[0].words[STACKS_FD] = 0
    assert main(["stacks", "exp", "--rank", "0"]) == 0
    assert "does not answer: it is no Python" in capsys.readouterr().out


def test_a_process_that_has_the_number_of_a_dead_rank_is_not_taken_for_it(job):
    _, ranks, box = job
    _step(ranks, 1)
    assert all(use.state for use in table.look(box).usages.values())
    ranks[1].words[PID] = child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        for seconds, known in ((0, True), (60, False), (-60, False)):
            moment = time.monotonic_ns() - seconds * 10**9
            assert bool(processes.usage(child).unless_begun_after(moment).state) == known
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    rows = table.rows("here", table.look(box), None)
    assert [row.state for row in rows].count("gone") == 1 and rows[1].memory == 0
