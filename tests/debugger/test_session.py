"""A rank's end of the terminal: standard descriptors lead there, and back."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest

from disttrain import context
from disttrain.debugger import session, wire
from disttrain.errors import CommError, WaitTimeout


class Launcher(threading.Thread):
    """Takes one call, and does what ``answer`` says about it."""

    def __init__(self, answer: Callable[[wire.Wire, int], None]) -> None:
        super().__init__()
        self.name_ = wire.fresh_name()
        self.listener = wire.listen(self.name_)
        self.listener.setblocking(True)
        self.answer, self.asked, self.left = answer, {}, {}
        self.start()

    def run(self) -> None:
        line = wire.accept(self.listener)
        assert line is not None and line.wait(20)
        ((self.asked, (master,)),) = line.receive()
        self.answer(line, master)
        if line.open and line.wait(20):
            for message, _ in line.receive():
                self.left = message
        os.close(master)
        line.close()
        self.listener.close()


def test_standard_descriptors_lead_to_the_terminal_and_back(capfd) -> None:
    said: list[bytes] = []

    def grant(line: wire.Wire, master: int) -> None:
        os.write(master, b"typed\n")
        line.send("granted")
        while b"end" not in b"".join(said):
            said.append(os.read(master, 1000))

    launcher = Launcher(grant)
    before = sys.stdin, sys.stdout, sys.stderr
    held = session.Handed(launcher.name_)
    held.take("breakpoint", "t.py:1 in f", 20.0)
    held.take("breakpoint", "t.py:1 in f", 20.0)  # it has it
    assert os.isatty(0) and os.isatty(1) and os.isatty(2)
    line = sys.stdin.readline()
    print("from Python")
    os.write(1, b"from C\n")
    os.write(2, b"end\n")
    held.leave("goes on")
    held.leave("goes on")
    launcher.join()
    print("back")
    assert line == "typed\n" and (sys.stdin, sys.stdout, sys.stderr) == before
    shown = b"".join(said)
    assert b"from Python" in shown and b"from C" in shown and b"back" not in shown
    assert "back" in capfd.readouterr().out
    assert launcher.asked["rank"] == 0 and launcher.asked["pid"] == os.getpid()
    assert launcher.asked["interrupts"] is True and launcher.left["how"] == "goes on"


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [("late", WaitTimeout, "nobody came"), ("refused", CommError, "was looked at")],
)
def test_no_terminal(kind: str, error: type[Exception], text: str) -> None:
    launcher = Launcher(lambda line, master: line.send(kind, text="it was looked at") and None)
    held = session.Handed(launcher.name_)
    with pytest.raises(error, match=text):
        held.take("post-mortem", "", 5.0)
    assert not isinstance(sys.stdin, type(None))
    launcher.join()


def test_the_launcher_goes() -> None:
    launcher = Launcher(lambda line, master: line.close())
    launcher_gone = session.Handed(launcher.name_)
    with pytest.raises(CommError, match="gone"):
        launcher_gone.take("breakpoint", "", 5.0)
    launcher.join(1)
    with pytest.raises(CommError):
        session.Handed("disttrain-debugger-nobody").take("breakpoint", "", 1.0)


def test_which_terminal_a_rank_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTTRAIN_DEBUGGER", raising=False)
    assert isinstance(session.find(), session.Own)
    monkeypatch.setenv("DISTTRAIN_DEBUGGER", "somewhere")
    assert isinstance(session.find(), session.Handed)
    mine = session.Own()
    with context.attach(context.Rank()):
        context.current().slots[session.TERMINAL_SLOT] = lambda: mine
        assert session.find() is mine
    monkeypatch.setenv("RANK", "5")
    assert session.number() == 5
    with context.attach(context.Rank(2, 4)):
        assert session.number() == 2


def test_a_child_without_input_finds_the_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        own = session.Own()
        own.take("breakpoint", "", 1.0)
        found = sys.stdin
        assert found is not nothing
        own.leave("goes on")
        assert sys.stdin is nothing
        found.close()
