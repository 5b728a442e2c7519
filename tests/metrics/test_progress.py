"""The view of a run: a bar on a real terminal, lines on a pipe, silence on other ranks."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import termios

from disttrain.metrics import Progress


def test_lines_where_there_is_no_terminal():
    out = io.StringIO()
    with Progress(100, interval=0.0, stream=out) as progress:
        progress.title("epoch 1/2")
        progress.update(50, "loss 0.500")
        progress.update(50, "loss 0.250")
    half, full = out.getvalue().splitlines()
    assert half.startswith("epoch 1/2  [============>           ]  50%  loss 0.500")
    assert full.startswith("epoch 1/2  [========================] 100%  loss 0.250")
    assert "samples/s" in full and full.endswith("0:00 left")


def test_lines_come_at_intervals():
    out = io.StringIO()
    with Progress(100, interval=1000.0, stream=out) as progress:
        for _ in range(100):
            progress.update(1)
        progress.say("done")
    assert out.getvalue() == "done\n"


def test_other_ranks_are_silent():
    out = io.StringIO()
    with Progress(10, enabled=False, interval=0.0, stream=out) as progress:
        progress.title("epoch")
        progress.update(10, "x")
        progress.say("y")
    assert out.getvalue() == ""


def test_resumed_run_counts_only_its_own_samples_for_the_rate():
    progress = Progress(1000, done=900, interval=1000.0, stream=io.StringIO())
    assert progress.rate == 0.0 and "90%" in progress.line()
    progress.update(100)
    assert "100%" in progress.line() and progress.rate > 0


def test_nothing_to_do_is_all_done():
    assert "100%" in Progress(0, stream=io.StringIO()).line()


def everything(master: int) -> str:
    """What a terminal has shown. It may hand it over in pieces."""
    data = b""
    while select.select([master], [], [], 0.2)[0]:
        data += os.read(master, 65536)
    return data.decode()


def test_bar_on_a_terminal():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        with Progress(10, stream=terminal) as progress:
            progress.update(10, "loss 0.125")
            progress.title("epoch 1/1")
            progress.say("a line above")
        terminal.flush()
        shown = everything(master)
    os.close(master)
    assert "epoch 1/1" in shown and "loss 0.125" in shown and "a line above" in shown
    assert "\r" in shown and "100%" in shown
