"""Somebody at a terminal: given a rank's, told, refused, let go."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from disttrain.debugger import wire
from disttrain.debugger.client import Client


class Table:
    """The client, and the launcher's end of it."""

    def __init__(self) -> None:
        self.keys, tty = os.openpty()
        ours, theirs = wire.pair()
        self.launcher, self.client = wire.Wire(theirs), Client(wire.Wire(ours), tty)
        self.client.ask(3, stop=True)
        ((self.asked, fds),) = self.launcher.receive()
        os.close(fds[0])
        self.slaves: list[int] = []

    def give(self) -> int:
        master, slave = os.openpty()
        self.launcher.send("terminal", [master], rank=3, pid=0, text="rank 3 is here")
        os.close(master)
        self.slaves.append(slave)
        self.client.handle([self.client.wire.fileno()])
        return slave

    def shown(self) -> bytes:
        return os.read(self.keys, 10_000)

    def heard(self) -> list[str]:
        return [message["kind"] for message, _ in self.launcher.receive()]

    def close(self) -> None:
        self.client.close()
        self.launcher.close()
        for fd in (self.keys, *self.slaves):
            os.close(fd)


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.close()


def test_it_asks_for_a_rank(table: Table) -> None:
    assert table.asked == {"kind": "attach", "rank": 3, "stop": True}


def test_a_session(table: Table) -> None:
    slave = table.give()
    joined = table.client.joined
    assert joined is not None and len(table.client.fds) == 3
    assert b"rank 3 is here" in table.shown()
    os.write(slave, b"(Pdb) ")
    table.client.handle([joined.master])
    assert table.shown() == b"(Pdb) "
    os.write(table.keys, b"c\r")
    table.client.handle([joined.fd])
    assert os.read(slave, 10) == b"c\n"
    table.launcher.send("say", text="another one waits")
    table.launcher.send("over", text="rank 3 goes on")
    table.client.handle([table.client.wire.fileno()])
    said = table.shown()
    assert b"another one waits" in said and b"rank 3 goes on" in said
    assert table.heard() == ["done"] and table.client.ended == "rank 3 goes on"
    table.client.serve()  # over: it returns
    table.give()
    assert table.client.joined is not None and table.client.ended is None


def test_letting_go(table: Table) -> None:
    table.give()
    os.write(table.keys, b"\x1c")
    assert table.client.joined is not None
    table.client.handle([table.client.joined.fd])
    assert table.heard() == ["let go"] and table.client.joined is None
    said = b""
    while b"was let go" not in said:
        said += table.shown()


def test_the_launcher_goes(table: Table) -> None:
    table.give()
    table.launcher.close()
    table.client.handle([table.client.wire.fileno()])
    assert table.client.joined is None and table.client.ended == "the job has ended"


def test_who_had_a_terminal_is_not_refused(table: Table) -> None:
    table.give()
    table.launcher.send("over", text="rank 3 has ended")
    table.launcher.send("refused", text="the job's ranks have ended")
    table.client.serve()
    assert not table.client.refused and table.client.ended == "rank 3 has ended"


def test_who_is_refused(table: Table) -> None:
    table.launcher.send("refused", text="no such rank")
    table.client.serve()
    assert table.client.refused == "no such rank"


def test_in_the_background(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disttrain.debugger.terminal.in_front", lambda fd: False)
    table.give()
    assert table.client.joined is None and table.heard() == ["refuse"]
