"""Running a function for somebody: what is answered at once, what later, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.errors import FutureError
from disttrain.futures import Future
from disttrain.rpc.calls import kinds
from disttrain.rpc.calls.functions import (
    ASYNC,
    Later,
    checked,
    run_function,
    run_here,
    serve_functions,
)
from disttrain.rpc.calls.packing import Packer
from disttrain.rpc.calls.workers import WorkerInfo

pytestmark = pytest.mark.simulated


def later(fn):
    setattr(fn, ASYNC, fn)
    return fn


def test_a_value_is_the_answer():
    assert run_function(lambda a, b=0: a - b, (5,), {"b": 3}) == 2


def test_a_function_that_is_asynchronous_answers_by_its_future():
    future = Future()
    assert run_function(later(lambda: future), (), {}) is future


def test_a_future_of_any_other_function_cannot_be_an_answer():
    with pytest.raises(FutureError, match=r"must be decorated with @rpc.functions.async_execution"):
        run_function(lambda: Future(), (), {})


def test_an_asynchronous_function_must_give_a_future():
    @later
    def wrong():
        return 3

    with pytest.raises(FutureError, match=r"got int from test_an.*wrong"):
        run_function(wrong, (), {})
    with pytest.raises(FutureError, match="got NoneType"):
        checked(wrong, None)


def test_a_function_of_the_package_may_answer_later_this_time():
    future = Future()
    assert run_function(lambda: Later(future), (), {}) is future


def test_requests_of_functions_are_handled():
    handlers = {}
    agent = SimpleNamespace(handle=handlers.__setitem__)
    serve_functions(agent)
    caller = WorkerInfo("a", 0)
    assert handlers[kinds.FUNCTION](caller, (divmod, (7, 2), {})) == (3, 1)


def test_a_call_here_is_done_and_fails_as_one_to_another_worker():
    agent = SimpleNamespace(me=WorkerInfo("me", 0), packer=Packer())
    good = run_here(agent, divmod, (7, 2))
    assert good.done() and good.wait() == (3, 1)
    bad = run_here(agent, divmod, (7, 0))
    assert bad.done()
    with pytest.raises(ZeroDivisionError, match=r"^On WorkerInfo\(id=0, name=me\):"):
        bad.wait()


def test_what_ends_a_process_is_no_answer():
    def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        run_here(SimpleNamespace(me=None), leave, ())
