"""How ranks end, what their children and their threads may do: on real processes."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.compat.torch.distributed import spawn as mp
from disttrain.errors import (
    CollectiveMismatch,
    CommError,
    ConfigError,
    LaunchError,
    PeerFailed,
    WaitTimeout,
)
from disttrain_launcher import launch
from support.ranks import free_port, run_ranks

LARGE = 400_000  # float32: several chunks of a ring

# -- ranks that end --------------------------------------------------------------------------------


def vanish(how: str) -> None:
    dist.init_process_group()
    x = dt.ones(3)
    dist.all_reduce(x)
    if dist.get_rank() == 2:
        if how == "exec":
            os.execv(sys.executable, [sys.executable, "-c", ""])
        os._exit(0)
    dist.all_reduce(x)


@pytest.mark.parametrize("how", ["exit", "exec"])
def test_a_rank_that_ends_without_a_word_is_named(how):
    with pytest.raises(LaunchError) as error:
        launch(lambda: vanish(how), 3)
    assert "rank 2" in str(error.value).splitlines()[0]
    for rank in (0, 1):
        assert f"also rank {rank}: PeerFailed: all_reduce(" in str(error.value)
    # One has seen it, the other may have heard of it from that one.
    told = re.findall("rank 2 (has ended|failed): its process is gone", str(error.value))
    assert len(told) == 2 and "has ended" in told


def begin_without(gone: int, backend: str) -> None:
    dist.Backend.register_backend(
        "own", lambda *told: dist.ProcessGroup(*told[1:3]), devices=["cpu"]
    )
    if int(os.environ["RANK"]) != gone:
        dist.init_process_group(backend)


@pytest.mark.parametrize("backend", ["tcp", "own"])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_who_waits_for_a_rank_that_has_ended_before_the_group_is_told(backend, gone):
    """It may be the one that would open the store, or one of those that are to come there."""
    start = time.monotonic()
    with pytest.raises(LaunchError, match=f"rank {gone} has ended: its program did not come"):
        launch(lambda: begin_without(gone, backend), 3)
    assert time.monotonic() - start < 25  # the deadline is half an hour


@pytest.mark.parametrize("how", ["a short deadline", "a message", "a thread beside"])
def test_nothing_but_its_process_can_free_who_waits_for_a_rank(how):
    """So it is told at once, though a deadline would end the wait, or a thread still computes."""

    def body():
        dist.init_process_group(timeout=4.0 if how == "a short deadline" else 100.0)
        x = dt.ones(3)
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            os._exit(0)
        if how == "a thread beside":
            threading.Thread(target=time.sleep, args=(3.0,), daemon=True).start()
        if how == "a message":
            dist.recv(x, 1)
        dist.all_reduce(x)

    with pytest.raises(LaunchError) as error:
        launch(body, 2)
    assert "also rank 0: PeerFailed: " in str(error.value)
    assert "rank 1 has ended: its process is gone" in str(error.value)


def spawned(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=3)
    x = dt.ones(3)
    dist.all_reduce(x)
    if rank == 2:
        os._exit(0)
    dist.all_reduce(x)


def test_without_a_launcher_too():
    with pytest.raises(mp.ProcessRaisedException, match="rank 2 has ended: its process is gone"):
        mp.start_processes(spawned, (free_port(),), nprocs=3, start_method="fork")


def test_who_is_stopped_is_told_without_a_launcher():
    """And who was given up goes on in vain: it is told so when it comes back."""
    pids, pipe = os.pipe()

    def main(rank: int, port: int) -> str:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=3)
        x = dt.ones(3)
        dist.all_reduce(x)
        if rank == 2:
            os.write(pipe, os.getpid().to_bytes(4, "little"))
            os.kill(os.getpid(), signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises((PeerFailed, CommError), match=r"state T \(stopped\)") as error:
            for _ in range(2):  # the others' data of the first is there
                dist.all_reduce(x)
        if rank == 0:  # whoever looked on may let it go on
            os.kill(int.from_bytes(os.read(pids, 4), "little"), signal.SIGCONT)
        if rank < 2:
            assert error.value.rank == 2 and time.monotonic() - started < 10.0
        return str(error.value)

    port = free_port()
    told = run_ranks(3, lambda rank: main(rank, port))
    assert all("rank 2 failed: stopped: state T" in text for text in told[:2])
    assert "others went on without this rank" in told[2]


def test_who_ends_after_the_same_calls_is_not_missed():
    """A rank skips all farewells; the others leave their group in good order."""

    def main(rank: int, port: int) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=3)
        x = dt.ones(3)
        dist.all_reduce(x)
        if rank == 1:
            os._exit(0)
        if rank == 2:
            time.sleep(0.3)
        dist.destroy_process_group()

    assert run_ranks(3, functools.partial(main_of, main, free_port())) == [0, 0, 0]


def main_of(main, port: int, rank: int) -> int:
    """Run ``main(rank, port)`` in a process of its own; its exit code."""
    child = os.fork()
    if child == 0:
        main(rank, port)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_who_is_done_may_go():
    """The last call is a broadcast: its root needs nobody's answer, the slow ones come later."""

    def body():
        dist.init_process_group()
        me = dist.get_rank()
        x = dt.full((3,), float(me))
        dist.broadcast(x, src=2)
        if me == 0:
            time.sleep(0.4)
        pair = dist.group.WORLD.split(0 if me < 2 else None)
        if pair is not None:
            pair.barrier()
        return x[0].item()

    assert launch(body, 3) == [2.0] * 3


# -- processes that a rank forks -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raises", "exits", "uses the group", "leaves the group"])
def test_a_forked_child_does_not_speak_for_its_rank(how):
    def body():
        dist.init_process_group()
        me, n = dist.get_rank(), dist.get_world_size()
        if me == 1:
            child = os.fork()
            if child == 0:
                assert dist.get_rank() == 1  # what a dataset may ask
                if how == "raises":
                    raise ValueError("in the child")
                if how == "exits":
                    sys.exit(3)
                if how == "leaves the group":
                    dist.destroy_process_group()
                    sys.exit(0)
                with pytest.raises(CommError, match="the process that this one was forked from"):
                    dist.all_reduce(dt.ones(3))
                with pytest.raises(ConfigError, match="was forked from rank 1"):
                    dist.init_process_group()
                dist.init_process_group(init_method="tcp://127.0.0.1:1", rank=0, world_size=1)
                dist.all_reduce(dt.ones(3))
                os._exit(7)
            _, status = os.waitpid(child, 0)
            code = {"raises": 1, "exits": 3, "uses the group": 7, "leaves the group": 0}[how]
            assert os.waitstatus_to_exitcode(status) == code
        else:
            time.sleep(0.3)  # the child could do its harm
        x = dt.ones(LARGE)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x[0].item() == n

    assert launch(body, 2) == [True, True]


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["main", "thread", "timer", "pool"])
def test_a_thread_that_computes_may_still_free_the_others(who):
    """Rank 0 is in two groups with two threads; the others call them one after the other."""

    def body():
        dist.init_process_group()
        first, second = (dist.new_group([0, 1, 2]) for _ in range(2))
        a, b = dt.ones(2), dt.ones(3)

        def late():
            time.sleep(0.8)
            dist.all_reduce(b, group=second)

        def early():
            dist.all_reduce(a, group=first)

        if dist.get_rank():
            dist.all_reduce(b, group=second)
            dist.all_reduce(a, group=first)
        elif who == "main":
            other = threading.Thread(target=early)
            other.start()
            late()
            other.join()
        elif who == "timer":
            timer = threading.Timer(0.8, dist.all_reduce, (b,), {"group": second})
            timer.start()
            early()
            timer.join()
        elif who == "pool":
            with ThreadPoolExecutor(2) as pool:
                for done in [pool.submit(early), pool.submit(late)]:
                    done.result()
        else:
            other = threading.Thread(target=late)
            other.start()
            early()
            other.join()
        dist.destroy_process_group()
        return a.tolist() + b.tolist()

    assert launch(body, 3) == [[3.0] * 5] * 3


def test_a_wait_that_will_end_is_no_deadlock():
    """Rank 0 gives up an impossible wait after a second, and then frees the others."""

    def body():
        dist.init_process_group()
        x = dt.ones(2)
        if dist.get_rank() == 0:
            work = dist.irecv(dt.zeros(2), 1)
            with pytest.raises(WaitTimeout):
                work.wait(1.0)
            dist.all_reduce(x)
            work.wait()
        else:
            dist.all_reduce(x)
            dist.send(x, 0)
        dist.destroy_process_group()
        return x.tolist()

    assert launch(body, 2) == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("how", ["join", "both wait", "pool", "anyone"])
def test_a_deadlock_of_threads_is_proven(how):
    def body():
        dist.init_process_group(timeout=50.0)
        groups = [dist.new_group([0, 1]) for _ in range(3)]

        def call(i):
            dist.all_reduce(dt.ones(2), group=groups[i])

        if dist.get_rank():
            if how == "anyone":
                dist.recv(dt.ones(2))
            call(2)
        elif how == "pool":
            with ThreadPoolExecutor(3) as pool:
                pool.submit(int).result()  # its thread stays
                for done in [pool.submit(call, i) for i in (0, 1)]:
                    done.result()
        else:
            other = threading.Thread(target=call, args=(0,))
            other.start()
            if how != "join":
                call(1)
            other.join()
            raise CollectiveMismatch("seen by the thread")

    started = time.monotonic()
    with pytest.raises(LaunchError, match="ranks wait for each other"):
        launch(body, 2)
    assert time.monotonic() - started < 40  # not by the deadline
