"""Stacks as text: threads told once, without who answers and who has only started the program; and
what is said of processes that cannot be asked."""

from __future__ import annotations

import os
import signal

import pytest

from disttrain.watch import stacks

PROGRAM = f"""\
Thread 0x0000000000000001 (most recent call first):
  File "{stacks.__file__}", line 105 in _serve

Thread 0x0000000000000002 (most recent call first):
  File "/home/me/train.py", line 3 in step
  File "/home/me/train.py", line 9 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "{stacks._LAUNCHER}{os.sep}ranks.py", line 5 in run
  File "/usr/bin/dtrun", line 1 in <module>
Current thread 0x0000000000000003 (most recent call first):
  File "/home/me/other.py", line 1 in wait
"""


def test_the_thread_that_answers_and_what_started_the_program_are_left_out():
    assert stacks.of_program(PROGRAM).splitlines() == [
        "Thread 0x0000000000000002 (most recent call first):",
        '  File "/home/me/train.py", line 3 in step',
        '  File "/home/me/train.py", line 9 in <module>',
        "Current thread 0x0000000000000003 (most recent call first):",
        '  File "/home/me/other.py", line 1 in wait',
    ]


def test_a_stack_that_only_starts_programs_keeps_one_line():
    text = 'Thread 0x1 (most recent call first):\n  File "<frozen runpy>", line 88 in run'
    assert stacks.of_program(f'{text}\n  File "<frozen runpy>", line 9 in main') == text


def test_of_two_answers_each_thread_is_told_once_as_it_was_first():
    late = PROGRAM.replace("line 3 in step", "line 4 in step")
    assert stacks._once(PROGRAM + late) == PROGRAM.rstrip()


@pytest.fixture
def answers(tmp_path):
    """A file that is none where answers go."""
    path = tmp_path / "file"
    path.write_text("3 pipe:[1]\n")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    yield fd
    os.close(fd)


def test_processes_that_are_gone_or_stopped_are_not_asked():
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        told = stacks.ask([(child, 5)])
        assert told == ["(the process is stopped: it can say nothing)"]
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, os.WCONTINUED)
        assert "it is no Python" in stacks.ask([(child, 5)])[0]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert stacks.ask([(child, 5)]) == ["(the process is gone)"]
    assert stacks.ask([(os.getpid(), 0)])[0].startswith("(the process does not answer")


def test_a_file_that_is_none_of_answers_is_not_read(answers):
    before = signal.signal(stacks.SIGNAL, lambda *_: None)
    try:
        open_ones = len(os.listdir("/proc/self/fd"))
        told = stacks.ask([(os.getpid(), answers), (os.getpid(), 10**6)])
        assert told[0] == "(the program has closed the file that answers go to)"
        assert told[1].startswith("(the process cannot be asked: ")
        fd = os.memfd_create("disttrain-stacks", os.MFD_CLOEXEC)
        os.write(fd, b"1000000 pipe:[1]\n")
        assert stacks.ask([(os.getpid(), fd)])[0].startswith("(the process cannot be asked: ")
        os.close(fd)
        assert len(os.listdir("/proc/self/fd")) == open_ones
    finally:
        signal.signal(stacks.SIGNAL, before)
