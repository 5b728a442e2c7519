"""The life of groups: made and left again and again, on forked ranks and on simulated ones."""

from __future__ import annotations

import gc
import os
import threading
from types import SimpleNamespace

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.group.group import ProcessGroup
from disttrain.distributed.groups.state import group_or_default
from disttrain.errors import (
    CollectiveMismatch,
    CommError,
    ConfigError,
    Deadlock,
    LaunchError,
)
from disttrain_launcher import launch
from support.ranks import free_port, run_ranks

pytestmark = pytest.mark.filterwarnings("ignore:Running .* which does not belong to the given")

LARGE = 400_000  # float32: several chunks of a ring


def simulated(fn, n, seed=0):
    return dist.simulate(fn, n, seed=seed).results


@pytest.fixture(params=["shm", pytest.param("sim", marks=pytest.mark.simulated)])
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


@pytest.mark.simulated
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


def test_members_alone_may_make_a_group(ranks):
    """The others do not call at all; two groups of the same members are not mixed up."""

    def body():
        dist.init_process_group()
        me = dist.get_rank()
        seen = []
        for members in ([3, 1], [0, 1, 2], [3, 1], [2]):
            if me in members:
                group = dist.new_group(members, use_local_synchronization=True)
                for count in (2, 9000):
                    x = dt.full((count,), float(me + 1))
                    dist.all_reduce(x, group=group)
                    assert x[-1].item() == sum(members) + len(members)
                seen.append(dist.get_group_rank(group, me))
                if members != [0, 1, 2]:
                    dist.destroy_process_group(group)
        assert dist.new_group([(me + 1) % 4], use_local_synchronization=True) is None
        dist.destroy_process_group()
        return seen

    assert ranks.run(body, 4) == [[0], [0, 1, 0], [2, 0], [1, 1]]


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


# -- what groups leave behind ----------------------------------------------------------------------


def usage() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_groups_give_everything_back(ranks):
    """Memory of groups that are over is used again: the arena does not grow."""

    def body():
        dist.init_process_group()
        gc.collect()  # what other tests have left; its files would be closed meanwhile
        arena = dist.group.WORLD.transport.hub.arena
        seen = []
        for k in range(300):
            group = dist.new_group([1, 0])
            for count in (5, 9000, LARGE if k % 100 == 0 else 1):
                x = dt.ones(count)
                dist.all_reduce(x, group=group, async_op=k % 2 == 0)
            dist.destroy_process_group(group)
            if k % 100 == 50:
                seen.append((arena.used_bytes(), len(arena.spare_blocks), usage()))
        dist.destroy_process_group()
        return seen

    for seen in ranks.run(body, 2):
        assert seen[0] == seen[1] == seen[2]
        assert seen[0][1] == 1


def test_rounds_give_everything_back(ranks):
    def body():
        seen = []
        for k in range(200):
            dist.init_process_group()
            x = dt.full((9000,), float(k))
            dist.all_reduce(x)
            assert x[0].item() == 2.0 * k
            arena = dist.group.WORLD.transport.hub.arena
            dist.destroy_process_group()
            if k % 50 == 25:
                seen.append((arena.used_bytes(), usage()))
        return seen

    for seen in ranks.run(body, 2):
        assert len(set(seen)) == 1 and seen[0][0] == 0


# -- ranks that nobody launched --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["env", "tcp", "file", "store"])
def test_ranks_meet_again_and_again_without_a_launcher(how, tmp_path, monkeypatch):
    """Also where the environment says only half of who they are."""
    port, n = free_port(), 3
    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.delenv("RANK", raising=False)
    if how == "env":
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))

    def body(rank):
        said = {"rank": rank, "world_size": n, "timeout": 20.0}
        if how == "tcp":
            said["init_method"] = f"tcp://127.0.0.1:{port}"
        if how == "file":
            said["init_method"] = f"file://{tmp_path}/store"
        if how == "store":
            said["store"] = dist.FileStore(str(tmp_path / "store"), n)
        seen = []
        for k in range(12):
            dist.init_process_group("gloo", **said)
            x = dt.full((5000,), float(k + rank))
            dist.all_reduce(x)
            assert x[0].item() == n * k + 3.0
            dist.destroy_process_group()
            if k > 2:
                seen.append(usage())
        return len(set(seen))

    assert run_ranks(n, body) == [1] * n


@pytest.mark.simulated
def test_arguments_of_a_simulated_rank_are_those_of_any_program():
    def body():
        me = context.current().rank
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=me, world_size=2)
        x = dt.ones(1)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x.item()

    assert simulated(body, 2) == [2.0, 2.0]


# -- other numbers of calls ------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [0, 2])
def test_another_number_of_calls_is_found_when_the_group_is_left(ranks, odd):
    def body():
        dist.init_process_group()
        for _ in range(2 + (dist.get_rank() == odd)):
            dist.all_reduce(dt.ones(3))
        dist.destroy_process_group()

    with pytest.raises((LaunchError, Deadlock)) as error:
        ranks.run(body, 3)
    text = str(error.value)
    assert "destroy_process_group() at" in text and "all_reduce(float32[3], op=SUM) at" in text, (
        text
    )
    assert "rank 0" in text and "rank 2" in text, text


def test_another_number_of_calls_is_found_at_the_end_of_the_program(ranks):
    """No rank waits for the call that one of them has made too much, and none leaves the group."""

    def body():
        dist.init_process_group()
        dist.all_reduce(dt.ones(3))
        if dist.get_rank() == 1:
            dist.all_reduce(dt.ones(3), async_op=True)

    with pytest.raises(LaunchError, match="it has left the group after 1 operations") as error:
        ranks.run(body, 3)
    assert "CollectiveMismatch" in str(error.value)


def test_a_program_may_end_without_leaving_its_groups(ranks):
    """All ranks, or some of them."""

    def body():
        dist.init_process_group()
        me = dist.get_rank()
        pair = dist.new_group([0, 1])
        x = dt.ones(LARGE)
        if me != 2:
            dist.all_reduce(x, group=pair)
        works = [dist.all_reduce(y, async_op=True) for y in (x, dt.ones(3))]
        for work in works:
            work.wait()
        if me == 0:
            dist.destroy_process_group()
        return float(x[0].item())

    assert ranks.run(body, 3) == [5.0] * 3


def test_a_broken_end_leaves_no_default_group(ranks):
    def body():
        dist.init_process_group()
        me = dist.get_rank()
        with pytest.raises(CommError, match="ranks called operations that do not fit"):
            if me == 0:
                dist.all_reduce(dt.ones(3))
            dist.destroy_process_group()
        assert dist.is_initialized() == (me == 0)
        if dist.is_initialized():
            dist.destroy_process_group()

    try:
        ranks.run(body, 2)
    except (LaunchError, Deadlock) as error:
        raise AssertionError(str(error)) from error


@pytest.mark.simulated
def test_ranks_may_make_different_groups_at_once() -> None:
    def body() -> tuple:
        dist.init_process_group()
        me = dist.get_rank()
        alone = dist.new_group([me])
        pair = dist.new_group([me & 2, (me & 2) + 1])
        total = dt.tensor([float(me)])
        dist.all_reduce(total, group=pair)
        return alone.size, alone.rank, total.item()

    assert dist.simulate(body, 4).results == [(1, 0, 1.0), (1, 0, 1.0), (1, 0, 5.0), (1, 0, 5.0)]


@pytest.mark.simulated
def test_groups_whose_members_disagree_are_refused_on_every_rank() -> None:
    def body() -> str:
        dist.init_process_group()
        try:
            dist.new_group([0, 1] if dist.get_rank() == 0 else [1])
        except CollectiveMismatch as error:
            return str(error)
        return ""

    for text in dist.simulate(body, 3).results:
        assert "rank 0 gave the ranks [0, 1], but its member 1 gave [1]" in text


def test_leaving_without_a_group_is_an_assertion_as_programs_expect() -> None:
    with pytest.raises(AssertionError, match="no default group to leave"):
        dist.destroy_process_group()


@pytest.mark.simulated
def test_outsiders_may_leave_a_group_but_not_ask_about_it() -> None:
    def body() -> str:
        dist.init_process_group()
        group = dist.new_group([0])
        said = ""
        if dist.get_rank():
            with pytest.raises(ValueError, match="Invalid process group specified") as told:
                dist.get_backend(group)
            said = str(told.value)
        dist.destroy_process_group(group)
        dist.destroy_process_group()
        return said

    assert "not a member" in dist.simulate(body, 2).results[1]


def test_threads_find_the_group_that_another_is_about_to_have(monkeypatch):
    """Other ranks may be through with ``init_process_group`` before it returns here, and call
    functions here that need the group."""
    waits, at_the_end, go_on = threading.Event(), threading.Event(), threading.Event()

    class LateGroup(ProcessGroup):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            at_the_end.set()
            assert go_on.wait(10)

    monkeypatch.setattr("disttrain.distributed.groups.process_group.ProcessGroup", LateGroup)

    def body():
        rank, found = context.current(), []

        def join():
            with context.attach(rank):
                dist.init_process_group()

        def ask():
            with context.attach(rank):
                waits.set()
                found.append(dist.get_world_size(group_or_default()))

        threads = [threading.Thread(target=join), threading.Thread(target=ask)]
        threads[0].start()
        assert at_the_end.wait(10) and not dist.is_initialized()
        threads[1].start()
        assert waits.wait(10)
        threads[1].join(0.05)
        go_on.set()
        for t in threads:
            t.join()
        with pytest.raises(ConfigError, match="exists already"):
            dist.init_process_group()
        dist.destroy_process_group()
        with pytest.raises(CommError, match="does not exist"):
            group_or_default()
        return found

    assert run_ranks(1, lambda me: body()) == [[1]]
