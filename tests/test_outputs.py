"""What was written to a pipe is there for its reader before the job ends."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest

from disttrain import outputs


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        with contextlib.suppress(OSError):
            os.close(fd)


def test_who_drains_waits_for_the_reader(pipe):
    read, write = pipe
    taken = []
    os.write(write, b"leaves by os._exit(3)")

    def later():
        time.sleep(0.1)
        taken.append(os.read(read, 100))

    reader = threading.Thread(target=later)
    reader.start()
    outputs.drain(write, 30.0)
    assert taken == [b"leaves by os._exit(3)"] or not reader.join()
    reader.join()
    outputs.drain(write, 30.0)  # nothing is left: at once


def test_a_reader_who_takes_nothing_or_is_gone_is_not_waited_for(pipe, tmp_path):
    read, write = pipe
    os.write(write, b"unread")
    outputs.drain(write, 0.05)
    os.close(read)
    outputs.drain(write, 30.0)
    with (tmp_path / "file").open("w") as plain:
        plain.write("text")
        plain.flush()
        outputs.drain(plain.fileno(), 30.0)


def test_it_is_known_whether_somebody_reads(pipe):
    read, write = pipe
    assert outputs.is_heard(write)
    os.close(read)
    assert not outputs.is_heard(write)


def test_what_is_put_is_no_reason_to_fail(pipe):
    read, write = pipe
    outputs.put("one line\n", write)
    assert os.read(read, 100) == b"one line\n"
    os.set_blocking(write, False)
    outputs.put("x" * (1 << 20), write, patience=0.02)  # more than there is room for
    os.close(read)
    outputs.put("nobody reads", write)
