"""Ranks that are left agree on who they are and go on: on simulated ranks, whoever is killed when;
and on real processes."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

import disttrain as dt
from disttrain import context, liveness, nn
from disttrain import distributed as dist
from disttrain.comm.transports.sim.cluster import run_tasks
from disttrain.distributed.ddp import DistributedDataParallel
from disttrain.errors import CommError, GroupRevoked, LaunchError, PeerFailed, WaitTimeout
from disttrain_launcher import launch
from support.ranks import fork_ranks, free_port

SCHEDULES = int(os.environ.get("SCHEDULES", "1"))
STEPS, LARGE = 12, 70_000


def die_some_time(rank: int, draws: int) -> None:
    """Kill a simulated rank when the scheduler has drawn so often."""
    scheduler = context.current().waiter.scheduler

    def go() -> None:
        nonlocal draws
        draws -= 1
        if draws > 0:
            scheduler.later(0.0, go)
        else:
            scheduler.end_rank(rank)

    scheduler.later(0.0, go)


def keep_going(action):
    """Do it again and again until nobody fails in the middle of it."""
    while True:
        try:
            return action()
        except (PeerFailed, GroupRevoked):
            dist.shrink()


def furthest(step: int, weights: dt.Tensor) -> int:
    """Every rank takes the weights of one that is furthest; its step."""
    mine, theirs = dt.tensor([step]), dt.zeros(dist.get_world_size(), dtype=dt.int64)
    dist.all_gather_into_tensor(theirs, mine)
    steps = theirs.tolist()
    dist.broadcast(weights, steps.index(max(steps)))
    return max(steps)


def train(kills: list[tuple[int, int]], size: int) -> tuple:
    """Steps of a pretended training; members are known by the ranks that they began with."""
    dist.init_process_group()
    me = dist.get_rank()
    if me == 0:
        for rank, draws in kills:
            die_some_time(rank, draws)
    weights, step = dt.zeros(size), 0
    members = list(range(dist.get_world_size()))

    def recover() -> int:
        nonlocal members
        old = dist.shrink()
        members = [members[r] for r in old]
        return furthest(step, weights)

    recovering = False
    while step < STEPS:
        try:
            if recovering:
                step, recovering = recover(), False
                continue
            grads = dt.full((size,), float(me + 1))
            pending = dist.all_reduce(dt.ones(LARGE), async_op=True) if step % 3 == 1 else None
            dist.all_reduce(grads)
            if pending is not None:
                pending.wait()
            weights += grads * (step + 1)
            step += 1
        except (PeerFailed, GroupRevoked):
            recovering = True
    assert members[dist.get_rank()] == me and dist.get_world_size() == len(members)
    return members, weights.tolist()[:1], weights.min().item() == weights.max().item()


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(40 * SCHEDULES))
def test_whoever_is_killed_when(seed):
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 5])
    kills = [
        (rank, draw.choice([1, 5, 20, 60]) * draw.randrange(1, 8))
        for rank in draw.sample(range(ranks), draw.randrange(1, ranks))
    ]
    tasks = run_tasks(train, ranks, seed, (kills, draw.choice([4, LARGE]))).tasks
    living = [t for t in tasks if not t.killed or t.result is not None]
    assert living and all(t.error is None for t in living), [t.text for t in living]
    assert all(t.rank in dict(kills) for t in tasks if t not in living)
    told = [t.result for t in living]
    assert all(result[2] for result in told)  # nothing of an operation that was broken off
    together = [result for result in told if result[0] == told[-1][0]]
    assert all(result[1] == together[0][1] for result in together)
    for t in living:  # who ended its program before others fell has seen more members
        assert set(t.result[0]) >= {t.rank}


@pytest.mark.simulated
def test_without_a_failure_all_go_on_and_memory_comes_back():
    def body():
        dist.init_process_group()
        used = []
        for _ in range(6):
            pair = dist.new_group([0, 1])
            work = [dist.all_reduce(dt.ones(LARGE), async_op=True) for _ in range(3)]
            work.append(dist.isend(dt.ones(LARGE), (dist.get_rank() + 1) % 3))
            if dist.get_rank() < 2:
                work.append(dist.all_reduce(dt.ones(LARGE), group=pair, async_op=True))
            assert dist.shrink() == [0, 1, 2]
            with pytest.raises(CommError):
                for each in work:
                    each.wait()
            dist.barrier()
            used.append(dist.group.WORLD.transport.hub.arena.used_bytes())
        dist.destroy_process_group()
        dist.init_process_group()
        x = dt.ones(3)
        dist.all_reduce(x)
        return used, x.tolist()

    for used, x in dist.simulate(body, 3, seed=4).results:
        assert used[1:] == used[:1] * 5 and x == [3.0] * 3


@pytest.mark.simulated
def test_one_gives_the_group_up_for_all():
    def body():
        dist.init_process_group()
        if dist.get_rank() == 2:
            dist.shrink()
        else:
            with pytest.raises(GroupRevoked, match=r"all_reduce.*has called shrink\(\)"):
                dist.all_reduce(dt.ones(3))
            dist.shrink()
        x = dt.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    tasks = run_tasks(lambda: hurried(body), 3, 1).tasks
    assert [t.result for t in tasks] == [[3.0] * 3] * 3


def hurried(body):
    """A simulated rank asks its interrupts only once a rank has failed; real ones always do."""
    context.current().waiter.scheduler.failed = True
    return body()


@pytest.mark.simulated
def test_threads_that_wait_in_groups_of_before_are_told():
    def body():
        dist.init_process_group()
        others, told = dist.new_group([0, 1, 2]), []

        def work():
            with pytest.raises(CommError):
                dist.all_reduce(dt.ones(3), group=others)
            told.append(True)

        if dist.get_rank() < 2:
            context.start_thread(work, "worker")
            context.sleep(0.1)
        assert dist.shrink() == [0, 1, 2]
        if dist.get_rank() < 2:
            context.wait_until(lambda: bool(told), lambda: "the other thread", 10.0)
        x = dt.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    tasks = run_tasks(lambda: hurried(body), 3, 5).tasks
    assert [t.result for t in tasks[:3]] == [[3.0] * 3] * 3, [t.text for t in tasks]


@pytest.mark.simulated
def test_a_thread_that_has_not_looked_before_the_groups_were_left_is_told():
    def body():
        dist.init_process_group()
        hub, me = dist.group.WORLD.transport.hub, threading.get_ident()
        need = hub.open[0].channel.need(0, 1 << 20, 0)
        hub._needs[me] = need, None
        hub.close(met=False)
        with pytest.raises(CommError, match="was left meanwhile"):
            for check in context.current().waiter.interrupts:
                check()
        del hub._needs[me]
        hub._forget_check()
        return hub.check in context.current().waiter.interrupts

    assert [t.result for t in run_tasks(body, 2, 0).tasks] == [False] * 2


@pytest.mark.simulated
def test_who_neither_comes_nor_ends_is_named():
    def body():
        dist.init_process_group()
        if dist.get_rank() == 1:
            context.sleep(60.0)
            return "slept"
        with pytest.raises(WaitTimeout, match=r"rank 1 to call shrink\(\) too, or to end"):
            dist.shrink(timeout=5.0)
        return "told"

    assert dist.simulate(body, 3).results == ["told", "slept", "told"]


# -- real processes --------------------------------------------------------------------------------


def batch(step: int, rank: int) -> dt.Tensor:
    return dt.randn(8, 16, generator=dt.Generator().manual_seed(100 * step + rank))


def make() -> tuple[nn.Module, dt.optim.Optimizer]:
    dt.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
    return model, dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_and_lose(victim: int, at: int, steps: int) -> tuple:
    """What docs/failures.md shows."""
    dist.init_process_group()
    me = dist.get_rank()
    model, optimizer = make()
    ddp, step, old = DistributedDataParallel(model), 0, None
    while step < steps:
        try:
            if old is not None:
                step, old = take_over(model, optimizer, step), None
                ddp = DistributedDataParallel(model)
            optimizer.zero_grad()
            loss = ddp(batch(step, dist.get_rank())).square().mean()
            if me == victim and step == at:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            step += 1
        except PeerFailed as error:
            assert error.rank == victim and "SIGKILL" in error.cause
            old = dist.shrink()
    dist.destroy_process_group()
    return dist.is_initialized(), [p.tolist() for p in model.parameters()]


def take_over(model: nn.Module, optimizer: dt.optim.Optimizer, step: int) -> int:
    steps: list = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    source = steps.index(max(steps))
    for p in model.parameters():
        dist.broadcast(p.data, source)
        if max(steps):
            dist.broadcast(optimizer.state[p]["momentum_buffer"], source)
    return max(steps)


def test_training_goes_on_with_the_weights_of_the_survivors():
    results = launch(lambda: train_and_lose(1, 4, 9), 3, min_ranks=2)
    assert results[1] is None and results[0] == results[2] and not results[0][0]
    model, optimizer = make()
    for step in range(9):
        optimizer.zero_grad()
        ranks = 3 if step < 4 else 2
        for rank in range(ranks):
            (model(batch(step, rank)).square().mean() / ranks).backward()
        optimizer.step()
    for got, p in zip(results[0][1], model.parameters(), strict=True):
        assert dt.allclose(dt.tensor(got), p.detach(), rtol=1e-4, atol=1e-6)


def test_a_job_ends_where_too_few_are_left():
    with pytest.raises(LaunchError, match=r"rank 1 failed: killed by SIGKILL"):
        launch(lambda: train_and_lose(1, 2, 5), 3, min_ranks=3)


def test_one_that_was_stopped_is_ended_before_others_go_on(monkeypatch):
    """Without a launcher: it could come back and write where the others compute."""
    monkeypatch.setattr(liveness, "STOPPED_LIMIT", 0.5)
    port = free_port()

    def body(rank: int) -> list:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=3)
        x = dt.ones(3)
        dist.all_reduce(x)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        with pytest.raises(PeerFailed, match="rank 0 failed: stopped"):
            dist.all_reduce(x)
        assert dist.shrink() == [1, 2]
        x = dt.ones(3)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x.tolist()

    outcomes = fork_ranks(3, body)
    assert outcomes[0].signal == signal.SIGKILL
    assert [o.value for o in outcomes[1:]] == [[2.0] * 3] * 2, [o.traceback for o in outcomes]


def test_after_a_time_out_it_is_called_again():
    """Without a launcher: whoever ends meanwhile is noticed."""
    port, (reader, writer) = free_port(), os.pipe()

    def body(rank: int) -> list:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=3)
        dist.barrier()
        if rank == 0:
            assert os.read(reader, 1) and os.read(reader, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(WaitTimeout, match=r"rank.* 0.* to call shrink"):
            dist.shrink(timeout=0.1)
        os.write(writer, b"1")
        assert dist.shrink() == [1, 2]
        with pytest.raises(PeerFailed, match=r"rank 1 \(rank 2 when the job started\)") as told:
            if rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
        assert (told.value.rank, told.value.global_rank) == (1, 2)
        assert dist.shrink() == [0] and dist.shrink() == [0]
        x = dt.ones(3)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x.tolist()

    outcomes = fork_ranks(3, body)
    os.close(reader)
    os.close(writer)
    assert [o.value for o in outcomes] == [None, [1.0] * 3, None], [o.traceback for o in outcomes]


def test_one_that_is_killed_when_nobody_needs_it_any_more_is_no_failure_of_the_job():
    def body() -> float:
        dist.init_process_group()
        x = dt.ones(3)
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return x[0].item()

    assert launch(body, 3, min_ranks=2) == [3.0, None, 3.0]


# -- without ranks that are named ------------------------------------------------------------------


def shrink_by_name() -> tuple:
    dist.init_process_group()
    me = dist.get_rank()
    other = dist.new_group([3, 1, 2], sort_ranks=False)
    if me in (1, 2):
        pair = dist.shrink_group([0], other)
        assert [dist.get_global_rank(pair, i) for i in range(2)] == [1, 2]
        x = dt.ones(2) * me
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [3.0, 3.0]
        with pytest.raises(CommError):
            dist.all_reduce(x, group=other)
    if me == 1:
        with pytest.raises(CommError, match=r"rank 1 is excluded itself"):
            dist.shrink_group([1])
        with pytest.raises((CommError, PeerFailed)):
            dist.barrier()  # the others may have gone on before it sees that they came
            while True:
                dist.all_reduce(dt.ones(3))
        with pytest.raises(CommError, match="gone on without this rank"):
            dist.shrink()
        return ("excluded",)
    dist.barrier()
    made = dist.shrink_group([1], shrink_flags=dist.SHRINK_ABORT)
    assert made is dist.group.WORLD
    x = dt.ones(3)
    dist.all_reduce(x)
    dist.barrier()
    dist.destroy_process_group()
    return dist.is_initialized(), x.tolist()


@pytest.mark.simulated
def test_all_but_some_go_on_simulated():
    told = [t.result for t in run_tasks(lambda: hurried(shrink_by_name), 4, 3).tasks]
    done = (False, [3.0] * 3)
    assert told == [done, ("excluded",), done, done], told


def test_all_but_some_go_on_in_processes():
    done = (False, [3.0] * 3)
    assert launch(shrink_by_name, 4) == [done, ("excluded",), done, done]


@pytest.mark.simulated
def test_what_cannot_be_excluded_is_refused_before_anybody_is_asked():
    def body() -> int:
        dist.init_process_group()
        wrong = [(TypeError, (1,)), (TypeError, ["a"]), (ValueError, []), (ValueError, [1, 1])]
        wrong += [(ValueError, [2]), (ValueError, [-1]), (ValueError, [0, 1])]
        for kind, ranks in wrong:
            with pytest.raises(kind, match="ranks_to_exclude"):
                dist.shrink_group(ranks)
        with pytest.raises(ValueError, match="shrink_flags"):
            dist.shrink_group([0], shrink_flags=7)
        dist.barrier()
        return len(wrong)

    assert dist.simulate(body, 2).results == [7, 7]
