"""Futures: one result, callbacks in order, errors where they belong."""

from __future__ import annotations

import pickle
import threading

import pytest

from disttrain.errors import FutureError
from disttrain.futures import Future, collect_all, wait_all


def fail(future):
    raise KeyError("lost")


def test_a_result_comes_once():
    f = Future[int]()
    assert not f.done()
    with pytest.raises(FutureError, match="not done yet"):
        f.value()
    f.set_result(3)
    assert f.done() and f.wait() == f.value() == 3
    with pytest.raises(FutureError, match="can only be marked completed once"):
        f.set_result(4)
    with pytest.raises(RuntimeError, match="an exception given to one that is done"):
        f.set_exception(ValueError())
    assert f.wait() == 3


def test_an_exception_is_raised_as_it_is():
    f = Future()
    f.set_exception(ValueError("boo"))
    for ask in (f.wait, f.value):
        with pytest.raises(ValueError, match="boo"):
            ask()
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception("boo")


def test_a_thread_waits_for_another():
    f, got = Future(), []
    waits = threading.Thread(target=lambda: got.append(f.wait()))
    waits.start()
    f.set_result("here")
    waits.join()
    assert got == ["here"]


def test_callbacks_run_in_order_and_late_ones_at_once(capsys):
    f, seen = Future(), []
    f.add_done_callback(lambda f: seen.append(("first", f.wait())))
    child = f.then(lambda f: (len(seen), f.wait()))
    f.add_done_callback(fail)
    f.add_done_callback(lambda f: seen.append("last"))
    assert not child.done() and not seen
    f.set_result(5)
    assert seen == [("first", 5), "last"] and child.wait() == (1, 5)
    f.add_done_callback(lambda f: seen.append("late"))
    assert seen[-1] == "late" and "KeyError: 'lost'" in capsys.readouterr().err


def test_what_a_callback_raises_is_its_futures():
    f = Future()
    child = f.then(fail).then(lambda f: f.wait())
    f.set_result(1)
    with pytest.raises(FutureError, match="error when running the callback: FutureError: Got"):
        child.wait()
    with pytest.raises(FutureError, match="KeyError: 'lost'") as raised:
        f.then(fail).wait()
    assert isinstance(raised.value.__cause__, KeyError) and f.wait() == 1


def test_collecting():
    futures = [Future() for _ in range(3)]
    whole = collect_all(futures)
    for i in (2, 0):
        futures[i].set_result(i)
        assert not whole.done()
    futures[1].set_result(1)
    assert [f.wait() for f in whole.wait()] == wait_all(futures) == [0, 1, 2]
    assert collect_all([]).wait() == wait_all([]) == []


def test_collecting_ends_with_the_first_failure():
    futures = [Future() for _ in range(3)]
    whole = collect_all(futures)
    futures[2].set_exception(ValueError("of the third"))
    assert whole.done()
    with pytest.raises(ValueError, match="third"):
        wait_all(futures)
    futures[0].set_exception(ValueError("too late"))
    with pytest.raises(ValueError, match="third"):
        whole.wait()


def test_threads_complete_one_of_many():
    for _ in range(50):
        futures = [Future() for _ in range(4)]
        whole = collect_all(futures)
        threads = [threading.Thread(target=f.set_result, args=(i,)) for i, f in enumerate(futures)]
        for t in threads:
            t.start()
        assert [f.value() for f in whole.wait()] == [0, 1, 2, 3]
        for t in threads:
            t.join()


def test_a_future_is_not_pickled():
    with pytest.raises(FutureError, match="Can not pickle"):
        pickle.dumps(Future())


@pytest.mark.parametrize("leave", [Future.then, Future.add_done_callback])
def test_a_callback_must_be_a_function(leave):
    with pytest.raises(TypeError, match=r"incompatible function arguments\. NoneType was given"):
        leave(Future(), None)
