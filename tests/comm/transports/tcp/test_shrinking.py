"""Ranks on several hosts go on without those that have failed: whole hosts, also the first one."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.comm.group.group import ProcessGroup
from disttrain.distributed.ddp import DistributedDataParallel
from disttrain.errors import CommError, GroupRevoked, PeerFailed, WaitTimeout
from support.hosts import host_outcomes
from support.namespaces import Wire, outcomes_on, why_not

LARGE = 300_000
WHY_NOT = why_not()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def shrunk(group: ProcessGroup, timeout: float = 10.0, exclude: tuple = ()) -> tuple:
    """The group of those who are left, and which ranks they had."""
    while True:
        transport, before = group.transport.shrink(timeout, exclude)
        made = ProcessGroup(transport)
        try:
            made.barrier()
        except (PeerFailed, GroupRevoked):
            group, exclude = made, ()
            continue
        return made, before


def works(group: ProcessGroup) -> list[float]:
    """Of each kind of operation, something that shows whether it is right."""
    found = []
    for size in (3, 5000, LARGE):
        x = np.arange(size, dtype=np.float32) + group.rank
        group.all_reduce(x)
        found.append(float(x[-1]))
    work = group.all_reduce(np.ones(LARGE), async_op=True)
    half = group.new_group([*range(group.size)][::2])
    if half is not None:
        x = np.ones(4)
        half.all_reduce(x)
        found.append(float(x[0]))
    work.wait()
    x = np.full(2000, float(group.rank))
    sent = group.isend(x, (group.rank + 1) % group.size)
    got = np.empty(2000)
    group.recv(got, (group.rank - 1) % group.size)
    sent.wait()
    found.append(float(got[0]))
    group.barrier()
    return found[:3] + found[-1:]


def expected(rank: int, size: int) -> list[float]:
    ranks = np.arange(size)
    sums = [float(sum(np.float32(n - 1 + r) for r in ranks)) for n in (3, 5000, LARGE)]
    return [*sums, float((rank - 1) % size)]


def lost(hosts: str, victims: set[int], **settings) -> None:
    """The victims are killed in the middle of operations; the others go on, right."""

    def body(group: ProcessGroup) -> tuple:
        me = group.rank
        assert works(group) == expected(me, len(hosts))
        try:
            pending = [group.all_reduce(np.ones(LARGE), async_op=True) for _ in range(3)]
            group.isend(np.ones(LARGE), (me + 1) % group.size)
            if me in victims:
                die()
            while True:
                group.all_reduce(np.ones(LARGE))
        except (PeerFailed, GroupRevoked):
            made, before = shrunk(group)
        for work in pending:
            try:
                work.wait()
            except CommError:
                continue
        result = made.rank, made.size, works(made)
        made.close()
        return result

    outcomes = host_outcomes(hosts, body, **settings)
    left = [r for r in range(len(hosts)) if r not in victims]
    told = [(i, len(left), expected(i, len(left))) for i in range(len(left))]
    assert [outcomes[r].value for r in left] == told, [o.traceback for o in outcomes]
    assert all(outcomes[r].signal == signal.SIGKILL for r in victims)


@pytest.mark.parametrize(
    ("hosts", "victims", "job"),
    [
        ("aabb", {1}, True),
        ("aabb", {0, 1}, False),
        ("aabb", {2, 3}, True),
        ("abc", {0, 2}, True),
        ("abc", {0, 2}, False),
        ("aab", {0}, False),
    ],
    ids=[
        *("one", "host of the store", "other host"),
        *("two of three", "two of three, alone", "a mate"),
    ],
)
def test_those_who_are_left_go_on(hosts, victims, job):
    """``job``: a launcher tells of the deaths."""
    lost(hosts, victims, job=job)


def test_a_rank_that_was_excluded_and_comes_back_hears_of_it():
    """It was stopped, on a host where nobody sees that."""
    reader, writer = os.pipe()

    def body(group: ProcessGroup) -> object:
        if group.rank == 2:
            os.write(writer, os.getpid().to_bytes(4, "little"))
            os.kill(os.getpid(), signal.SIGSTOP)
            with pytest.raises((CommError, PeerFailed)) as told:
                while True:
                    group.all_reduce(np.ones(LARGE))
            with pytest.raises(CommError, match="gone on without this rank"):
                group.transport.shrink(5.0)
            return type(told.value).__name__
        group.timeout = 0.3
        with pytest.raises((WaitTimeout, GroupRevoked), match="rank 2 has not arrived"):
            group.all_reduce(np.ones(LARGE))  # revoked by who has got its time-out first
        made, before = shrunk(group, exclude=(2,))
        assert before == [0, 1]
        if made.rank == 0:
            os.kill(int.from_bytes(os.read(reader, 4), "little"), signal.SIGCONT)
        result = [works(made) for _ in range(20)][-1]
        made.close()
        return result

    outcomes = host_outcomes("abc", body, job=False)
    os.close(reader)
    os.close(writer)
    told = [o.value for o in outcomes]
    assert told[:2] == [expected(0, 2), expected(1, 2)], [o.traceback for o in outcomes]
    assert told[2] in ("CommError", "PeerFailed"), outcomes[2].traceback


def test_nobody_has_failed():
    def body(group: ProcessGroup) -> tuple:
        orders = []
        for _ in range(3):
            pair = group.new_group([0, 2])
            group.all_reduce(np.ones(LARGE), async_op=True)
            if pair is not None:
                pair.all_reduce(np.ones(4), async_op=True)
            group, before = shrunk(group)
            orders.append(before)
        result = orders, works(group)
        group.close()
        return result

    outcomes = host_outcomes("aab", body)
    told = [([[0, 1, 2]] * 3, expected(r, 3)) for r in range(3)]
    assert [o.value for o in outcomes] == told, [o.traceback for o in outcomes]


def test_one_after_another_down_to_one_rank():
    def body(group: ProcessGroup) -> list:
        first, sizes = group.rank, []
        while group.size > 1:
            try:
                if group.rank == 0 and first != 3:
                    die()
                group.barrier()
            except (PeerFailed, GroupRevoked) as error:
                if isinstance(error, PeerFailed):
                    assert error.global_rank != first
                group, _ = shrunk(group)
                sizes.append(group.size)
        result = sizes, works(group)
        group.close()
        return result

    outcomes = host_outcomes("abbc", body)
    assert outcomes[3].value == ([3, 2, 1], expected(0, 1)), [o.traceback for o in outcomes]


def test_other_threads_that_wait_hear_that_their_group_was_left():
    def body(group: ProcessGroup) -> tuple:
        groups, told = [group.new_group([0, 1, 2]) for _ in range(2)], []

        def work(mine: ProcessGroup) -> None:
            try:
                while True:
                    mine.all_reduce(np.ones(LARGE))
            except CommError as error:
                told.append(type(error).__name__)

        threads = [threading.Thread(target=work, args=(g,)) for g in groups]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                group.barrier()
            if group.rank == 1:
                die()
            while True:
                group.barrier()
        except (PeerFailed, GroupRevoked):
            made, _ = shrunk(group)
        result = works(made)
        for thread in threads:
            thread.join(5.0)
        made.close()
        return result, len(told)

    outcomes = host_outcomes("aab", body)
    told = [(expected(0, 2), 2), None, (expected(1, 2), 2)]
    assert [o.value for o in outcomes] == told, [o.traceback for o in outcomes]


# -- as programs meet it: through a store, and a network between -----------------------------------


def data(step: int, rank: int) -> dt.Tensor:
    return dt.randn(8, 40, generator=dt.Generator().manual_seed(100 * step + rank))


def make(weights: list | None) -> tuple:
    dt.manual_seed(0)
    model = nn.Linear(40, 30)
    if weights is not None:
        for p, value in zip(model.parameters(), weights, strict=True):
            p.data.copy_(dt.tensor(value))
    return model, dt.optim.SGD(model.parameters(), lr=0.1)


def train(steps: range, victims: str = "", weights: list | None = None, seed: int = -1) -> tuple:
    """Data-parallel training of ``steps``, in the last but one of which the ``victims`` die."""
    first = dist.get_rank() if seed < 0 else seed
    model, optimizer = make(weights)
    ddp, step, last, longest = DistributedDataParallel(model), steps[0], time.monotonic(), 0.0
    while step <= steps[-1]:
        try:
            if ddp is None:
                dist.shrink()
                told: list = [None] * dist.get_world_size()
                dist.all_gather_object(told, step)
                step = max(told)
                for p in model.parameters():
                    dist.broadcast(p.data, told.index(step))
                ddp = DistributedDataParallel(model)
            optimizer.zero_grad()
            loss = ddp(data(step, first)).square().mean()
            if str(first) in victims and step == steps[-2]:
                die()
            loss.backward()
            optimizer.step()
            step += 1
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        except (PeerFailed, GroupRevoked):
            ddp = None
    return [p.tolist() for p in model.parameters()], longest


def small_from_there(before: int, after: range, left: list[int]) -> list:
    """The weights of a run that has had the small group from that step on."""

    def whole() -> list:
        dist.init_process_group()
        return train(range(before))[0]

    def rest() -> list:
        dist.init_process_group()
        return train(after, weights=weights, seed=left[dist.get_rank()])[0]

    weights = dist.simulate(whole, 4).results[0]
    return dist.simulate(rest, len(left)).results[0]


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_training_goes_on_when_the_host_of_the_store_is_lost():
    def body(rank: int) -> tuple:
        dist.init_process_group()
        assert dist.group.WORLD.transport.kind == "tcp"
        weights, longest = train(range(6), "01")
        kind = dist.group.WORLD.transport.kind
        dist.destroy_process_group()
        return kind, weights, longest

    with Wire(2) as wire:
        outcomes = outcomes_on(wire, "aabb", body)
    weights = small_from_there(4, range(4, 6), [2, 3])
    told = [o.value and o.value[:2] for o in outcomes]
    assert told == [None, None, ("shm", weights), ("shm", weights)], [o.traceback for o in outcomes]


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_of_two_sides_of_a_cut_network_one_goes_on():
    def body(rank: int) -> object:
        dist.init_process_group()
        with pytest.raises(PeerFailed, match="link has ended"):
            dist.barrier()
            if rank == 0:  # perhaps before others have heard all of the barrier
                wire.block(0, 1)
                wire.block(1, 0)
            while True:
                dist.all_reduce(dt.ones(3))
        if rank == 2:
            with pytest.raises(CommError, match=r"cannot be reached, but may live"):
                dist.shrink(timeout=20)
            return "refused"
        assert dist.shrink(timeout=20) == [0, 1]
        x = dt.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    with Wire(2) as wire:
        outcomes = outcomes_on(wire, "aab", body)
    assert [o.value for o in outcomes] == [[2.0] * 3, [2.0] * 3, "refused"], [
        o.traceback for o in outcomes
    ]
