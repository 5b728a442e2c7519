"""What simulated ranks share: busy links, worlds, messages on their way, who has failed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports import sim
from disttrain.comm.transports.sim.fabric import Cluster, Fabric, Ports, fabric, required
from disttrain.comm.transports.sim.faults import parse_fault
from disttrain.comm.transports.sim.network import Link, Network, spread
from disttrain.comm.transports.sim.scheduler import Scheduler
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated

LINK = Link(1e-3, 1e6)  # 1 ms, and 1 us a byte
MB = 1_000_000


def test_links_carry_one_thing_after_the_other() -> None:
    net = Network(spread(4, 2), Link(), LINK)
    ports = Ports(net)
    assert ports.take(0.0, 2.0, [0, 2]) == (0.0, 2.0)
    assert ports.take(1.0, 2.0, [1, 3]) == (2.0, 4.0)  # other ranks, the same links of hosts
    assert ports.take(1.0, 1.0, [0]) == (2.0, 3.0)  # inside a host: the ranks' own links
    assert ports.take(9.0, 1.0, [2]) == (9.0, 10.0)


def test_a_link_carries_both_directions_at_once() -> None:
    ports = Ports(Network(spread(4, 2), Link(), LINK))
    assert ports.send(0.0, 2.0, 0, 2) == (0.0, 2.0)
    assert ports.send(0.0, 2.0, 2, 0) == (0.0, 2.0)  # the other way
    assert ports.send(0.0, 1.0, 1, 3) == (2.0, 3.0)  # other ranks, the same way between hosts
    assert ports.send(0.0, 1.0, 3, 2) == (2.0, 3.0)  # inside a host: 3 sends, 2 receives behind 0's
    assert ports.take(0.0, 1.0, [1, 3]) == (3.0, 4.0)  # when both ways are free


def _clock(n: int, body: Callable[[ProcessGroup], None], algorithm: str = "ring") -> float:
    """How long ``body`` takes on ``n`` ranks, each on a host of its own."""

    def rank() -> None:
        body(ProcessGroup(sim.connect()))

    cluster = sim.Cluster(n, n, remote=Link(20e-6, 1e9), algorithm=algorithm, compute=0.0)
    scheduler = sim.run_cluster(rank, cluster)[0]
    assert [task.error for task in scheduler.tasks] == [None] * n
    return scheduler.clock


@pytest.mark.parametrize("n", [2, 3, 5])
def test_messages_take_as_long_as_a_collective_of_the_same_bytes(n: int) -> None:
    """A ring of messages gathers as the ring does."""
    part = 4 * MB

    def messages(group: ProcessGroup) -> None:
        data = np.zeros(part, np.int8)
        for _ in range(n - 1):
            sent = group.isend(data, (group.rank + 1) % n)
            group.recv(np.empty_like(data), (group.rank - 1) % n)
            sent.wait()

    def collective(group: ProcessGroup) -> None:
        group.all_gather([np.empty(part, np.int8) for _ in range(n)], np.zeros(part, np.int8))

    there = _clock(n, lambda group: None)
    took = [_clock(n, body) - there for body in (messages, collective)]
    assert took == pytest.approx([(n - 1) * (20e-6 + part / 1e9)] * 2)


def test_worlds_of_one_size_at_one_time_do_not_meet() -> None:
    def body() -> list[float]:
        seat = context.current().rank
        sums = []
        for size, place in ((2, seat // 2), (1, seat)):
            url = f"tcp://127.0.0.1:{23400 + place}"
            dist.init_process_group("gloo", init_method=url, rank=seat % size, world_size=size)
            first = dist.new_group([0])
            for group in (None, first):
                x = dt.tensor([seat + 1.0])
                if group is None or dist.get_rank() == 0:
                    dist.all_reduce(x, group=group)
                sums.append(float(x[0]))
            dist.destroy_process_group()
        return sums

    for seed in range(4):
        tasks = sim.run_cluster(body, sim.Cluster(4), seed)[0].tasks
        assert [task.error for task in tasks] == [None] * 4
        assert [task.result for task in tasks] == [
            [3.0, 1.0, 1.0, 1.0],
            [3.0, 2.0, 2.0, 2.0],
            [7.0, 3.0, 3.0, 3.0],
            [7.0, 4.0, 4.0, 4.0],
        ]


def alone(ranks: int = 4, **settings) -> Fabric:
    return Fabric(Scheduler(0), Cluster(ranks, **settings))


def test_default_groups_are_numbered_alike_on_all_their_ranks() -> None:
    shared = alone()
    first, number = shared.world(0, 0, None)
    again, same = shared.world(3, 3, 4)
    assert first is again and number == same and first.seats[3] == 3
    second, other = shared.world(0, 0, 4)
    assert second is not first and other != number
    assert shared.world(1, 1, 4) == (first, number)
    assert shared.world(1, 1, 4) == (second, other)


def test_a_group_of_one_is_its_seats_alone() -> None:
    shared = alone()
    (a, first), (b, second) = shared.world(1, 0, 1), shared.world(2, 0, 1)
    assert a is not b and first != second and (a.seats, b.seats) == ([1], [2])


def test_seats_of_a_smaller_world_are_those_who_came() -> None:
    shared = alone()
    pair, number = shared.world(3, 0, 2, "port 1")
    assert shared.world(1, 1, 2, "port 1") == (pair, number) and list(pair.seats) == [3, 1]
    elsewhere, _ = shared.world(0, 0, 2, "port 2")
    assert elsewhere is not pair


def test_a_group_that_all_have_left_is_made_anew() -> None:
    shared = alone()
    kept, gone = shared.matcher(1, "a", (0, 1)), shared.matcher(1, "b", (0, 1))
    shared.forget(gone)
    assert shared.matcher(1, "a", (0, 1)) is kept
    assert shared.matcher(1, "b", (0, 1)) is not gone
    assert shared.matcher(1, "a", (1, 0)) is not kept  # another order is another group


def test_the_first_failure_counts() -> None:
    shared = alone()
    shared.fail(2, "ValueError: first", "its trace")
    shared.fail(1, "PeerFailed: second")
    assert (shared.failure.rank, shared.failure.cause) == (2, "ValueError: first")


def test_a_straggler_s_program_takes_longer_and_calls_alone_cost_what_is_given() -> None:
    shared = alone(compute=0.5, stragglers=((1, 3.0),))
    assert shared._lasts(0, 99.0, True) == 0.5 and shared._lasts(0, 99.0, False) == 0.0
    assert shared._lasts(1, 99.0, True) == 1.5
    assert shared.timeline.totals[1]["compute"] == 1.5
    measured = alone(compute=None, stragglers=((1, 2.0),))
    assert measured._lasts(0, 0.25, False) == 0.25 and measured._lasts(1, 0.25, True) == 0.5
    assert alone(compute=0.0).scheduler.stopwatch is None


def test_a_message_is_late_by_its_latency_and_by_what_is_before_it() -> None:
    shared = alone(2, num_hosts=2, remote=LINK)
    assert shared.message_seconds(0, 1, 1000) == pytest.approx(2e-3)
    assert shared.message_seconds(0, 1, 1000) == pytest.approx(3e-3)  # behind the first one
    assert shared.message_seconds(1, 0, 1000) == pytest.approx(2e-3)  # the other way


def test_messages_of_a_pair_arrive_in_order_also_where_the_first_is_delayed() -> None:
    faults = (parse_fault("delay", "0@send:1=5s", 2),)

    def body() -> list:
        group = ProcessGroup(sim.connect())
        if group.rank == 0:
            group.isend(np.full(1, 1.0), 1).wait()
            group.isend(np.full(1, 2.0), 1).wait()
            group.barrier()
            return []
        got = np.zeros(2)
        for k in range(2):
            group.recv(got[k : k + 1], 0)
        arrived = context.now()
        group.barrier()
        return [*got, arrived]

    tasks = sim.run_cluster(body, Cluster(2, faults=faults))[0].tasks
    assert tasks[1].error is None, tasks[1].text
    assert tasks[1].result[:2] == [1.0, 2.0] and tasks[1].result[2] == pytest.approx(5.0, abs=1e-3)


def test_what_waits_for_no_time_happens_at_once() -> None:
    shared, seen = alone(), []
    shared.later(0.0, lambda: seen.append("now"))
    assert seen == ["now"]


def test_outside_of_a_cluster_there_is_none() -> None:
    assert fabric() is None
    with pytest.raises(ConfigError, match=r"dtrun --simulate N train.py"):
        required()
