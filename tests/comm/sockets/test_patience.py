"""Who calls waits as long as the other host shows that it is there, and no longer."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from comm.sockets.pairs import identity

from disttrain.comm.sockets import pace
from disttrain.comm.sockets.handshake import Refused
from disttrain.comm.sockets.listener import call_on
from support.namespaces import Wire, run_on, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.mark.parametrize("is_there", [True, False])
def test_who_never_answers(is_there, monkeypatch):
    monkeypatch.setattr(pace, "_TRIES", 4)  # 3 seconds

    def body(rank):
        if rank == 0:
            with socket.create_server((wire.address(0), 4711)) as listener:
                with listener.accept()[0] as link, contextlib.suppress(OSError):
                    if not is_there:
                        wire.block(0, 1)
                    link.settimeout(9.0)
                    while link.recv(1000):  # until the other one has had enough
                        continue
            return 0.0
        begun = time.monotonic()
        said = "did not answer within 8 s" if is_there else "cannot be reached"
        time.sleep(0.5)
        with pytest.raises(Refused, match=said):
            call_on(identity(1, False), 0, wire.address(0), 4711, b"", timeout=8.0)
        return time.monotonic() - begun

    with Wire(2) as wire:
        seconds = max(run_on(wire, "ab", body))
    assert seconds > 8 if is_there else 2 < seconds < 8
