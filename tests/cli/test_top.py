"""``disttrain top``: what a person sees and does with keys, and one table for programs."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import select
import signal
import struct
import sys
import termios
import time

import pytest

from disttrain.cli import main, top
from disttrain.comm.job.blackbox import MARK, Box
from disttrain.watch import running, table
from disttrain.watch.screen import DIM, PLAIN, RED, REVERSE, YELLOW

NAME = "all_reduce(float32[10]) at /home/me/exp/train.py:3"


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


def _read(fd, until, seconds=20.0):
    """What is drawn until ``until`` (a regular expression) appears."""
    data, end = "", time.monotonic() + seconds
    while not re.search(until, data):
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{until!r} is not in {data[-2000:]!r}"
        data += os.read(fd, 1 << 16).decode()
    return data


def test_the_screen_obeys_keys_and_gives_the_terminal_back(job, monkeypatch):
    _, ranks, _ = job
    _step(ranks, 1)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    pid, fd = os.forkpty()
    if pid == 0:  # in the terminal
        code = 70
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        try:
            code = main(["top", "exp", "--delay", "0.1"])
        finally:
            os._exit(code)
    try:
        shown = _read(fd, "sorted by rank")
        assert "\x1b[?1049h" in shown and "job exp: train.py --lr 1 on here" in shown
        os.write(fd, b"l")
        _read(fd, "sorted by lateness")
        os.write(fd, b"l")
        _read(fd, "reversed")
        os.write(fd, b"h")
        _read(fd, "LATE   how much later")
        os.write(fd, b"h")
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 100, 0, 0))
        _read(fd, "ranks 1 to")
        os.write(fd, b"\x1b[B")
        _read(fd, "ranks 2 to")
        os.write(fd, b"+q")
        rest = _read(fd, r"\x1b\[\?1049l")
        assert rest.rindex("\x1b[?25h") > rest.rindex("RANK")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(fd)


def test_the_view_ends_with_the_job_and_goes_on_with_its_next_generation(job, capsys):
    made, ranks, box = job
    view = top.View(made, "r", 1.0)
    assert view.look() and view.before is not None
    again = Box.create(1, {"host": "here"})
    again.recorder(0)
    next_one = running.this_process("exp", "train.py", again.fd, generation=2)
    running.announce(next_one)
    assert view.look() and len(view.now.ranks) == 1 and view.job.generation == 2
    running.withdraw(os.path.join(running.directories()[0], f"exp.{os.getpid()}.json"))
    view.job = running.Job(**{**next_one.__dict__, "start": 1})
    assert not view.look()
    again.close()
    view.box.close()


@pytest.fixture
def view(job):
    made = top.View(job[0], "r", 1.0)
    yield made
    made.box.close()


def shown(view, height=24):
    return view.lines(table.rows(view.host, view.now, view.before), height)


def test_keys_sort_scroll_and_change_the_delay(view):
    view.press("l", 24)
    assert (view.key, view.reverse) == ("l", False)
    view.press("l", 24)
    assert view.reverse and "sorted by lateness reversed" in shown(view)[-1][1]
    view.press("r", 24)
    assert (view.key, view.reverse) == ("r", False)
    for key, first in (
        ("down", 1),
        ("j", 2),
        ("j", 2),
        ("up", 1),
        ("page up", 0),
        ("page down", 2),
    ):
        view.press(key, 24)
        assert view.first == first, key
    for key, delay in (("+", 2.0), ("-", 1.0), ("-", 0.5)):
        view.press(key, 24)
        assert view.delay == delay
    for _ in range(10):
        view.press("-", 24)
    assert view.delay == 0.1
    for _ in range(12):
        view.press("+", 24)
    assert view.delay == 60.0
    view.press("x", 24)  # means nothing


def test_what_does_not_fit_is_counted(view):
    lines = shown(view, 7)
    assert "ranks 1 to" in lines[-1][1] and lines[-1][0] == DIM
    view.press("down", 7)
    assert "ranks 2 to" in shown(view, 7)[-1][1]
    assert "ranks 1 to" not in shown(view, 50)[-1][1] or view.first
    view.press("h", 24)
    text = [t for _, t in shown(view)]
    assert any("LATE   how much later" in t for t in text) and not any("RANK" in t for t in text)
    view.press("?", 24)
    assert any(style == REVERSE and "RANK" in t for style, t in shown(view))


ROW = table.Row(0, "here", 1, "computes", 0, None, None, None, None, None, 0, "")


def test_colours_say_who_holds_the_others_up():
    def style(me, *others):
        rows = [dataclasses.replace(ROW, rank=i, **r) for i, r in enumerate((me, *others))]
        return top._style(rows[0], rows)

    assert style({"state": "exit 0"}) == DIM
    assert style({"state": "exit 1"}) == style({"state": "stopped"}) == RED
    assert style({"state": "in a debugger"}) == RED
    wait = [{"waited": 0.5}, {"waited": 0.4}]
    assert style({"waited": 0.1}, *wait) == YELLOW
    assert style({"waited": 0.2}, *wait) == PLAIN  # no third of what the others wait
    assert style({"waited": 0.1}, {"waited": 0.5}, {"waited": 0.2}) == PLAIN
    assert style({"waited": None}, *wait) == style({"waited": 0.0}) == PLAIN


def test_one_table_for_people_and_one_for_programs(job, capsys, monkeypatch):
    monkeypatch.setattr(top, "GAP", 0.0)
    _step(job[1], 1)
    assert main(["top", "exp", "--once", "--sort", "lateness"]) == 0
    text = capsys.readouterr().out
    assert "job exp: train.py --lr 1 on here" in text and "RANK" in text and "\x1b" not in text
    assert main(["top", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [r["rank"] for r in told["ranks"]] == [0, 1, 2]
    assert main(["top", "nothing"]) == 2
