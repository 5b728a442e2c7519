"""The life of groups: made and left again and again, on forked ranks and on simulated ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.errors import CommError
from launcher import launch

LARGE = 400_000  # float32: several chunks of a ring


def simulated(fn, n, seed=0):
    return dist.simulate(fn, n, seed=seed).results


@pytest.fixture(params=["shm", "sim"])
def ranks(request):
    """``run(fn, n)``: call ``fn()`` on ``n`` ranks; the results by rank."""
    run = launch if request.param == "shm" else simulated
    return SimpleNamespace(run=run, real=request.param == "shm")


# -- one default group after the other -------------------------------------------------


def one_round(k: int) -> None:
    """Every kind of data path, with values that name the round."""
    n, me = dist.get_world_size(), dist.get_rank()
    for count in (1, 5000, LARGE):
        x = dt.full((count,), float(me + k))
        dist.all_reduce(x)
        assert x[0].item() == x[-1].item() == sum(range(n)) + n * k, (k, count)
    works = [dist.all_reduce(dt.full((7,), float(k)), async_op=True) for _ in range(3)]
    assert all(w.wait() is not None for w in works)
    root = k % n
    x = dt.full((4,), float(me * 10 + k))
    dist.broadcast(x, src=root)
    assert x.tolist() == [root * 10.0 + k] * 4
    got = dt.zeros(3)
    work = dist.isend(dt.full((3,), float(me + k)), (me + 1) % n)
    assert dist.recv(got, (me - 1) % n) == (me - 1) % n
    work.wait()
    assert got.tolist() == [float((me - 1) % n + k)] * 3
    told = [None] * n
    dist.all_gather_object(told, (me, k))
    assert told == [(r, k) for r in range(n)]


def test_sums_are_right_in_every_round(ranks):
    def body():
        sums = []
        for k in (1, 2, 3):
            dist.init_process_group()
            t = dt.ones(1) * k
            dist.all_reduce(t)
            sums.append(t.item())
            dist.destroy_process_group()
        return sums

    assert ranks.run(body, 4) == [[4.0, 8.0, 12.0]] * 4


def test_every_verb_in_every_round(ranks):
    def body():
        for k in range(1, 8):
            dist.init_process_group()
            one_round(k)
            if k % 4 == dist.get_rank():
                context.sleep(0.2)  # the others are long in the next round
            dist.destroy_process_group()

    ranks.run(body, 4)


def test_rounds_under_many_schedules():
    def body():
        for k in (1, 2, 3):
            dist.init_process_group()
            one_round(k)
            pair = dist.new_group([0, 2])
            x = dt.full((2,), float(k))
            dist.all_reduce(x, group=pair)
            assert x[0].item() == (2.0 * k if dist.get_rank() != 1 else k)
            dist.destroy_process_group()

    for seed in range(12):
        simulated(body, 3, seed)


def test_groups_come_and_go(ranks):
    """Subsets in another order each time, on control blocks that other groups have used."""

    def body():
        dist.init_process_group()
        me, n = dist.get_rank(), dist.get_world_size()
        for k in range(1, 25):
            members = [[0, 1], [1, 2, 3], [3, 0], [2, 1, 0, 3]][k % 4]
            group = dist.new_group(members)
            for count in (3, 9000):
                x = dt.full((count,), float(me + k))
                dist.all_reduce(x, group=group)
                want = sum(members) + k * len(members) if me in members else me + k
                assert x[0].item() == x[-1].item() == want, (k, count)
            x = dt.ones(1)
            dist.all_reduce(x)
            assert x.item() == n
            if me in members and k % 3:
                dist.destroy_process_group(group)
        dist.destroy_process_group()

    ranks.run(body, 4)


def test_what_a_round_has_left_keeps_its_values(ranks):
    """Gradients of DDP lie in shared memory: a later round must not write over them."""

    def body():
        kept = []
        for k in (1.0, 2.0, 3.0):
            dist.init_process_group()
            model = dist.DistributedDataParallel(dt.nn.Linear(300, 40, bias=False))
            (model(dt.full((2, 300), k)).sum()).backward()
            kept.append(model.module.weight.grad)
            dist.destroy_process_group()
        return [float(g[0, 0].item()) for g in kept]

    assert ranks.run(body, 2) == [[2.0, 4.0, 6.0]] * 2


def test_who_leaves_in_the_middle_is_not_taken_for_a_member(ranks):
    """A rank that has dropped the group and joined again: no flag of its new round counts."""

    def body():
        dist.init_process_group(timeout=10.0)
        if dist.get_rank() == 1:
            try:
                raise ValueError("given up")
            except ValueError:
                dist.destroy_process_group()
            dist.init_process_group(timeout=10.0)
        x = dt.ones(LARGE)
        with pytest.raises(CommError):
            dist.all_reduce(x)
            dist.all_reduce(x)
        return x[0].item()

    for value in ranks.run(body, 2):
        assert value in (1.0, 2.0)
