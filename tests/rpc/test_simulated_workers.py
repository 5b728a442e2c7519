"""Calls between simulated ranks: no argument but a name, virtual time, the proof of a deadlock."""

from __future__ import annotations

import pytest

from disttrain import context, rpc
from disttrain import distributed as dist
from disttrain.errors import Deadlock, WaitTimeout
from support.cases.rpc_programs import name, until

pytestmark = pytest.mark.simulated


def other() -> str:
    return name(1 - rpc.get_worker_info().id)


def worker(body) -> object:
    rpc.init_rpc(name(context.current().rank))
    result = body()
    rpc.shutdown()
    return result


def late(seconds: float) -> float:
    context.sleep(seconds)
    return context.now()


def test_time_is_virtual_in_functions_too() -> None:
    def body() -> float:
        return rpc.rpc_sync(other(), late, (50.0,))

    assert dist.simulate(worker, 2, args=(body,)).results == [50.0, 50.0]


def test_a_call_ends_at_its_deadline() -> None:
    def body() -> float:
        with pytest.raises(WaitTimeout, match="did not answer within 3 s"):
            rpc.rpc_sync(other(), late, (20.0,), timeout=3.0)
        return context.now()

    assert dist.simulate(worker, 2, args=(body,)).results == [3.0, 3.0]


def never() -> None:
    until(lambda: False, "what nobody does")


def hold() -> None:
    rpc.rpc_sync(other(), never)


def test_a_deadlock_says_which_answers_are_awaited() -> None:
    def body() -> None:
        if rpc.get_worker_info().id == 0:
            rpc.rpc_sync("worker1", hold)

    with pytest.raises(Deadlock) as error:
        dist.simulate(worker, 2, args=(body,))
    module = __name__
    for line in (
        f"rank 0: the answer of worker1 to {module}.hold",
        f"rank 1 (request of worker 0): the answer of worker0 to {module}.never",
        "rank 0 (request of worker 1): what nobody does",
        "rank 1: the answer of worker0 to _all_gather",
    ):
        assert line in str(error.value)


def test_workers_may_meet_again() -> None:
    def body() -> list[int]:
        found = []
        for _ in range(3):
            found.append(worker(lambda: rpc.rpc_sync(other(), int, ("7",))))
        return found

    assert dist.simulate(body, 2, seed=3).results == [[7, 7, 7]] * 2


def test_the_group_and_the_workers_live_side_by_side() -> None:
    def body() -> int:
        dist.init_process_group()
        result = worker(lambda: rpc.rpc_sync(other(), dist.get_rank))
        dist.barrier()
        dist.destroy_process_group()
        return result

    assert dist.simulate(body, 2).results == [1, 0]
