"""Processes of this host as the kernel tells of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from disttrain import context
from disttrain.rpc.messages.local import process as module
from disttrain.rpc.messages.local.process import STOPPED_LOOKS, Process, _stat


@pytest.fixture
def child():
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield running
    running.kill()
    running.communicate()


def until(condition):
    context.wait_until(condition, lambda: "the kernel", 30.0)


def test_this_process_runs():
    me = Process(os.getpid())
    assert me.fd >= 0 and not me.ended
    assert not me.has_ended() and not me.is_over() and not me.is_stopped()
    me.close()
    assert me.fd == -1
    me.close()


def test_a_process_that_ends_is_seen_by_its_descriptor_and_by_its_state(child):
    seen = Process(child.pid)
    assert not seen.has_ended()
    child.kill()
    until(seen.is_over)
    assert seen.has_ended(), "a zombie has ended"
    child.wait()
    assert seen.has_ended() and _stat(child.pid) == ("X", 0)
    again = Process(child.pid)
    assert again.ended and again.fd == -1
    seen.close()


def test_a_process_counts_as_stopped_after_several_looks_in_a_row(child):
    seen = Process(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: _stat(child.pid)[0] == "T")
    assert [seen.is_stopped() for _ in range(STOPPED_LOOKS)] == [False, False, True]
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: _stat(child.pid)[0] != "T")
    assert not seen.is_stopped()
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: _stat(child.pid)[0] == "T")
    assert not seen.is_stopped(), "the looks begin anew"
    seen.close()


def test_of_a_process_elsewhere_nothing_is_known():
    none = Process(0)
    assert none.fd == -1 and not none.ended and not none.has_ended() and not none.is_stopped()


def test_a_kernel_that_tells_nothing_is_no_end(monkeypatch):
    def refused(pid):
        raise PermissionError

    monkeypatch.setattr(module.os, "pidfd_open", refused)
    seen = Process(os.getpid())
    assert seen.fd == -1 and not seen.ended and not seen.has_ended()
