"""A rank is asked to stop in the ways that its Python knows, and no other process is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from disttrain.debugger.stopping import SIGNAL
from disttrain_launcher.debugging.stopping import stop

LISTENS = f"""
import signal, time
signal.signal({int(SIGNAL)}, lambda *_: print("asked", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def child():
    made = subprocess.Popen([sys.executable, "-c", LISTENS], stdout=subprocess.PIPE, text=True)
    assert made.stdout.readline() == "ready\n"
    yield made
    made.kill()
    made.communicate()


def test_by_a_signal(child, monkeypatch) -> None:
    def forbidden(pid: int, path: str) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(sys, "remote_exec", forbidden, raising=False)
    assert stop(child.pid, insist=False) == ""
    assert child.stdout.readline() == "asked\n"


def test_by_a_file_first(child, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(sys, "remote_exec", lambda *args: asked.append(args), raising=False)
    assert stop(child.pid, insist=False) == ""
    ((pid, path),) = asked
    assert pid == child.pid and os.path.exists(path)
    assert stop(child.pid, insist=True) == ""
    assert child.stdout.readline() == "asked\n" and len(asked) == 1


def test_who_does_not_listen() -> None:
    other = subprocess.Popen(["sleep", "60"])
    assert "does not listen" in stop(other.pid, insist=False)
    assert other.poll() is None
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert "does not listen" in stop(other.pid, insist=True)
