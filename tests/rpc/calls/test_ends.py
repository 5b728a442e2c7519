"""Workers that die, leave or are slow; many calls and threads; profiles."""

import gc
import json
import os
import signal
import threading
import time
from contextlib import nullcontext

import pytest

import disttrain as dt
from disttrain import context, rpc
from disttrain.comm.transports import sim
from disttrain.errors import CommError, LaunchError, PeerFailed, WaitTimeout
from disttrain.futures import Future, collect_all, wait_all
from disttrain.profiler import profile
from disttrain.rpc import api
from support.ranks import fork_ranks
from support.workers import run_workers, simulate_workers


def add(a, b=1):
    return a + b


def fail():
    raise ValueError("expected")


def nap(seconds):
    context.sleep(seconds)
    return seconds


def die(number):
    os.kill(os.getpid(), number)
    time.sleep(60)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_calls_to_a_worker_that_dies_fail_with_its_name_and_the_function(tmp_path, number):
    pids = tmp_path / "pid"

    def body(rank):
        given = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/meet")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3, rpc_backend_options=given)
        if rank == 1:
            pids.write_text(str(os.getpid()))
        if rank == 0:
            calls = [rpc.rpc_async(1, die, (number,)), rpc.rpc_async(1, nap, (30,))]
            for name, call in zip(("die", "nap"), calls, strict=True):
                with pytest.raises(PeerFailed, match=f"{name} on worker 'worker1' will"):
                    call.wait()
            with pytest.raises(PeerFailed, match="worker1"):
                rpc.rpc_sync(1, add, (1,))
            assert rpc.rpc_sync(2, add, (1,)) == 2
            (tmp_path / "called").touch()
            with pytest.raises(PeerFailed, match=r"worker1.*did not come"):
                rpc.shutdown()
            if number == signal.SIGSTOP:
                os.kill(int(pids.read_text()), signal.SIGKILL)
            return True
        if rank == 2:
            while not (tmp_path / "called").exists():
                context.sleep(0.002)
            with pytest.raises(PeerFailed):
                rpc.shutdown()
        else:
            context.sleep(60)
        return None

    outcomes = fork_ranks(3, body)
    assert outcomes[0].ok and outcomes[2].ok, outcomes


@pytest.mark.simulated
def test_a_worker_that_leaves_at_once_is_lost_to_the_others():
    def body():
        rank = context.current().rank
        rpc.init_rpc(f"w{rank}")
        if rank == 0:
            slow = rpc.rpc_async(1, nap, (10.0,))
            context.sleep(1.0)
            rpc.shutdown(graceful=False)
            with pytest.raises(CommError, match="RPC was shut down here"):
                slow.wait()
            return True
        context.sleep(2.0)
        with pytest.raises(PeerFailed, match=r"add on worker 'w0' will not answer"):
            rpc.rpc_sync(0, add, (1,))
        with pytest.raises(PeerFailed):
            rpc.shutdown()
        return not rpc._is_current_rpc_agent_set()

    assert dt.distributed.simulate(body, 2).results == [True, True]


@pytest.mark.simulated
def test_a_worker_that_is_killed_in_a_call_says_nothing_of_it(caplog):
    def body():
        me = context.current().rank
        rpc.init_rpc(f"w{me}")
        if me == 1:
            context.sleep(10.0)
        with pytest.raises(PeerFailed, match="rank 1 failed"):
            rpc.rpc_sync("w1", sim.die)
        rpc.shutdown(graceful=False)

    with pytest.raises(LaunchError, match="Killed: killed"):
        sim.simulate(body, 2)
    assert "has failed here" not in caplog.text and "could not be handled" not in caplog.text


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(3))
def test_a_graceful_shutdown_waits_for_calls_and_for_what_they_call(seed):
    def body():
        rank = context.current().rank
        rpc.init_rpc(f"w{rank}")
        future = rpc.rpc_async((rank + 1) % 3, relay, ((rank + 2) % 3, 3)) if rank < 2 else None
        rpc.shutdown()
        return future is None or (future.done() and future.wait())

    assert dt.distributed.simulate(body, 3, seed=seed).results == [7, 7, True]


def relay(to, left):
    """Goes on somewhere else, and does not wait for it here."""
    context.sleep(0.5)
    if not left:
        return 7
    return rpc.rpc_async(to, relay, (to, left - 1)).wait()


@pytest.mark.simulated
def test_a_shutdown_with_a_deadline_says_who_is_missing():
    def body():
        rank = context.current().rank
        rpc.init_rpc(f"w{rank}")
        if rank:
            context.sleep(100.0)
            rpc.shutdown(graceful=False)
            return True
        with pytest.raises(WaitTimeout, match=r"Followers \['w1'\] timed out in _all_gather"):
            rpc.shutdown(timeout=2.0)
        return not rpc._is_current_rpc_agent_set()

    assert dt.distributed.simulate(body, 2).results == [True, True]


@pytest.mark.simulated
def test_late_answers_are_dropped():
    def body(rank):
        if rank == 0:
            for _ in range(3):
                with pytest.raises(WaitTimeout, match=r"nap on worker 'worker1'.*within 0.5 s"):
                    rpc.rpc_sync(1, nap, (1.0,), timeout=0.5)
            late = rpc.rpc_async(1, nap, (1.0,), timeout=0.5)
            with pytest.raises(WaitTimeout, match="waited"):
                late.wait_for(0.1)
            assert not late.done()
            context.sleep(2.0)
            with pytest.raises(WaitTimeout, match="more than set timeout"):
                late.wait()
            assert rpc.rpc_sync(1, nap, (1.0,), timeout=0) == 1.0
            rpc._set_rpc_timeout(0.25)
            with pytest.raises(WaitTimeout, match="250 ms"):
                rpc.rpc_async(1, nap, (1.0,)).wait()
            assert rpc.get_rpc_timeout() == 0.25
        assert not rpc._get_current_rpc_agent().in_flight

    simulate_workers(2, body)


@pytest.mark.simulated
def test_futures_of_calls_are_futures():
    def body(rank):
        if rank:
            return
        calls = [rpc.rpc_async(1, add, (i,)) for i in range(4)]
        assert wait_all(calls) == [1, 2, 3, 4]
        whole = collect_all([rpc.rpc_async(1, add, (i,)) for i in range(3)])
        assert [f.value() for f in whole.wait()] == [1, 2, 3]
        chained = (
            rpc.rpc_async(1, add, (1,)).then(lambda f: f.value() + 1).then(lambda f: f.value())
        )
        assert chained.wait() == 3 and isinstance(chained, Future)
        broken = rpc.rpc_async(1, fail).then(lambda f: f.value())
        with pytest.raises(RuntimeError, match="ValueError"):
            broken.wait()
        with rpc._wait_all():
            rpc.rpc_async(1, add, (1,))
        with pytest.raises(ValueError, match="expected"), rpc._wait_all():
            rpc.rpc_async(1, fail)

    simulate_workers(2, body)


@pytest.mark.simulated
def test_everybody_hears_of_everybody():
    def body(rank):
        first = rpc._all_gather(rank)
        rpc._barrier(["worker0", "worker2"]) if rank != 1 else None
        return first, rpc._all_gather(rank * 2, {"worker0", "worker1"}) if rank < 2 else None

    whole = {"worker0": 0, "worker1": 1, "worker2": 2}
    both = {"worker0": 0, "worker1": 2}
    assert simulate_workers(3, body) == [(whole, both), (whole, both), (whole, None)]


def test_many_calls_from_many_threads_leave_nothing_behind(tmp_path):
    def calls(other, n, wrong):
        for i in range(n):
            if rpc.rpc_sync(other, add, (i,)) != i + 1:
                wrong.append(i)

    def body(rank):
        other, wrong = 1 - rank, []
        counts = []
        for _ in range(3):
            threads = [threading.Thread(target=calls, args=(other, 100, wrong)) for _ in range(4)]
            for t in threads:
                t.start()
            assert wait_all([rpc.rpc_async(other, add, (i,)) for i in range(100)])[-1] == 100
            for t in threads:
                t.join()
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        agent = rpc._get_current_rpc_agent()
        return wrong, counts[-1] - counts[0] <= 2, len(agent.in_flight)

    assert run_workers(2, body, tmp_path) == [([], True, 0)] * 2


@pytest.mark.simulated
def test_calls_in_a_profile(tmp_path):
    def body(rank):
        if rank:
            return None
        with profile() as prof:
            rpc.rpc_sync(1, add, (dt.ones(2),))
            rpc.rpc_async(1, dt.add, (1, 2)).wait()
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return [e["name"] for e in events if e["name"].startswith("rpc")]

    names = ["rpc_sync#add(worker0 -> worker1)", "rpc_async#add(worker0 -> worker1)"]
    assert simulate_workers(2, body) == [names, None]


@pytest.mark.simulated
def test_a_program_may_meet_its_own_way_at_the_end(monkeypatch):
    """As with PyTorch: ``shutdown`` calls what ``rpc.api._wait_all_workers`` is then. Where that
    raises, RPC is shut down all the same."""
    real = api._wait_all_workers

    def meet(timeout):
        real(timeout)
        if timeout == 3.0:
            raise ValueError("no end")

    monkeypatch.setattr(api, "_wait_all_workers", meet)

    def body():
        for seconds in (2.0, 3.0):
            rpc.init_rpc(f"w{context.current().rank}")
            with pytest.raises(ValueError, match="no end") if seconds == 3.0 else nullcontext():
                rpc.shutdown(timeout=seconds)
            assert not rpc._is_current_rpc_agent_set()
        return True

    assert dt.distributed.simulate(body, 2).results == [True, True]
