"""A rank that is asked to end goes on and knows of it; nobody else does."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from disttrain.comm.job import termination
from support.ranks import run_ranks


def asked():
    os.kill(os.getpid(), signal.SIGTERM)
    return termination.requested()


def test_who_listens_is_told():
    def rank(_):
        before = termination.requested()
        heard = termination.listen()
        again = termination.listen()
        quiet = termination.requested()
        return before, heard, again, quiet, asked()

    assert run_ranks(1, rank) == [(False, True, True, False, True)]


def test_a_handler_of_the_program_stays():
    def rank(_):
        came = []
        signal.signal(signal.SIGTERM, lambda *_: came.append(1))
        return termination.listen(), asked(), came

    assert run_ranks(1, rank) == [(False, False, [1])]


def test_only_the_main_thread_can_listen():
    def rank(_):
        found = []
        thread = threading.Thread(target=lambda: found.append(termination.listen()))
        thread.start()
        thread.join(20)
        return found, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    assert run_ranks(1, rank) == [([False], True)]


def test_a_forked_child_ends_as_any_process():
    def rank(_):
        assert termination.listen()
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        return os.WTERMSIG(os.waitpid(pid, 0)[1]), termination.requested()

    assert run_ranks(1, rank) == [(signal.SIGTERM, False)]


def test_helpers_of_a_rank_that_goes_on_do_so_too():
    def rank(_):
        before = termination.for_helpers()
        termination.listen()
        return before, termination.for_helpers()

    assert run_ranks(1, rank) == [(signal.SIG_DFL, signal.SIG_IGN)]


@pytest.mark.parametrize("listens", [True, False])
def test_a_program_that_is_asked(listens):
    code = (
        "import os, signal, time\n"
        "from disttrain.comm.job import termination\n"
        f"{'termination.listen()' if listens else ''}\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(termination.requested())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    expected = (0, b"True") if listens else (-signal.SIGTERM, b"")
    assert (done.returncode, done.stdout.strip()) == expected
