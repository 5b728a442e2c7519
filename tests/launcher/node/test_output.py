"""Outputs of ranks: lines never mix, prefixes stand in front, nobody is waited for for long."""

from __future__ import annotations

import errno
import os

import pytest

from disttrain_launcher.node import output
from disttrain_launcher.node.output import Console, Stream, colored, consoles, is_colored

pytestmark = pytest.mark.simulated


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shown(tmp_path):
    """A console on a file, and what it shows."""
    fd = os.open(tmp_path / "shown", os.O_RDWR | os.O_CREAT)
    console = Console(fd)
    console.read = (tmp_path / "shown").read_bytes
    yield console
    os.close(fd)


def speak(stream, *parts):
    for part in parts:
        os.write(stream.writer, part)
        assert stream.pump()


def test_whole_lines_are_shown_with_their_rank(shown):
    a, b = Stream("[0] ", shown), Stream("[1] ", shown)
    speak(a, b"one\ntwo")
    speak(b, b"three\n")
    speak(a, b" and a half\n")
    assert shown.read() == b"[0] one\n[1] three\n[0] two and a half\n"
    for stream in (a, b):
        stream.started()
        assert stream.finish(0.0) == ""


def test_a_line_that_is_open_is_ended_before_another_rank_speaks(shown):
    a, b = Stream("[0] ", shown), Stream("[1] ", shown)
    speak(a, b"10%\r", b"20%")
    a.release(0.0)
    speak(b, b"hello\n")
    speak(a, b"30%\r")
    a.release(0.0)
    assert shown.read() == b"[0] 10%\r[0] 20%\n[1] hello\n[0] 30%\r"
    for stream in (a, b):
        stream.started()
        stream.finish(0.0)
    assert shown.read().endswith(b"[0] 30%\r\n"), "the last line is ended"


def test_a_prompt_is_shown_after_a_while(shown):
    a = Stream("", shown)
    speak(a, b"name? ")
    a.release(1e9)
    assert shown.read() == b"" and a.tail == b"name? "
    a.release(0.0)
    assert shown.read() == b"name? " and a.tail == b""
    a.started(), a.finish(0.0)


@pytest.mark.parametrize(
    "data, want",
    [
        (b"a\nb\n", b"> a\n> b\n"),
        (b"\n\na\n", b"\n\n> a\n"),
        (b"a\n\nb\n", b"> a\n\n> b\n"),
        (b"a\rb\n", b"> a\r> b\n"),
        (b"a\r\n\r\nb\n", b"> a\r\n\r\n> b\n"),
        (b"no end", b"> no end"),
    ],
)
def test_prefixes_stand_in_front_of_lines_that_are_not_empty(data, want, shown):
    stream = Stream("> ", shown)
    assert stream._prefixed(data) == want
    half = len(data) // 2
    again = Stream("> ", shown)
    assert again._prefixed(data[:half]) + again._prefixed(data[half:]) == want
    for one in (stream, again):
        one.started(), one.finish(0.0)


def test_an_endless_line_is_not_held_back(shown, monkeypatch):
    monkeypatch.setattr(output, "_LONG", 8)
    a = Stream("> ", shown)
    speak(a, b"0123456789")
    assert shown.read() == b"> 0123456789"
    a.started(), a.finish(0.0)


def test_a_file_and_a_sieve_get_everything_as_it_came(shown):
    class Kept:
        def __init__(self):
            self.text, self.over = b"", False

        write = take = lambda self, data: setattr(self, "text", self.text + data)

        def close(self):
            self.over = True
            return "some is missing"

        finish = close

    log, sieve = Kept(), Kept()
    a = Stream("> ", None, log, 0, sieve)
    speak(a, b"half", b" a line")
    a.started()
    assert a.finish(0.0) == "some is missing"
    assert log.text == sieve.text == b"half a line" and log.over and sieve.over
    assert a.last == b"half a line" and shown.read() == b""


def test_only_the_end_of_an_output_is_remembered(shown):
    a = Stream("", shown)
    speak(a, b"x" * 5000 + b"end\n")
    assert len(a.last) == 1024 and a.last.endswith(b"xend\n")
    a.started()
    assert not a.pump(), "its writers are gone"
    a.finish(0.0)


def test_what_a_console_does_not_take_waits_and_is_told_of_at_the_end():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    console, stream = Console(writer), Stream("", None)
    room = os.fpathconf(writer, "PC_PIPE_BUF") * 100
    console.say(stream, b"x" * room + b"\n")
    assert console.behind and not console.full
    console.say(stream, b"y" * (2 << 20))
    assert console.full
    got = len(os.read(reader, 1 << 20))
    console.flush()
    assert got > 0
    told = console.told()
    assert told.endswith("bytes of the ranks' output are lost: nobody has read them")
    assert int(told.split()[0]) < room + (2 << 20) and console.told() == ""
    stream.started(), stream.finish(0.0)
    os.close(reader), os.close(writer)


def test_a_reader_that_has_gone_is_noted_and_not_complained_of():
    reader, writer = os.pipe()
    console, stream = Console(writer), Stream("", None)
    os.close(reader)
    console.say(stream, b"text\n")
    assert console.gone and not console.behind and console.told() == ""
    stream.started(), stream.finish(0.0)
    os.close(writer)


def test_a_full_disk_is_told_of(shown, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output.os, "write", full)
    shown.say(None, b"12345")
    assert shown.told() == "5 bytes of the ranks' output are lost: No space left on device"


def test_a_descriptor_that_is_closed_hears_nothing():
    console = Console(9999)
    console.say(None, b"text\n")
    assert console.fd == -1 and not console.behind
    assert console.told().startswith("5 bytes")


def test_one_console_serves_both_where_both_lead_to_one_place(monkeypatch):
    for same in (True, False):
        monkeypatch.setattr(output.os.path, "sameopenfile", lambda a, b, same=same: same)
        found = consoles()
        assert (found[1] is found[2]) is same and found[1].fd == 1


def test_colours(monkeypatch, shown):
    assert not is_colored(shown) and not is_colored(None)
    monkeypatch.setattr(output.os, "isatty", lambda fd: True)
    monkeypatch.setenv("TERM", "xterm")
    assert is_colored(shown)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_colored(shown)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert is_colored(shown) and is_colored(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_colored(shown)
    assert colored("", 3) == "" and colored("[0] ", 0) == "\x1b[36m[0] \x1b[0m"
    shades = [colored("x", rank) for rank in range(10)]
    assert len(set(shades)) == 10 and colored("x", 10) == shades[0]
    assert not any("[31m" in shade for shade in shades), "red is that of errors"
