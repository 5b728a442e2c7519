"""What a rank does between two steps, observed while somebody asks for it."""

from __future__ import annotations

import threading

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.equality import flow
from disttrain.distributed.equality.sites import here
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def world():
    return dist.distributed_c10d._get_default_group()


def test_calls_modules_and_lines_are_noted_in_order():
    def body():
        group, net, x = world(), dt.nn.Sequential(dt.nn.Linear(2, 2)), dt.ones(1, 2)
        flow.begin(group)
        net(x)
        dist.all_reduce(x)
        dist.barrier()
        flow.passed("lr", here())
        dist.send(x, 0) if dist.get_rank() else dist.recv(x, 1)  # messages do not count
        found = flow.events(group)
        flow.end(group)
        assert flow.events(group) is None
        net(x)
        return [leaf.told for leaf in found], [leaf.site.rsplit("/", 1)[1] for leaf in found]

    (told, sites), other = on_ranks(body, 2)
    assert told == [
        "forward of a Sequential", "forward of a Linear", "all_reduce of 2 x float32", "barrier",
        "same('lr')",
    ]  # fmt: skip
    assert other == (told, sites) and all(site.startswith("test_flow.py:") for site in sites)


def test_nothing_is_left_when_nobody_observes():
    def body():
        group = world()
        box = group._calls.box
        flow.begin(group)
        flow.begin(group)  # again
        assert group._calls.box is not box
        flow.end(group)
        flow.end(group)
        return group._calls.box is box

    assert on_ranks(body, 2) == [True, True]


def test_other_threads_and_ranks_are_not_noted():
    def body():
        group, net = world(), dt.nn.Linear(2, 2)
        if dist.get_rank() == 0:
            flow.begin(group)
        thread = threading.Thread(target=lambda: net(dt.ones(1, 2)))
        thread.start()
        thread.join()
        dist.barrier()
        found = flow.events(group)
        flow.end(group)
        return None if found is None else [leaf.told for leaf in found]

    assert on_ranks(body, 2) == [["barrier"], None]


def test_long_steps_are_kept_in_part(monkeypatch):
    monkeypatch.setattr(flow, "_MOST", 3)
    one, two, three = flow.Step(), flow.Step(), flow.Step()
    for step, last in ((one, "x"), (two, "x"), (three, "y")):
        for what in ("a", "b", "c", "d", last):
            step.add(what)
    assert [leaf.told for leaf in one.leaves()] == ["a", "b", "c", "2 more events"]
    ends = [step.leaves()[-1].hash for step in (one, two, three)]
    assert ends[0] == ends[1] != ends[2]
