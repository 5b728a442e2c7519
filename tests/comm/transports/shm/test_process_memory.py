"""Large arrays outside of shared memory: peers read them where they lie, or copies of them
where the system forbids it; the results are the same bits."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports.shm import channel, process_memory
from disttrain.errors import CommError, PeerFailed
from support.groups import group_outcomes, run_group

COUNT = 150_007  # several slices, the last ones uneven
MODES = {channel.DIRECT: "direct", channel.RING: "ring", channel.REMOTE: "remote"}


def numbers(rank: int, dtype: type = np.float32, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=count).astype(dtype)


def how(group: ProcessGroup) -> list[str]:
    """Where each member's data of the last operation lay: "ring or remote" goes through rings where
    all members' does, and is read where it lies otherwise."""
    used = group.transport.channel
    return [
        "ring or remote" if mode == channel.RING and address else MODES.get(mode, str(mode))
        for _, mode, address in used.where(used.seq)
    ]


def every_verb(group: ProcessGroup, memory=lambda a: a, **kwargs) -> list[np.ndarray]:
    """The results of every verb that moves large arrays."""
    n, me = group.size, group.rank

    def run(verb, *args, **more):
        work = verb(*args, **more, **kwargs)
        if work is not None:
            work.wait()

    x = memory(numbers(me))
    run(group.all_reduce, x)
    half = memory(numbers(me, np.float16))
    run(group.all_reduce, half, op=ReduceOp.AVG)
    root = memory(numbers(me))
    run(group.broadcast, root, 1)
    gathered, part = np.empty((n, COUNT), np.float32), memory(numbers(me))
    run(group.all_gather_single, gathered, part)
    scattered, whole = np.empty(COUNT, np.float32), memory(numbers(me, count=n * COUNT))
    run(group.reduce_scatter_single, scattered, whole)
    swapped = np.empty(n * COUNT, np.float32)
    run(group.all_to_all_single, swapped, whole)
    return [x, half, root, gathered, scattered, swapped]


def equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("n", [2, 3])
def test_arrays_anywhere_are_moved_where_they_lie(n, async_op):
    def body(group):
        first = every_verb(group, async_op=async_op)
        before = group.transport.hub.arena.used_bytes()
        again = every_verb(group, async_op=async_op)
        assert group.transport.hub.arena.used_bytes() <= before, "nothing was copied"
        x = numbers(group.rank)
        group.all_gather(list(np.empty((n, COUNT), np.float32)), x)
        assert how(group) == ["remote"] * n
        group.all_reduce(x)
        assert how(group) == ["ring or remote"] * n
        return equal(first, again)

    assert run_group(n, body) == [True] * n


def test_some_arrays_in_shared_memory_and_some_not():
    def body(group):
        def shared(array):
            if group.rank != 1:
                return array
            into = group.empty(array.shape, array.dtype)
            into[...] = array
            return into

        first = every_verb(group)
        again = every_verb(group, shared)
        group.all_reduce(shared(numbers(group.rank)))
        assert how(group) == ["ring or remote", "direct", "ring or remote"]
        return equal(first, again)

    assert run_group(3, body) == [True] * 3


@pytest.mark.parametrize("where", ["everywhere", "on rank 1"])
def test_where_the_system_forbids_it_copies_are_moved(where, monkeypatch):
    here = run_group(2, every_verb)
    look = process_memory.Reach.look

    def refused(self, ranks):
        if where == "everywhere" or self.hub.rank == 1:
            self._copy = lambda *args: -1
        look(self, ranks)

    monkeypatch.setattr(process_memory.Reach, "look", refused)

    def body(group):
        every_verb(group)
        found = every_verb(group)
        group.all_reduce(numbers(group.rank))
        assert how(group) == ["ring", "ring"], "all answer alike"
        return found

    assert all(equal(a, b) for a, b in zip(here, run_group(2, body), strict=True))


def test_without_the_functions_nothing_is_looked_for(monkeypatch):
    monkeypatch.setattr(process_memory, "_function", lambda name: None)

    def body(group):
        found = every_verb(group)
        assert not group.transport.hub.reach.is_open(range(2))
        return found

    assert len(run_group(2, body)) == 2


def test_memory_that_cannot_be_read_any_more(monkeypatch):
    monkeypatch.setattr(process_memory, "_PATIENCE", 0.2)

    def body(group):
        group.all_reduce(numbers(group.rank))
        far = group.transport.hub.reach
        with pytest.raises(CommError, match=r"memory of rank \d can no longer be reached"):
            far.read(1 - group.rank, 8, np.zeros(4, np.uint8))
        group.barrier()
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        monkeypatch.setattr(process_memory, "_PATIENCE", 20.0)
        address = process_memory.address_of(far._number)
        while far._read(1, address, np.zeros(1, np.uint8)) >= 0:
            pass
        far.read(1, address, np.zeros(1, np.uint8))

    outcomes = group_outcomes(2, body)
    assert isinstance(outcomes[0].error, PeerFailed) and outcomes[0].error.rank == 1, outcomes[0]


def test_a_peer_that_dies_while_an_async_operation_reads_its_memory():
    def body(group):
        far, x = group.transport.hub.reach, numbers(group.rank)
        for _ in range(3):
            group.all_gather(list(np.empty((2, COUNT), np.float32)), x)
        assert how(group) == ["remote"] * 2
        if group.rank == 1:
            group.all_reduce(x, async_op=True)
            os.kill(os.getpid(), signal.SIGKILL)
        address = process_memory.address_of(far._number)
        while far._read(1, address, np.zeros(1, np.uint8)) >= 0:
            pass
        work = group.all_reduce(x, async_op=True)
        for again in (work.wait, lambda: group.all_reduce(x), group.barrier):
            with pytest.raises(PeerFailed) as caught:
                again()
            assert caught.value.rank == 1
        return True

    assert group_outcomes(2, body)[0].value is True
