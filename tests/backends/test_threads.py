"""Work spread over threads is done when it says so, and errors are not lost."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from disttrain.backends import threads
from support.ranks import run_ranks


def test_all_jobs_are_done_on_several_threads():
    seen = []
    barrier = threading.Barrier(2, timeout=20)

    def job(k):
        barrier.wait()
        seen.append((k, threading.get_ident()))

    threads.spread([partial(job, k) for k in range(2)])
    assert sorted(k for k, _ in seen) == [0, 1]
    assert (0, threading.get_ident()) in seen
    assert len({ident for _, ident in seen}) == 2


def test_one_job_stays_on_this_thread():
    seen = []
    threads.spread([lambda: seen.append(threading.get_ident())])
    assert seen == [threading.get_ident()]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_comes_after_all_have_ended(bad):
    done = []

    def job(k):
        if k == bad:
            raise ValueError(f"job {k}")
        time.sleep(0.02)
        done.append(k)

    with pytest.raises(ValueError, match=f"job {bad}"):
        threads.spread([partial(job, k) for k in range(3)])
    assert sorted(done) == [k for k in range(3) if k != bad]


def test_forked_children_have_threads_of_their_own():
    threads.spread([lambda: None] * 3)

    def child(rank):
        seen = []
        threads.spread([partial(seen.append, k) for k in range(3)])
        return sorted(seen)

    assert run_ranks(2, child) == [[0, 1, 2]] * 2


@pytest.mark.parametrize(("n", "least", "parts"), [(0, 1, 4), (1, 1, 4), (7, 1, 3), (30, 14, 8)])
def test_portions_are_all_things_once_and_none_is_small(n, least, parts):
    found = threads.portions(n, least, parts)
    assert [k for some in found for k in range(some.start, some.stop)] == list(range(n))
    assert len(found) <= parts
    assert len(found) == 1 or all(some.stop - some.start >= least for some in found)


def test_the_count_is_that_of_the_blas():
    before = threads.count()
    try:
        threads.set_count(1)
        assert threads.count() == 1
        assert len(threads.portions(100)) == 1
    finally:
        threads.set_count(before)
