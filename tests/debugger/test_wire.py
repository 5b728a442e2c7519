"""What ranks, terminals and the launcher say to each other, and to nobody else."""

from __future__ import annotations

import os
import socket

import pytest

from disttrain.debugger import wire
from disttrain.errors import CommError


def test_messages_and_descriptors_travel() -> None:
    one, two = (wire.Wire(sock) for sock in wire.pair())
    reader, writer = os.pipe()
    assert one.send("hello", [writer], number=3) and one.send("again", text="ü")
    os.close(writer)
    assert two.wait(5)
    (first, fds), (second, none) = two.receive()
    assert first == {"kind": "hello", "number": 3} and second["text"] == "ü" and none == []
    assert not os.get_inheritable(fds[0])
    os.write(fds[0], b"x")
    assert os.read(reader, 1) == b"x"
    for fd in (reader, *fds):
        os.close(fd)
    assert two.receive() == [] and two.open
    one.close()
    assert two.receive() == [] and not two.open
    assert not two.send("anybody?")
    two.close()


@pytest.mark.parametrize("data", [b"no json", b"[1]", b'{"kind": 3}', b"{}", b"[" * 5000, b"\xff"])
def test_what_is_no_message_ends_the_wire(data: bytes) -> None:
    ours, theirs = wire.pair()
    line = wire.Wire(ours)
    reader, writer = os.pipe()
    socket.send_fds(theirs, [data], [writer])
    os.close(writer)
    assert line.receive() == [] and not line.open
    assert os.read(reader, 1) == b""  # the descriptor that came with it is closed
    os.close(reader)
    theirs.close()
    line.close()


def test_calls_are_answered_by_the_same_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = wire.fresh_name()
    listener = wire.listen(name)
    assert wire.accept(listener) is None  # nobody has come
    caller = wire.connect(name)
    taken = wire.accept(listener)
    assert taken is not None and wire.peer(taken.sock) == (os.getpid(), os.getuid())
    mine = os.getuid()
    stranger = wire.connect(name)
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert wire.accept(listener) is None
    assert stranger.wait(5) and stranger.receive() == [] and not stranger.open
    with pytest.raises(CommError, match="another user"):
        wire.connect(name)
    for each in (caller, taken, stranger):
        each.close()
    listener.close()
    with pytest.raises(CommError, match="cannot be called"):
        wire.connect(name)
