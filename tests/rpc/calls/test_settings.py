"""What a worker takes from others, and what it says where it does not."""

import threading

import pytest

import disttrain as dt
from disttrain import context, rpc
from disttrain.errors import CallRefused, CommError, MessageTooLarge, UnknownName
from disttrain.rpc.calls.settings import Admission, Settings
from support.workers import simulate_workers

pytestmark = pytest.mark.simulated


def add(a, b=1):
    return a + b


def nap(seconds):
    context.sleep(seconds)
    return seconds


def zeros(n):
    return dt.zeros(n)


def again(depth):
    me = rpc.get_worker_info().id
    return rpc.rpc_sync(1 - me, again, (depth + 1,))


def test_so_many_calls_at_once():
    takes = Admission("here", Settings(max_calls=2))
    takes.decide("there", 2, 0.0)
    with pytest.raises(CallRefused, match=r"handles 2 calls of worker 'there'.*most 2 \(max_calls"):
        takes.decide("there", 3, 0.0)


def test_so_many_calls_in_a_second():
    takes = Admission("here", Settings(max_calls_per_second=2.0))
    for now in (0.0, 0.0, 0.5, 1.0, 5.0, 5.0):
        takes.decide("there", 1, now)
    takes.decide("other", 1, 5.0)
    with pytest.raises(CallRefused, match=r"than 2 times a second \(max_calls_per_second\)"):
        takes.decide("there", 1, 5.1)
    takes.decide("there", 1, 5.5)


def test_callers_over_a_limit_are_told_and_can_go_on(caplog):
    def body(rank):
        if rank:
            return None
        futures = [rpc.rpc_async(1, nap, (0.1,)) for _ in range(4)]
        refused = 0
        for future in futures:
            try:
                future.wait()
            except CallRefused as error:
                assert "max_calls" in str(error)
                refused += 1
        assert rpc.rpc_sync(1, add, (1,)) == 2
        return refused

    assert simulate_workers(2, body, max_calls=2) == [2, None]
    assert "worker 'worker1' handles 2 calls of worker 'worker0'" in caplog.text


def test_recursion_without_end():
    def body(rank):
        if rank == 0:
            with pytest.raises(CommError, match=r"nested 20 deep.*at most 20 \(max_depth\)"):
                again(0)
            assert rpc.rpc_sync(1, add, (1,)) == 2

    simulate_workers(2, body, max_depth=20)


def test_messages_that_are_too_large():
    def body(rank):
        if rank == 0:
            with pytest.raises(MessageTooLarge, match=r"at most 10000 \(message_bytes"):
                rpc.rpc_sync(1, add, (dt.zeros(5000),))
            with pytest.raises(MessageTooLarge, match=r"(?s)worker1.*\(message_bytes\)"):
                rpc.rpc_sync(1, zeros, (5000,))
            assert rpc.rpc_sync(1, add, (dt.zeros(1000),)).sum() == 1000

    simulate_workers(2, body, max_message_bytes=10_000)


def test_only_allowed_modules_are_called():
    def body(rank):
        if rank == 0:
            assert rpc.rpc_sync(1, add, (dt.ones(1), dt.ones(1))).tolist() == [2.0]
            with pytest.raises(UnknownName, match=r"eval may not be used.*callable_modules"):
                rpc.rpc_sync(1, eval, ("1 + 1",))
            assert rpc.rpc_async(1, add, (1,)).wait() == 2

    simulate_workers(2, body, callable_modules=[__name__])


def test_unpicklable_answers_and_arguments_leave_the_connection_usable():
    def body(rank):
        if rank == 0:
            with pytest.raises(TypeError, match=r"(?s)worker1.*cannot pickle"):
                rpc.rpc_sync(1, threading.Lock)
            with pytest.raises(TypeError, match="cannot pickle"):
                rpc.rpc_sync(1, add, (threading.Lock(),))
            assert rpc.rpc_sync(1, add, (1,)) == 2

    simulate_workers(2, body)
