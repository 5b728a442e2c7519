"""Tasks of simulated ranks: their turns, their clock, their end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from disttrain import context
from disttrain.comm.store import HashStore
from disttrain.comm.transports import sim
from disttrain.errors import Deadlock, LaunchError, WaitTimeout

pytestmark = pytest.mark.simulated

RANKS = 2


def until(ready: Callable[[], bool], what: str, timeout: float | None = None, pure=True) -> None:
    context.wait_until(ready, lambda: what, timeout, (lambda seconds: None) if pure else None)


def test_a_task_belongs_to_the_rank_of_its_starter() -> None:
    def body() -> tuple:
        seen: list = []
        me = context.current()

        def beside() -> None:
            def below() -> None:
                seen.append((context.current() is me, threading.current_thread().name))

            seen.append((context.current() is me, threading.current_thread().name))
            context.start_thread(below, "below")

        context.start_thread(beside, "beside")
        until(lambda: len(seen) == 2, "both")
        return tuple(seen)

    assert sim.simulate(body, RANKS).results == [((True, "beside"), (True, "below"))] * RANKS


@pytest.mark.parametrize("pure", [True, False])
def test_tasks_take_turns_by_the_seed(pure: bool) -> None:
    def body() -> str:
        order: list[str] = []

        def worker(name: str) -> None:
            for turn in range(2):
                context.sleep(0.5)
                order.append(name)
                until(lambda turn=turn: len(order) > turn, "its turn", pure=pure)

        for name in "abc":
            context.start_thread(lambda name=name: worker(name), name)
        until(lambda: len(order) == 6, "all", pure=pure)
        return "".join(order)

    runs = {seed: sim.simulate(body, RANKS, seed) for seed in range(4)}
    assert len({tuple(run.results) for run in runs.values()}) == 4
    for seed, run in runs.items():
        again = sim.simulate(body, RANKS, seed)
        assert (again.results, again.schedule) == (run.results, run.schedule)
        assert run.seconds == 1.0


def test_each_task_has_its_own_deadline() -> None:
    def body() -> list[float]:
        ended: list[float] = []

        def late(limit: float) -> None:
            with pytest.raises(WaitTimeout, match=f"waited {limit:g} s for {limit} to pass"):
                until(lambda: False, f"{limit} to pass", limit)
            ended.append(context.now())

        for limit in (3.0, 1.0, 2.0):
            context.start_thread(lambda limit=limit: late(limit), f"late {limit}")
        until(lambda: len(ended) == 3, "all")
        return ended

    assert sim.simulate(body, 1).results == [[1.0, 2.0, 3.0]]


def test_a_condition_is_asked_no_more_once_it_held() -> None:
    def body() -> int:
        taken = [1, 2]

        def take() -> bool:
            return bool(taken and taken.pop())

        context.start_thread(lambda: context.sleep(1.0), "sleeper")
        until(take, "one")
        return len(taken)

    assert [sim.simulate(body, 1, seed).results for seed in range(6)] == [[1]] * 6


def test_a_wait_inside_a_condition_leaves_the_outer_one_as_it_was() -> None:
    def body() -> None:
        def ready() -> bool:
            until(lambda: True, "inner")
            return False

        with pytest.raises(WaitTimeout, match="for outer"):
            until(ready, "outer", 2.0, pure=False)

    assert sim.simulate(body, 1).seconds == 2.0


def test_a_condition_that_waits_itself_sees_what_has_changed_meanwhile() -> None:
    def body() -> float:
        store.add("came", 1)
        until(lambda: store.add("came", 0) == 3, "all", 5.0, pure=False)
        return context.now()

    for seed in range(10):
        store = HashStore()
        assert sim.simulate(body, 3, seed).results == [0.0, 0.0, 0.0]


def test_a_deadlock_lists_every_task() -> None:
    def body() -> None:
        me = context.current().rank
        context.start_thread(lambda: until(lambda: False, f"work {me}"), "server")
        until(lambda: False, f"what {me}")

    with pytest.raises(Deadlock) as error:
        sim.simulate(body, RANKS)
    lines = str(error.value).splitlines()[1:]
    expected = [
        f"rank {r}{name}" for r in range(RANKS) for name in (f" (server): work {r}", f": what {r}")
    ]
    assert sorted(line.strip() for line in lines) == sorted(expected)


@pytest.mark.parametrize("pure", [True, False])
def test_tasks_that_wait_for_work_end_with_their_program(pure: bool) -> None:
    ended: list[int] = []

    def body() -> None:
        def serve() -> None:
            try:
                until(lambda: False, "work", pure=pure)
            finally:
                ended.append(context.current().rank)

        context.start_thread(serve, "server")
        context.start_thread(lambda: context.sleep(1e9), "sleeper")
        context.sleep(1.0)

    before = threading.active_count()
    assert sim.simulate(body, RANKS).seconds == 1.0
    assert sorted(ended) == list(range(RANKS)) and threading.active_count() == before


def test_who_dies_takes_all_tasks_of_its_rank_along() -> None:
    def body() -> float:
        went_on: list[float] = []

        def beside() -> None:
            context.sleep(5.0)
            went_on.append(context.now())

        context.start_thread(beside, "beside")
        if context.current().rank == 1:
            context.start_thread(sim.die, "killer")
        until(lambda: bool(went_on), "the one beside")
        return went_on[0]

    tasks = sim.run_tasks(body, RANKS).tasks
    assert tasks[0].result == 5.0 and tasks[0].error is None
    assert isinstance(tasks[1].error, sim.Killed)


def test_a_task_that_somebody_dead_starts_does_nothing() -> None:
    went_on: list[int] = []

    def body() -> None:
        me = context.current()

        def last() -> None:
            me.waiter.scheduler.end_rank(me.rank)
            context.start_thread(lambda: went_on.append(1), "too late")

        context.start_thread(last, "last")
        context.sleep(1.0)

    tasks = sim.run_tasks(body, 1).tasks
    assert isinstance(tasks[0].error, sim.Killed) and not went_on


def test_what_breaks_a_task_is_told() -> None:
    def body() -> None:
        def beside() -> None:
            raise ValueError("bad")

        context.start_thread(beside, "beside")
        context.sleep(1.0)

    with pytest.raises(LaunchError, match=r"simulated rank 0 \(beside\) failed") as error:
        sim.simulate(body, 1)
    assert isinstance(error.value.__cause__, ValueError)


def test_a_deadlock_that_follows_from_an_error_is_not_the_headline() -> None:
    def body() -> None:
        if context.current().rank == 1:
            raise ValueError("bad")
        until(lambda: False, "rank 1")

    with pytest.raises(LaunchError, match="simulated rank 1 failed") as error:
        sim.simulate(body, RANKS)
    assert "also rank 0: no simulated rank can go on" in str(error.value)


def test_events_happen_at_their_time_in_any_order() -> None:
    def body() -> tuple:
        scheduler = context.current().waiter.scheduler
        seen: list[int] = []
        for number in range(4):
            scheduler.later(1.0, lambda number=number: seen.append(number))
        scheduler.later(0.5, lambda: seen.append(-1))
        until(lambda: len(seen) == 5, "events")
        return tuple(seen), context.now()

    results = [sim.simulate(body, 1, seed).results[0] for seed in range(8)]
    assert {now for _, now in results} == {1.0} and {seen[0] for seen, _ in results} == {-1}
    assert len({seen for seen, _ in results}) > 3


def test_a_thread_that_takes_over_for_a_task_waits_as_that_task() -> None:
    def body() -> float:
        def deeper() -> float:
            context.sleep(1.0)
            return context.now()

        result: list[float] = []
        context.start_thread(lambda: result.append(context.elsewhere(deeper)), "recursion")
        until(lambda: bool(result), "it")
        return result[0]

    assert sim.simulate(body, RANKS).results == [1.0] * RANKS


def test_what_a_task_does_between_two_waits_may_let_others_go_on() -> None:
    def body() -> bool:
        seen: list[int] = []

        def beside() -> None:
            until(lambda: True, "nothing")  # others look, in vain, when it has ended
            seen.append(1)
            until(lambda: False, "what never comes")

        for n in (1, 2):
            context.start_thread(beside, "beside")
            until(lambda n=n: len(seen) == n, "beside")
        return True

    for seed in range(20):
        assert sim.simulate(body, 1, seed=seed).results == [True]
