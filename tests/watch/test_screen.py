"""The screen on a pseudo-terminal of the test: what is drawn, which keys come."""

from __future__ import annotations

import fcntl
import io
import os
import select
import signal
import struct
import termios
import types

import pytest

from disttrain.watch import screen
from disttrain.watch.screen import BOLD, PLAIN, RED, REVERSE, Screen


@pytest.fixture
def terminal(monkeypatch):
    """The far end of a terminal of 5 lines of 10 columns, which is this process's."""
    far, near = os.openpty()
    fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 10, 0, 0))
    end = types.SimpleNamespace(fileno=lambda: near, isatty=lambda: True)
    monkeypatch.setattr(screen, "sys", types.SimpleNamespace(stdin=end, stdout=end))
    monkeypatch.setenv("TERM", "xterm")
    yield far
    os.close(far)
    os.close(near)


def drawn(far, end):
    """What was drawn since, up to these characters. It comes in pieces."""
    text = ""
    while not text.endswith(end):
        assert select.select([far], [], [], 20.0)[0], text
        text += os.read(far, 1 << 16).decode()
    return text.replace("\r\r\n", "\r\n")  # the terminal adds a return


def test_the_terminal_and_the_handlers_are_given_back_also_after_an_error(terminal):
    before = termios.tcgetattr(terminal)
    handlers = [signal.getsignal(n) for n in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)]
    open_ones = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError), Screen():
        assert not termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON)
        assert drawn(terminal, "\x1b[?25l") == "\x1b[?1049h\x1b[?25l"
        1 / 0
    assert drawn(terminal, "\x1b[?1049l") == "\x1b[?25h\x1b[?1049l"
    assert termios.tcgetattr(terminal) == before
    assert handlers == [
        signal.getsignal(n) for n in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)
    ]
    assert len(os.listdir("/proc/self/fd")) == open_ones


def test_what_does_not_fit_is_cut_and_what_would_move_the_cursor_is_not_drawn(terminal):
    with Screen(colour=True) as one:
        drawn(terminal, "\x1b[?25l")
        assert one.size() == (10, 5)
        one.show([(BOLD, "a\x1b[2J"), (REVERSE, "head"), (RED, "x" * 30)])
        text = drawn(terminal, "\x1b[J")
        assert text == (
            "\x1b[H\x1b[1ma?[2J\x1b[0m\x1b[K\r\n\x1b[7mhead      \x1b[0m\r\n"
            "\x1b[31mxxxxxxxxxx\x1b[0m\x1b[K\x1b[J"
        )
        one.show([(PLAIN, str(i)) for i in range(9)])
        text = drawn(terminal, "4\x1b[K")
        assert text.count("\r\n") == 4 and not text.endswith("\x1b[J")
        assert "4" in text and "5" not in text


def test_without_colour_only_what_is_not_colour_is_styled(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with Screen() as one:
        drawn(terminal, "\x1b[?25l")
        one.show([(RED, "x"), (BOLD, "y")])
        assert "\x1b[31m" not in (text := drawn(terminal, "\x1b[J")) and "\x1b[1my" in text


def test_keys_come_one_by_one_with_arrows_by_name(terminal):
    with Screen() as one:
        os.write(terminal, b"a\x1b[A\x1bOB\x1b[6~\x1b[5~q")
        keys = [one.key(10.0) for _ in range(6)]
        assert keys == ["a", "up", "down", "page down", "page up", "q"]
        assert one.key(0.0) == "" and one.key(-1.0) == ""
        os.write(terminal, b"\x1b[C")  # an arrow that means nothing here is one key
        assert one.key(10.0) == "\x1b[C" and one.key(0.0) == ""


def test_signals_wake_it(terminal):
    with Screen() as one:
        os.kill(os.getpid(), signal.SIGWINCH)
        os.kill(os.getpid(), signal.SIGWINCH)
        assert one.key(10.0) == "resize" and one.key(0.0) == ""
        os.kill(os.getpid(), signal.SIGTERM)
        assert one.key(10.0) == "q" and one.key(10.0) == "q"


def test_sizes_that_are_not_told_are_the_usual_one(terminal, monkeypatch):
    one = Screen()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert one.size() == (80, 24)
    monkeypatch.setattr(one, "_out", os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    assert one.size() == (80, 24)
    os.close(one._out)


def test_what_is_a_terminal(terminal, monkeypatch):
    assert screen.is_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not screen.is_terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(screen.sys, "stdin", io.StringIO())
    assert not screen.is_terminal()
