"""Timelines: spans, shares, the predicted step, the Chrome trace."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports import sim
from disttrain.comm.transports.sim import timeline as tl
from disttrain.comm.transports.sim.fabric import Cluster
from disttrain.comm.transports.sim.faults import parse_fault
from disttrain.comm.transports.sim.network import Link


def test_a_wait_is_split_where_the_data_begins_to_move() -> None:
    line = tl.Timeline(2)
    line.computed(0, 0.0, 1.0)
    line.waited(0, "all_reduce", 1.0, 4.0, moving=3.0)
    line.waited(1, "all_reduce", 2.0, 4.0, moving=1.0)
    line.flew([0, 1], "all_reduce", 3.0, 4.0)
    assert line.totals[0] == {"compute": 1.0, "wait": 2.0, "communication": 1.0}
    assert line.totals[1] == {"compute": 0.0, "wait": 0.0, "communication": 2.0}
    assert tl.shares(line.totals[0])["wait"] == 0.5
    file = io.StringIO()
    tl.write(file, line, (0, 1))
    spans = [e for e in json.loads(file.getvalue())["traceEvents"] if e["ph"] == "X"]
    assert {(e["pid"], e["tid"], e["cat"], e["ts"], e["dur"]) for e in spans} == {
        (0, 0, "compute", 0.0, 1e6),
        (0, 0, "wait", 1e6, 2e6),
        (0, 0, "communication", 3e6, 1e6),
        (1, 0, "communication", 2e6, 2e6),
        (0, 1, "communication", 3e6, 1e6),
        (1, 1, "communication", 3e6, 1e6),
    }


def test_a_step_lasts_as_long_as_its_slowest_rank() -> None:
    assert tl.step_seconds([[5.0], [6.0]]) is None and tl.step_seconds([]) is None
    assert tl.step_seconds([[5.0, 7.0, 9.0, 20.0], [6.0, 7.5, 9.5, 12.0]]) == 2.0


def test_what_came_before_the_end_of_the_first_step_is_not_counted() -> None:
    line = tl.Timeline(1)
    line.computed(0, 0.0, 100.0)
    line.stepped(0, 100.0)
    line.computed(0, 100.0, 101.0)
    line.stepped(0, 102.0)
    assert line.totals[0]["compute"] == 1.0
    text = "\n".join(tl.summary(line))
    assert "predicted step time: 2 s" in text and "100.0%" in text


def test_many_ranks_are_told_by_those_at_the_ends() -> None:
    line = tl.Timeline(100)
    for rank in range(100):
        line.computed(rank, 0.0, 1.0)
        line.waited(rank, "barrier", 1.0, 1.0 + rank, 1e9)
    rows = tl.summary(line, most=4)
    assert rows[3] == "  ... 96 ranks between these" and len(rows) == 6


@pytest.mark.parametrize("slow", [None, 1])
def test_the_clock_of_a_cluster_follows_the_model(slow: int | None) -> None:
    """Three steps of 5 ms and an all-reduce of 1 MB on two hosts: 2 ms and 1 MB / (1 GB/s)."""
    n, link = 125_000, Link(1e-3, 1e9)
    stragglers = () if slow is None else ((slow, 3.0),)
    cluster = Cluster(2, 2, remote=link, algorithm="ring", compute=5e-3, stragglers=stragglers)

    def body() -> None:
        group = ProcessGroup(sim.connect())
        for _ in range(3):
            group.all_reduce(np.ones(n))
        group.close()

    scheduler, fabric = sim.run_cluster(body, cluster)
    compute = 5e-3 if slow is None else 15e-3
    close = 5e-3 if slow is None else 15e-3  # it is a call, too: a meeting of two rounds
    assert [t.error for t in scheduler.tasks] == [None, None]
    assert scheduler.clock == pytest.approx(3 * (compute + 2e-3 + 1e-3) + close + 2e-3)
    waited = fabric.timeline.totals[0]["wait"]
    assert waited == pytest.approx(0.0 if slow is None else 4 * 10e-3)


def test_faults_strike_at_their_points() -> None:
    faults = [("delay", "0@all_reduce:2=50ms"), ("drop", "1@all_reduce:3")]
    cluster = Cluster(2, compute=0.0, faults=tuple(parse_fault(k, f, 2) for k, f in faults))

    def body() -> list[float]:
        group, ends = ProcessGroup(sim.connect()), []
        group.timeout = 30.0
        for _ in range(3):
            group.all_reduce(np.ones(3))
            ends.append(group.transport.end.fabric.scheduler.clock)
        return ends

    scheduler, fabric = sim.run_cluster(body, cluster)
    texts = [str(t.error) for t in scheduler.tasks]
    assert any("waited 30 s for all_reduce" in text and "rank 1 has not" in text for text in texts)
    assert fabric.happened == ["--delay 0@all_reduce:2", "--drop 1@all_reduce:3"]
    assert fabric.scheduler.clock == pytest.approx(30.05, abs=1e-3)
