"""Which pipes the ranks of a node get, and when they are read."""

from __future__ import annotations

import errno
import os
import selectors

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.node import streams as module
from disttrain_launcher.node.output import Console
from disttrain_launcher.node.streams import Streams, unwatch
from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.job import Plan

pytestmark = pytest.mark.simulated


class Node:
    """Streams of a generation whose console is a file."""

    def __init__(self, tmp_path, counts=(2,), me=0, **plan):
        self.path = tmp_path / "console"
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT)
        self.console, self.fd = Console(fd), fd
        self.selector = selectors.DefaultSelector()
        self.plan = Plan(("t.py",), counts[me], log_dir=str(tmp_path / "logs"), **plan)
        self.streams = Streams(
            self.plan, Generation(counts, me), self.selector, {1: self.console, 2: self.console}
        )

    def open(self, rank, which=1):
        stream = self.streams.open(rank, which)
        if stream is not None:
            stream.ours = os.dup(stream.writer)  # the rank's end
            self.streams.add(stream)
        return stream

    def read(self):
        for key, _ in self.selector.select(0):
            key.data()
        return self.path.read_bytes()

    def end(self):
        self.selector.close()
        os.close(self.fd)


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = []
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def make(**settings):
        made.append(Node(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        for stream in one.streams._streams:
            stream.finish(0.0)
        for log in one.streams._filtered.values():
            log.close()
        one.end()


def finish(node, *streams):
    """Their ranks end."""
    for stream in streams:
        os.close(stream.ours)
    node.read()


def test_a_rank_alone_inherits_ours_unless_something_is_asked_of_its_output(node):
    assert node(counts=(1,)).open(0) is None
    redirected = node(counts=(1,), redirects="1").open(0)
    assert redirected is not None and redirected.console is None and redirected.prefix == b""
    os.close(redirected.ours)
    one = node(counts=(1, 3))
    stream = one.open(0)
    assert stream.prefix == b"[rank 0] ", "of several nodes"
    finish(one, stream)


def test_what_is_shown_and_what_goes_to_files(node, tmp_path):
    both = node(tee="0:1", redirects="1:1")
    first, second, errors = both.open(0), both.open(1), both.open(1, 2)
    for stream, text in ((first, b"teed\n"), (second, b"redirected\n"), (errors, b"shown\n")):
        os.write(stream.ours, text)
    got = both.read()
    assert sorted(got.splitlines()) == [b"[rank 0] teed", b"[rank 1] shown"]
    finish(both, first, second, errors)
    folder = tmp_path / "logs" / "attempt_0"
    assert (folder / "0" / "stdout.log").read_bytes() == b"teed\n"
    assert (folder / "1" / "stdout.log").read_bytes() == b"redirected\n"
    assert not (folder / "1" / "stderr.log").exists()


def test_ranks_that_are_not_shown_have_no_console_and_one_that_is_needs_no_prefix(node):
    some = node(counts=(3,), shown=(1,))
    streams = [some.open(rank) for rank in range(3)]
    assert [s.console is None for s in streams] == [True, False, True]
    assert streams[1].prefix == b""
    finish(some, *streams)


def test_a_prefix_in_torchrun_s_words(node, monkeypatch):
    monkeypatch.setenv(
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name}${rank}/$local_rank $x>"
    )
    some = node(counts=(2, 2), me=1, role="w")
    stream = some.open(3)
    assert stream.prefix == b"<w3/1 $x>"
    finish(some, stream)


def test_the_last_lines_of_a_rank_s_errors_are_remembered(node):
    some = node()
    stream = some.open(1, 2)
    os.write(stream.ours, b"one\n\ntwo  \nthree\nfour\n")
    some.read()
    assert some.streams.said_last(1) == ("two", "three", "four")
    assert some.streams.said_last(0) == ()
    finish(some, stream)


def test_lines_with_words_go_to_one_file_of_all_ranks(node, tmp_path):
    some = node(duplicates=(("loss",), ()))
    streams = [some.open(rank) for rank in range(2)]
    for rank, stream in enumerate(streams):
        os.write(stream.ours, f"loss {rank}\nother\n".encode())
    some.read()
    finish(some, *streams)
    lines = (tmp_path / "logs" / "attempt_0" / "filtered_stdout.log").read_text().splitlines()
    assert sorted(lines) == ["[rank 0] loss 0", "[rank 1] loss 1"]


def test_a_full_disk_shows_what_was_to_go_to_a_file(node, monkeypatch, capfd):
    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(module, "Log", full)
    some = node(redirects="1", duplicates=(("x",), ()))
    stream = some.open(0)
    assert stream.console is some.console and stream.log is None and stream.sieve is None
    assert "outputs go to no file, and are shown here" in capfd.readouterr().err
    finish(some, stream)


def test_a_folder_that_cannot_be_written_to_is_an_error(node, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(module, "Log", refused)
    with pytest.raises(LaunchError, match=r"--log-dir: .*Permission denied.* may be written to"):
        node(redirects="1").open(0)


def test_a_stream_whose_console_is_behind_waits(node, monkeypatch):
    some = node()
    stream = some.open(0)
    monkeypatch.setattr(Console, "full", property(lambda self: full))
    full = True
    os.write(stream.ours, b"text\n")
    assert some.read() == b"" and some.streams._held_up == [stream]
    unwatch(some.selector, stream.reader)
    some.streams.tend()
    assert some.streams._held_up == [stream]
    full = False
    some.streams.tend()
    assert some.streams._held_up == [] and some.read() == b"[rank 0] text\n"
    finish(some, stream)


def test_what_has_ended_is_let_go_of(node):
    some = node()
    stream = some.open(0)
    os.write(stream.ours, b"no end")
    finish(some, stream)
    some.read()
    assert some.streams._streams == [] and stream.reader == -1
    assert some.path.read_bytes() == b"[rank 0] no end\n"
    assert list(some.selector.get_map()) == []
    unwatch(some.selector, 12345)  # which nobody looks at
