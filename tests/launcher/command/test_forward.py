"""What a job writes, told where the caller's text goes."""

from __future__ import annotations

import io
import os
import sys

import pytest

from disttrain_launcher.command.forward import Forward, leads_to

pytestmark = pytest.mark.simulated


@pytest.fixture
def forward():
    """A pipe whose text goes to ``forward.text``."""
    made = Forward(io.StringIO())
    made.text = made._stream
    return made


def test_text_arrives_in_the_order_in_which_it_was_written(forward):
    for part in (b"one ", b"two\n"):
        os.write(forward.writer, part)
        assert forward.pump()
    forward.started()
    assert forward.text.getvalue() == "one two\n"
    assert not forward.pump(), "the end"
    forward.finish()


def test_a_letter_that_comes_in_two_parts_is_one_letter(forward):
    whole = "é€😀".encode()
    for byte in whole:
        os.write(forward.writer, bytes([byte]))
        forward.pump()
    assert forward.text.getvalue() == "é€😀"
    os.write(forward.writer, whole[:1])
    forward.started()
    forward.finish()
    assert forward.text.getvalue() == "é€😀�", "half a letter at the end is told as such"


def test_what_is_left_is_passed_on_at_the_end_and_nobody_is_waited_for(forward):
    os.write(forward.writer, b"left")
    forward.finish()  # though the other end is open
    assert forward.text.getvalue() == "left"
    os.close(forward.writer)
    with pytest.raises(OSError):
        os.fstat(forward.reader)


def test_a_stream_that_was_closed_hears_no_more(forward):
    forward.text.close()
    for _ in range(2):
        os.write(forward.writer, b"text")
        assert forward.pump()
    forward.started()
    forward.finish()


def test_without_a_stream_the_pipe_is_emptied_all_the_same():
    forward = Forward(None)
    os.write(forward.writer, b"text")
    assert forward.pump()
    forward.started()
    forward.finish()


def test_a_stream_leads_to_its_own_descriptor():
    assert leads_to(sys.__stdout__, sys.__stdout__.fileno())
    assert not leads_to(sys.__stdout__, 99)
    closed = io.TextIOWrapper(io.BytesIO())
    for stream in (io.StringIO(), None, closed, object()):
        assert not leads_to(stream, 1)
