"""Seeing the ends of processes, and ending with one."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from disttrain.lifetime import die_with, end_of, shows


def test_an_end_shows_though_others_hold_what_was_open():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            time.sleep(60)
        os._exit(0)
    fd = end_of(pid)
    assert shows(fd, None)
    os.waitpid(pid, 0)
    os.kill(int(os.read(reader, 20)), signal.SIGKILL)
    gone = end_of(pid)
    assert shows(gone) and shows(fd)
    for one in (fd, gone, reader, writer):
        os.close(one)


def test_what_lives_does_not_show():
    fd = end_of(os.getpid())
    assert not shows(fd) and not shows(fd, 0.01) and not shows(fd, -1.0)
    os.close(fd)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_process_ends_with_its_starter(in_thread):
    """... and not with the thread that started it."""
    reader, writer = os.pipe()
    starter = os.fork()
    if starter == 0:
        me = os.getpid()

        def start():
            if os.fork() == 0:
                die_with(me, not in_thread)
                os.write(writer, b"1")
                time.sleep(60)

        if in_thread:
            thread = threading.Thread(target=start)
            thread.start()
            thread.join()
        else:
            start()
        time.sleep(60)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    assert not shows(reader, 0.2)
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    assert os.read(reader, 1) == b""  # comes when the last holder of the other end is gone
    os.close(reader)
