"""Calls between real processes."""

import time

import pytest

import disttrain as dt
from disttrain import rpc
from disttrain.errors import CommError, PackError, WaitTimeout
from support.workers import run_workers


def add(a, b=1):
    return a + b


def fail(text):
    raise ValueError(text)


def chain(n, here, there):
    """Call each other ``n`` deep."""
    return 0 if not n else 1 + rpc.rpc_sync(there, chain, (n - 1, there, here))


def test_calls_of_all_kinds(tmp_path):
    def body(rank):
        other = f"worker{1 - rank}"
        info = rpc.get_worker_info(other)
        assert rpc.rpc_sync(other, add, (1, 2)) == 3
        assert rpc.rpc_sync(info, add, (1,), {"b": 5}) == 6
        assert rpc.rpc_sync(1 - rank, dt.add, (dt.ones(2), 1)).tolist() == [2.0, 2.0]
        assert rpc.rpc_async(other, min, args=(3, 2)).wait() == 2
        assert rpc.rpc_sync(rank, add, (1, 2)) == 3  # itself
        big = dt.arange(300_000)
        assert (rpc.rpc_sync(other, add, (big,)) == big + 1).all()
        return rpc.rpc_sync(other, rpc.get_worker_info)

    got = run_workers(2, body, tmp_path)
    assert got == [rpc.WorkerInfo("worker1", 1), rpc.WorkerInfo("worker0", 0)]


def test_errors_come_back_and_leave_the_connection_usable(tmp_path):
    def body(rank):
        with pytest.raises(ValueError, match=r"(?s)On WorkerInfo\(id=1, name=worker1\).*bad"):
            rpc.rpc_sync("worker1", fail, ("bad",))
        with pytest.raises(PackError):
            rpc.rpc_sync("worker1", lambda: 1)
        with pytest.raises(RuntimeError, match="could not find destination"):
            rpc.rpc_async("worker9", add, (1,))
        with pytest.raises(TypeError, match="should be callable"):
            rpc.rpc_sync("worker1", 3)
        with pytest.raises(WaitTimeout, match=r"more than set timeout \(50 ms\).*sleep.*worker1"):
            rpc.rpc_sync("worker1", time.sleep, (0.3,), timeout=0.05)
        late = rpc.rpc_async("worker1", time.sleep, (0.3,), timeout=0.05)
        with pytest.raises(WaitTimeout):
            late.wait()
        return rpc.rpc_sync("worker1", add, (1,))

    assert run_workers(2, lambda rank: body(rank) if rank == 0 else None, tmp_path) == [2, None]


def test_nested_calls_and_callbacks(tmp_path):
    def body(rank):
        if rank:
            return None
        doubled = rpc.rpc_async(1, add, (1,)).then(lambda f: rpc.rpc_sync(1, add, (f.wait(), 9)))
        return doubled.wait(), rpc.rpc_sync("worker1", chain, (50, "worker1", "worker0"))

    assert run_workers(2, body, tmp_path) == [(11, 50), None]


def test_without_a_group():
    for call in (lambda: rpc.rpc_sync(0, add, (1,)), rpc.shutdown, rpc.get_worker_info):
        with pytest.raises(CommError, match=r"^RPC has not been initialized. Call torch.distrib"):
            call()


def test_a_call_s_future_is_completed_once(tmp_path):
    def body(rank):
        future = rpc.rpc_async(1 - rank, add, (1, 2))
        assert future.wait() == 3
        with pytest.raises(RuntimeError, match="Future can only be marked completed once"):
            future.set_result(4)
        return future.wait()

    assert run_workers(2, body, tmp_path) == [3, 3]
