"""Stacks as ``faulthandler`` writes them: threads, their order, and what is left out."""

from __future__ import annotations

from launcher.testing.stacks import Frame, threads_of


def thread(head: str, *frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{path}", line {line} in {name}' for path, line, name in frames]
    return "\n".join([f"{head} 0x00007f01 (most recent call first):", *lines, ""])


def test_the_outermost_frame_comes_first():
    text = thread("Current thread", ("/a/m.py", 7, "inner"), ("/a/m.py", 3, "outer"))
    assert threads_of(text) == [[Frame("/a/m.py", 3, "outer"), Frame("/a/m.py", 7, "inner")]]


def test_the_thread_that_ran_last_comes_first():
    text = thread("Thread", ("/a/m.py", 1, "f")) + thread("Current thread", ("/a/m.py", 2, "g"))
    assert [stack[0].function for stack in threads_of(text)] == ["g", "f"]


def test_what_started_the_test_is_left_out():
    text = thread(
        "Current thread", ("/a/m.py", 2, "test"), ("/s/_pytest/python.py", 5, "call"),
        ("/a/start.py", 1, "main"),
    )  # fmt: skip
    assert threads_of(text) == [[Frame("/a/m.py", 2, "test")]]


def test_threads_outside_the_program_are_left_out():
    assert threads_of(thread("Thread", ("/l/threading.py", 9, "wait"))) == []
    assert threads_of("no stacks at all") == []


def test_a_frame_without_a_name():
    text = 'Thread 0x1 (most recent call first):\n  File "/a/m.py", line 4\n'
    assert threads_of(text) == [[Frame("/a/m.py", 4, "?")]]
