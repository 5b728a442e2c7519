"""Worker processes: seeds, order, shared memory, failure, death, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import random
import signal
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from disttrain import context
from disttrain.core import Tensor, wrap
from disttrain.core.random import default_generator, manual_seed
from disttrain.core.types import dtypes
from disttrain.data import DataLoader, Dataset, IterableDataset, get_worker_info, slabs, transfer
from disttrain.errors import PeerFailed, ShapeError, WaitTimeout, WorkerFailed
from support.ranks import run_ranks
from support.shm import names

# A machine with one processor is told that 2 workers are many.
pytestmark = pytest.mark.filterwarnings("ignore:.*excessive worker creation")


class Each(Dataset):
    """Samples that a function makes."""

    def __init__(self, make, n=8):
        self.make, self.n = make, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.make(i)


def raw(make, n=8, **options):
    """A loader of single samples, as they are."""
    return DataLoader(Each(make, n), None, collate_fn=lambda x: x, **{"num_workers": 2, **options})


def children():
    path = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children"
    with open(path) as f:
        return f.read().split()


def memory_files():
    """Shared memory of workers that this process has mapped."""
    with open("/proc/self/maps") as f:
        return sum("memfd:disttrain-data" in line for line in f)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Whatever happens in a test: no process, no descriptor, no mapping, no named memory stays."""
    gc.collect()
    before = (names(), len(os.listdir("/proc/self/fd")), memory_files())
    yield
    gc.collect()
    after = (names(), len(os.listdir("/proc/self/fd")), memory_files())
    assert after == before and children() == []


# --- who a worker is ------------------------------------------------------------------------------


def test_worker_info_and_init():
    assert get_worker_info() is None
    seen = []

    def tell(i):
        me = get_worker_info()
        return me.id, me.num_workers, me.seed, type(me.dataset), list(seen), os.getpid()

    got = list(raw(tell, worker_init_fn=seen.append))
    assert [g[0] for g in got] == [0, 1] * 4  # in turn
    assert {g[1] for g in got} == {2} and {g[3] for g in got} == {Each}
    assert got[1][2] == got[0][2] + 1 and [g[4] for g in got[:2]] == [[0], [1]]
    assert len({g[5] for g in got}) == 2 and os.getpid() not in {g[5] for g in got}
    assert seen == [] and get_worker_info() is None


def test_each_worker_has_its_own_seeds_and_the_ranks_seed_decides_them():
    def draw(i):
        return random.random(), np.random.rand(), default_generator.rng.random()

    manual_seed(1)
    first = list(raw(draw, 4))
    manual_seed(1)
    assert first == list(raw(draw, 4))
    for column in zip(*first):
        assert len(set(column)) == 4
    assert first != list(raw(draw, 4))


def test_the_rank_is_known_and_its_peers_are_not_waited_for():
    with context.attach(context.Rank(rank=3, world_size=5)) as rank:
        rank.waiter.interrupts.append(lambda: None)

        def tell(i):
            me = context.current()
            return me.rank, me.world_size, len(me.waiter.interrupts)

        assert list(raw(tell, 1, num_workers=1)) == [(3, 5, 0)]


def test_the_default_type_of_the_rank():
    with context.attach(context.Rank()):
        dtypes.set_default_dtype(dtypes.float64)
        assert list(raw(lambda i: dtypes.get_default_dtype(), 1)) == [dtypes.float64]


# --- what comes over ------------------------------------------------------------------------------


def test_values_of_all_kinds():
    def make(i):
        return {
            "i": i, "text": "x" * 100_000, "bytes": b"y", "none": None, "set": {1, 2},
            "array": np.arange(i), "big": np.full((300, 300), i), "fortran": np.ones((9, 300)).T,
            "bf16": np.ones(3, ml_dtypes.bfloat16), "tensor": wrap(np.full(50_000, i, np.int16)),
            "big bf16": wrap(np.full(90_000, i, ml_dtypes.bfloat16)), "0-d": wrap(np.float64(i)),
            "leaf": wrap(np.ones(2)).requires_grad_(), "empty": wrap(np.ones((0, 3))),
            "read only": np.broadcast_to(np.float32(i), (200, 200)), "dtype": dtypes.bfloat16,
            "same": [make],
        }  # fmt: skip

    loader = DataLoader(Each(lambda i: i, 6), None, num_workers=2, collate_fn=without(make))
    for i, got in enumerate(loader):
        want = without(make)(i)
        assert list(got) == list(want)
        for name, value in want.items():
            if isinstance(value, (Tensor, np.ndarray)):
                a, b = (v.array if isinstance(v, Tensor) else v for v in (got[name], value))
                assert type(got[name]) is type(value) and a.dtype == b.dtype and a.flags.aligned
                np.testing.assert_array_equal(a, b)
            else:
                assert got[name] == value
        assert got["leaf"].requires_grad and not got["tensor"].requires_grad
        got["big"][0, 0] = 3
        got["tensor"].array[0] = 3
        got["bf16"][0] = 3


def without(make):
    """``make`` with what cannot be pickled left out."""
    return lambda i: {k: v for k, v in make(i).items() if k != "same"}


def test_batches_are_not_overwritten_while_they_are_kept():
    loader = raw(lambda i: wrap(np.full(40_000, i)), 60)
    kept = [t for i, t in enumerate(loader) if i % 3 == 0]
    for i, t in enumerate(kept):
        assert (t.array == i * 3).all()
    half = kept[5].array[100:200]  # a part keeps its memory
    del kept, t
    gc.collect()
    assert memory_files() == 2 and (half == 15).all()  # its slab, and the page of states


def test_memory_is_used_again():
    loader = raw(lambda i: np.full(100_000, i), 100, num_workers=1)
    addresses = {a.__array_interface__["data"][0] for a in loader}
    assert len(addresses) <= 6


def test_memory_that_was_kept_is_given_back():
    loader = iter(raw(lambda i: np.full(100_000, i), 100, num_workers=1))
    kept = [next(loader) for _ in range(60)]
    peak = memory_files()
    del kept
    rest = sum(1 for _ in zip(range(30), loader))
    assert rest == 30 and memory_files() < peak - 40
    del loader


def test_keeping_a_small_part_keeps_no_large_memory():
    loader = raw(lambda i: (np.full(1_000_000, i, np.uint8), np.full(10, i)), 40, num_workers=1)
    labels = [small for _, small in loader]
    del loader
    assert [s[0] for s in labels] == list(range(40))
    gc.collect()
    assert memory_files() == 0


def test_many_large_arrays_in_one_batch():
    got = list(raw(lambda i: [np.full(10_000, 100 * i + k) for k in range(100)], 4))
    assert [[a[-1] for a in batch] for batch in got] == [
        [100 * i + k for k in range(100)] for i in range(4)
    ]


def test_growing_batches():
    got = list(raw(lambda i: np.full(1000 * 4**i, i), 6, num_workers=1))
    assert [(a.size, a[-1]) for a in got] == [(1000 * 4**i, i) for i in range(6)]


def test_more_slabs_than_there_are_numbers(monkeypatch):
    for module in (slabs, transfer):
        monkeypatch.setattr(module, "NUM_SLABS", 3, raising=False)
    got = list(raw(lambda i: np.full(20_000, i), 20, num_workers=1))
    assert [a[7] for a in got] == list(range(20))


def test_a_forked_child_sees_no_change():
    """What a child inherits is never written over, even when the parent has dropped it."""
    loader = iter(raw(lambda i: np.full(20_000, i), 40, num_workers=1))
    held = next(loader)
    go, wait = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(wait)
        os.read(go, 1)
        os._exit(0 if (held == 0).all() else 1)
    os.close(go)
    del held
    assert sum(1 for _ in loader) == 39
    os.close(wait)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_large_requests_do_not_block():
    big = list(range(300_000))
    loader = DataLoader(Each(lambda i: i, len(big)), batch_sampler=[big] * 4, num_workers=1,
                        collate_fn=len, prefetch_factor=4)  # fmt: skip
    assert list(loader) == [len(big)] * 4


def test_out_of_order():
    def slow(i):
        if i == 0:
            time.sleep(0.2)
        return i

    got = list(raw(slow, 8, in_order=False))
    assert sorted(got) == list(range(8)) and got[0] != 0
    assert list(raw(slow, 8)) == list(range(8))


# --- epochs ---------------------------------------------------------------------------------------


def test_persistent_workers_stay():
    loader = raw(lambda i: (i, os.getpid()), persistent_workers=True)
    first, second = list(loader), list(loader)
    assert first == second and len(children()) == 2
    assert next(iter(loader))[0] == 0  # left early: the rest is dropped
    assert list(loader) == first
    del loader
    gc.collect()


class Restarts(IterableDataset):
    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([self.passes] * 2)


def test_persistent_workers_begin_streams_anew():
    loader = DataLoader(Restarts(), None, num_workers=2, persistent_workers=True)
    assert [list(loader) for _ in range(3)] == [[1] * 4, [2] * 4, [3] * 4]


def test_workers_end_with_their_epoch_and_when_it_is_left():
    loader = raw(lambda i: i)
    assert list(loader) == list(range(8)) and children() == []
    for i in loader:
        if i == 3:
            break
    gc.collect()
    assert children() == []
    it = iter(loader)
    assert len(children()) == 2
    del it
    assert children() == []


def test_two_loaders_at_once():
    a, b = raw(lambda i: i), raw(lambda i: -i)
    assert [(x, y) for x, y in zip(a, b, strict=True)] == [(i, -i) for i in range(8)]


def test_a_worker_that_is_busy_is_ended_by_signal():
    it = iter(raw(lambda i: time.sleep(100 * (i == 1))))
    next(it)
    del it
    assert children() == []


# --- failure --------------------------------------------------------------------------------------


class Special(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a, self.b = a, b


def failing(error):
    def make(i):
        if i == 3:
            raise error
        return i

    return make


@pytest.mark.parametrize(
    "error",
    [ValueError("wrong value"), ShapeError("wrong shape"), KeyError("key"), OSError(5, "disk"),
     ZeroDivisionError(), StopIteration("too early"), PeerFailed(3, "gone"), MemoryError()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_exceptions_come_with_their_type_and_traceback(error):
    it = iter(raw(failing(error)))
    assert [next(it) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as info:
        next(it)
    told = str(info.value) + "".join(getattr(info.value, "__notes__", []))
    assert "DataLoader worker 1 (pid " in told and "in make" in told and "raise error" in told
    if isinstance(error, (OSError, KeyError, PeerFailed)):
        assert info.value.args == error.args
    assert list(it) == [4, 5, 6, 7]  # the next batches are good


def test_exceptions_that_cannot_travel():
    with pytest.raises(WorkerFailed, match=r"(?s)Special .*1 and 2.*cannot be sent"):
        list(raw(failing(Special(1, 2))))

    class Local(Exception):
        pass

    with pytest.raises(WorkerFailed, match="Local"):
        list(raw(failing(Local("x"))))


def test_batches_that_cannot_be_pickled():
    refused = (AttributeError, TypeError, pickle.PicklingError)  # the last one since Python 3.14
    with pytest.raises(refused, match=r"(?s)worker 0.*pickle"):
        list(raw(lambda i: lambda: i))


def test_failure_at_the_start():
    def fail(i):
        raise ValueError(f"init of {i}")

    with pytest.raises(ValueError, match="init of 0"):
        list(raw(lambda i: i, worker_init_fn=fail))

    class Bad(IterableDataset):
        def __iter__(self):
            raise ValueError("no stream")

    with pytest.raises(ValueError, match="no stream"):
        list(DataLoader(Bad(), num_workers=1))


def test_no_memory_for_a_batch_is_an_error_like_others(monkeypatch):
    whole = slabs.make_memory

    def scarce(name, num_bytes):
        if num_bytes > 1 << 22:
            raise MemoryError(f"{num_bytes} bytes of shared memory: none left")
        return whole(name, num_bytes)

    monkeypatch.setattr(slabs, "make_memory", scarce)
    it = iter(raw(lambda i: [np.zeros(20_000), np.zeros(10**6 * (i == 1))], 6, num_workers=1))
    next(it)
    with pytest.raises(MemoryError, match=r"(?s)worker 0.*none left"):
        next(it)
    assert len([next(it) for _ in range(4)]) == 4


@pytest.mark.parametrize("how", ["kill", "segv", "exit"])
def test_death_of_a_worker_is_told_at_once(how):
    def make(i):
        if i == 3:
            if how == "exit":
                os._exit(7)
            faulthandler.disable()  # of pytest
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSEGV)
            time.sleep(50)
        return i

    want = {"kill": "killed by SIGKILL.*memory", "segv": "killed by SIGSEGV", "exit": "exit code 7"}
    it = iter(raw(make, prefetch_factor=1))
    with pytest.raises(WorkerFailed, match=rf"worker 1 \(pid \d+\) .*{want[how]}"):
        list(it)
    assert children() == []


def test_a_stopped_worker_is_named():
    def make(i):
        if i == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return i

    it = iter(raw(make, prefetch_factor=1))
    with pytest.raises(WorkerFailed, match=r"worker 1 \(pid (\d+)\) was stopped: state T.*CONT"):
        list(it)
    assert children() == []


def test_death_between_epochs_and_a_new_start():
    loader = raw(lambda i: i, persistent_workers=True)
    assert list(loader) == list(range(8))
    for pid in children():
        os.kill(int(pid), signal.SIGKILL)
    with pytest.raises(WorkerFailed, match="SIGKILL"):
        list(loader)
    assert list(loader) == list(range(8))


def test_timeout():
    it = iter(raw(lambda i: time.sleep(30 * (i == 1)), timeout=0.3))
    next(it)
    with pytest.raises(WaitTimeout, match=r"batch 1 of DataLoader worker 0 \(pid"):
        next(it)
    del it


def test_peers_are_looked_at_while_waiting():
    class Interrupt(Exception):
        pass

    def interrupt():
        raise Interrupt

    with context.attach(context.Rank()) as rank:
        it = iter(raw(lambda i: time.sleep(30 * (i == 1))))
        next(it)
        rank.waiter.interrupts.append(interrupt)
        with pytest.raises(Interrupt):
            next(it)
        del it


def gone(pid):
    """Has the process ended (it may wait to be reaped by init)?"""
    with contextlib.suppress(FileNotFoundError):
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    return True


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_their_parent(in_thread, busy):
    """A parent that is killed: its workers go, idle or busy, whichever thread started them."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)

        def work():
            it = iter(raw(lambda i: (time.sleep(100 * busy * (i > 1)), os.getpid())[1]))
            os.write(write, f"{next(it)} {next(it)}\n".encode())
            if not in_thread:
                time.sleep(100)
            kept.append(it)

        kept = []
        try:
            if in_thread:
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            else:
                work()
            time.sleep(100)
        finally:
            os._exit(1)
    os.close(write)
    with open(read) as f:
        workers = f.readline().split()
        assert len(workers) == 2 and not any(map(gone, workers))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert f.read() == ""  # the last copy of the pipe is closed: they are gone
    context.wait_until(lambda: all(map(gone, workers)), lambda: "the end of the workers", 5)


def test_workers_outlive_the_thread_that_started_them():
    made = []
    thread = threading.Thread(target=lambda: made.append(iter(raw(lambda i: i))))
    thread.start()
    thread.join()
    assert list(made.pop()) == list(range(8))


# --- other ways to start --------------------------------------------------------------------------


def square(i):
    return np.full(20_000, i * i), get_worker_info().id


def test_spawned_workers():
    """In a process of its own: multiprocessing starts a helper for them and leaves it running."""

    def body(rank):
        loader = DataLoader(Each(square, 4), None, num_workers=1, collate_fn=tuple,
                            multiprocessing_context="spawn")  # fmt: skip
        return [(int(a[0]), w) for a, w in loader]

    assert run_ranks(1, body) == [[(0, 0), (1, 0), (4, 0), (9, 0)]]


def test_simulated_ranks_may_have_workers():
    """A rank with a virtual clock keeps the baton while real processes work for it."""

    class Virtual(context.Waiter):
        turns = 0

        def now(self):
            return 0.0

        def wait_until(self, ready, what, timeout, block=None):
            while not ready():
                self.turns += 1
                assert self.turns < 3

    with context.attach(context.Rank(waiter=Virtual())):
        assert list(raw(lambda i: (time.sleep(0.02), i)[1], 4)) == list(range(4))
