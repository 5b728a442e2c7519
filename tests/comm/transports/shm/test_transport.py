"""The shared-memory transport passes the conformance suite, and what only it promises."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest
from comm.transports.conformance import LARGE, Conformance, Failures

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import Segment
from disttrain.comm.store import FileStore
from disttrain.comm.transports import shm
from disttrain.comm.transports.shm import bootstrap
from disttrain.errors import CollectiveMismatch, CommError, ConfigError, PeerFailed
from support.groups import group_outcomes, run_group
from support.ranks import fork_ranks, run_ranks


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=run_group,
        outcomes=group_outcomes,
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )


class TestShm(Conformance):
    pass


class TestShmFailures(Failures):
    pass


def used(group):
    gc.collect()
    return group.transport.hub.arena.used_bytes()


def test_arrays_in_shared_memory_are_not_copied():
    def body(group):
        x = group.empty(LARGE)
        x[:] = 1
        before = used(group)
        for async_op in (False, True):
            work = group.all_reduce(x, async_op=async_op)
            if work:
                work.wait()
            group.broadcast(x, 0)
            group.all_gather_single(np.empty(3 * LARGE, np.float32), x)
        assert used(group) == before, "neither a ring nor a staged copy was needed"
        group.all_reduce(np.ones(LARGE))
        assert used(group) > before
        del x, work
        group.close()
        assert used(group) == 0

    run_group(3, body)


@pytest.mark.parametrize("world", [2, 3])
def test_ways_that_differ_with_size_memory_and_rank_meet(world):
    """Arrays below and above every size at which the way changes; some ranks' wait, others' are
    async, some lie in shared memory, and which ones do changes from call to call."""

    def body(group):
        for n in (0, 3072, 3073, 8192, 8193, 16384, 16385, 65536, 65537, 262144, 262145, 400_000):
            rng = np.random.default_rng(n)
            for turn in range(5):
                all_ = rng.standard_normal((world, n), np.float32)
                shared = (group.rank + turn // 2) % 3 == 0
                x = group.empty(n) if shared else np.empty(n, np.float32)
                x[:] = all_[group.rank]
                if (group.rank + turn) % 3 == 1:
                    group.all_reduce(x, async_op=True).wait()
                else:
                    group.all_reduce(x)
                want = (all_[0] + all_[1]) + (all_[2] if world == 3 else np.float32(0))
                assert x.tobytes() == want.tobytes(), (n, turn)
        group.close()
        assert used(group) <= 400_000 * 4 + 4096, "nothing is left but the last array"

    run_group(world, body)


def test_staged_copies_come_back():
    def body(group):
        for _ in range(20):
            works = [group.all_reduce(np.ones(50_000), async_op=True) for _ in range(3)]
            group.isend(np.ones(9000), (group.rank + 1) % 2).wait()
            group.recv(np.ones(9000), (group.rank + 1) % 2)
            for work in works:
                work.wait()
        group.barrier()
        group.barrier()
        peak = used(group)
        group.close()
        return peak

    assert all(peak < 4 * 400_000 + 100_000 for peak in run_group(2, body))


def test_a_later_epoch_takes_no_notice_of_an_earlier_one():
    segment = Segment.create(3)

    def body(epoch, count, rank):
        group = ProcessGroup(shm.connect(segment, rank, 3, epoch))
        for n in [3] * count + [5000, LARGE]:
            x = np.full(n, float(rank + epoch))
            group.all_reduce(x)
            assert (x == 3 + 3 * epoch).all()
            group.isend(x, (rank + 1) % 3)
            y = np.empty_like(x)
            group.recv(y, (rank - 1) % 3)
            assert (y == x).all()
        # no close: the ranks of an epoch that is over were killed

    for epoch, count in ((0, 90), (1, 70), (2, 3)):
        run_ranks(3, lambda rank, e=epoch, c=count: body(e, c, rank))
    segment.close()


def test_a_stopped_rank_is_waited_for():
    """Stopped in the middle of a wait, with a wait of the others on it: nobody is accused."""

    def body(group):
        pids = np.zeros((2, 1), np.int64)
        group.all_gather_single(pids, np.array([os.getpid()]))
        x = np.ones(2)
        if group.rank == 1:
            if os.fork() == 0:
                time.sleep(0.5)
                os.kill(int(pids[1, 0]), signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
        group.all_reduce(x)
        group.close()
        return x[0]

    assert run_group(2, body) == [2.0, 2.0]


def test_a_rank_that_ends_is_not_waited_for():
    """The launcher notes it in the rank's slot; without it, leaving the group does."""
    segment = Segment.create(2)

    def body(rank):
        group = ProcessGroup(shm.connect(segment, rank, 2))
        if rank == 1:
            segment.slot(1).state = "finished"
            return
        with pytest.raises(CollectiveMismatch, match="rank 1: has ended its program"):
            group.barrier()

    run_ranks(2, body)
    segment.close()


def test_the_black_box_tells_what_a_rank_waits_for():
    segment = Segment.create(2)

    def body(rank):
        group = ProcessGroup(shm.connect(segment, rank, 2))
        if rank == 1:
            box = segment.slot(0)
            context.wait_until(lambda: "barrier" in box.doing, lambda: "rank 0 to wait", 5.0)
            assert "rank 1 has not arrived" in box.doing
            group.barrier()
            context.wait_until(lambda: not box.doing, lambda: "rank 0 to go on", 5.0)
        else:
            group.barrier()
        group.close()

    run_ranks(2, body)
    segment.close()


def test_connect_checks_its_arguments():
    segment = Segment.create(2)
    for rank, size in ((0, 3), (2, 2), (-1, 1)):
        with pytest.raises(ConfigError, match=r"needed is 0 <= rank < world_size <= 2"):
            shm.connect(segment, rank, size)
    segment.close()


def by_store(path, rank, n, body, **settings):
    store = FileStore(path)
    group = ProcessGroup(shm.connect_by_store(store, rank, n, timeout=10.0, **settings))
    return body(group)


def test_ranks_without_a_launcher(tmp_path):
    def body(group):
        x = np.ones(LARGE)
        group.all_reduce(x)
        group.close()
        return x[0]

    for epoch in range(2):
        assert (
            run_ranks(3, lambda rank, e=epoch: by_store(tmp_path / "store", rank, 3, body, epoch=e))
            == [3.0] * 3
        )


def test_without_a_launcher_a_death_is_noticed_too(tmp_path):
    def body(group):
        group.barrier()
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        group.barrier()

    outcomes = fork_ranks(3, lambda rank: by_store(tmp_path / "store", rank, 3, body))
    for o in (outcomes[0], outcomes[2]):
        assert isinstance(o.error, PeerFailed) and o.error.rank == 1, o


def test_strangers_get_no_segment(tmp_path):
    def body(rank):
        store = FileStore(tmp_path / "store")
        if rank == 2:  # knows the name of the socket, not the token
            told = json.loads(store.get("shm/segment"))
            told["token"] = "00" * 16
            with pytest.raises(CommError, match="rank 0"):
                bootstrap._fetch(told, 1, 5.0)
            with socket.socket(socket.AF_UNIX) as link:
                link.connect("\0" + told["name"])
                link.sendall(b"short")
            store.set("done", b"1")
            return True
        if rank == 1:
            store.get("done")
        segment = bootstrap.share_segment(store, rank, 2, 10.0)
        return segment.num_ranks

    assert run_ranks(3, body) == [2, 2, True]


def test_another_host_is_told_so():
    told = {"host": "elsewhere", "uid": os.getuid(), "name": "x", "token": ""}
    with pytest.raises(CommError, match="another host"):
        bootstrap._fetch(told, 1, 1.0)
