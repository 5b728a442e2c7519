"""A rank that is asked to stop, by a signal or by a file that runs in it: one stop for both."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import disttrain.debugger
from disttrain import context
from disttrain.debugger import stopping

FILE = Path(disttrain.debugger.__file__).with_name("interruption.py")


class Prompt:
    """Stands in for the debugger: says where it would stop."""

    def __init__(self) -> None:
        self.stops: list[str] = []

    def stop_in(self, frame: FrameType, kind: str) -> None:
        self.stops.append(frame.f_code.co_name)
        if len(self.stops) < 2:
            os.kill(os.getpid(), stopping.SIGNAL)  # while it is in there

    def stop_traced(self, frame: FrameType, kind: str) -> Any:
        sys.settrace(None)
        self.stops.append(frame.f_code.co_name)


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prompt]:
    made = Prompt()
    monkeypatch.setitem(sys.modules, "stand.in", made)  # type: ignore[arg-type]
    monkeypatch.setattr(stopping, "PROMPT", "stand.in")
    hook, handler = sys.breakpointhook, signal.getsignal(stopping.SIGNAL)
    with context.attach(context.Rank()):
        stopping.listen()
        yield made
    sys.breakpointhook = hook
    signal.signal(stopping.SIGNAL, handler)


def test_a_signal_stops_it_once(prompt: Prompt) -> None:
    os.kill(os.getpid(), stopping.SIGNAL)
    assert prompt.stops == ["test_a_signal_stops_it_once"]


def test_the_file_stops_it_at_its_next_line(prompt: Prompt) -> None:
    exec(compile(FILE.read_text(), "<string>", "exec"), {})
    assert prompt.stops == ["test_the_file_stops_it_at_its_next_line"]


def test_the_file_runs_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "disttrain.debugger.stopping")
    before = sys.gettrace()
    runpy.run_path(str(FILE))
    assert sys.gettrace() is before


def test_a_signal_that_comes_while_the_file_runs_is_left_to_it(prompt: Prompt) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGRTMAX - 4)\n" + FILE.read_text()
    exec(compile(text, "<string>", "exec"), {})
    assert prompt.stops == ["test_a_signal_that_comes_while_the_file_runs_is_left_to_it"]


def test_the_file_that_comes_after_the_signal_does_nothing(prompt: Prompt, monkeypatch) -> None:
    monkeypatch.setattr(sys, "remote_exec", None, raising=False)
    os.kill(os.getpid(), stopping.SIGNAL)
    stopping.stop_at_next_line(sys._getframe())
    assert len(prompt.stops) == 1 and sys.gettrace() is None
    stopping.stop_at_next_line(sys._getframe())  # the next time somebody asks
    assert len(prompt.stops) == 2
