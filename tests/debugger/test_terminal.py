"""A terminal joined to a rank's: keys go there, and it is as before afterwards."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from disttrain.debugger import terminal

SIZE = struct.pack("4H", 33, 77, 0, 0)


class Both:
    """Two pseudo-terminals: somebody's, and a rank's."""

    def __init__(self) -> None:
        self.keys, self.tty = os.openpty()
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.tty, termios.TIOCSWINSZ, SIZE)

    def close(self) -> None:
        for fd in (self.keys, self.tty, self.slave):
            os.close(fd)


@pytest.fixture
def both() -> Iterator[Both]:
    made = Both()
    yield made
    made.close()


def test_keys_and_words_pass(both: Both) -> None:
    before = termios.tcgetattr(both.tty)
    joined = terminal.Joined(both.tty, both.master, 0)
    assert fcntl.ioctl(both.slave, termios.TIOCGWINSZ, b"\0" * 8) == SIZE
    os.write(both.keys, b"p x\r")
    assert joined.from_terminal() and not joined.let_go
    assert os.read(both.slave, 100) == b"p x\n"
    os.write(both.slave, b"41\n")
    assert joined.from_rank()
    os.write(both.slave, b"the last\n")
    joined.close()
    joined.close()  # once more
    said = b""
    while b"the last" not in said:
        said += os.read(both.keys, 1000)
    assert b"41\r" in said
    assert termios.tcgetattr(both.tty) == before


def test_ctrl_c_interrupts_who_takes_it_for_that(both: Both) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "try:\n print('ready', flush=True)\n time.sleep(60)\n"
    program += "except KeyboardInterrupt:\n pass"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    joined = terminal.Joined(both.tty, both.master, child.pid)
    raw = termios.tcgetattr(both.slave)
    cooked = termios.tcgetattr(both.slave)
    raw[3] &= ~termios.ISIG
    termios.tcsetattr(both.slave, termios.TCSANOW, raw)
    os.write(both.keys, b"\x03")  # a key like others
    joined.from_terminal()
    assert child.poll() is None
    termios.tcsetattr(both.slave, termios.TCSANOW, cooked)
    os.write(both.keys, b"\x03")
    joined.from_terminal()
    assert child.wait(20) == 0
    child.stdout.close()
    joined.close()


def test_letting_go_sends_nothing_more(both: Both) -> None:
    joined = terminal.Joined(both.tty, both.master, 0)
    os.write(both.keys, b"a\r\x1cb\r")
    assert joined.from_terminal() and joined.let_go
    assert os.read(both.slave, 100) == b"a\n"
    joined.close()


def test_ends(both: Both) -> None:
    joined = terminal.Joined(both.tty, os.dup(both.master), 0)
    os.close(both.slave)
    assert not joined.from_rank()  # the rank's side is closed
    joined.close()
    both.slave = os.dup(both.tty)
    other = terminal.Joined(both.tty, both.master, 0)
    os.close(both.keys)
    assert not other.from_terminal()  # the window is closed
    other.close()
    both.keys = os.dup(both.tty)


def test_the_size_follows(both: Both) -> None:
    joined = terminal.Joined(both.tty, both.master, 0)
    larger = struct.pack("4H", 50, 200, 0, 0)
    fcntl.ioctl(both.tty, termios.TIOCSWINSZ, larger)
    os.kill(os.getpid(), signal.SIGWINCH)
    assert fcntl.ioctl(both.slave, termios.TIOCGWINSZ, b"\0" * 8) == larger
    joined.close()
    assert signal.getsignal(signal.SIGWINCH) == signal.SIG_DFL


def test_which_are_usable(both: Both) -> None:
    fd = terminal.usable(both.tty)
    assert fd >= 0 and os.isatty(fd) and terminal.in_front(both.tty)
    os.close(fd)
    reader, writer = os.pipe()
    assert terminal.usable(reader) == -1 and terminal.usable(-1) == -1
    assert terminal.settings_of(both.tty) is not None
    for each in (reader, writer):
        os.close(each)
    assert terminal.settings_of(reader) is None
    terminal.restore(reader, termios.tcgetattr(both.tty))  # gone: nothing happens
