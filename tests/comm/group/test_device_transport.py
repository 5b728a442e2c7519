"""A group's transports side by side: which one gets an array, and what all of them are told."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.backends.device import platform as devices
from disttrain.comm.group.device_transport import Placed
from disttrain.comm.transports.shm.engine import connect_alone
from disttrain.errors import DeviceError

pytestmark = pytest.mark.simulated


class Recorder:
    """A transport that notes what it is asked."""

    kind, shares, divides, hears, job, between = "recorder", True, True, True, None, "between"
    rank, size, name, epoch = 1, 4, "world", 7

    def __init__(self, leads=False, fails=None):
        self.asked, self.leads, self.fails = [], leads, fails
        self.timeout, self.group = 30.0, lambda: None

    @contextlib.contextmanager
    def together(self):
        self.asked.append("together")
        yield
        self.asked.append("apart")

    def __getattr__(self, verb):
        def ask(*args, **more):
            self.asked.append((verb, args))
            if verb == self.fails:
                raise RuntimeError(f"{verb} failed")
            return verb

        return ask

    def verbs(self):
        return [a if isinstance(a, str) else a[0] for a in self.asked]


CALL = SimpleNamespace(text="all_gather(...)")


@pytest.fixture
def placed(double):
    devices.platform("cuda")
    there = []

    def make(cpu, platform):
        there.append(Recorder(leads=True))
        return there[-1]

    found = Placed(Recorder(), make)
    found.there = there
    return found


def test_it_is_as_the_cpu_s_transport(placed):
    assert (placed.rank, placed.size, placed.name, placed.epoch) == (1, 4, "world", 7)
    assert (placed.kind, placed.shares, placed.between) == ("recorder", True, "between")


def test_each_array_goes_to_its_transport_which_is_made_once(double, placed):
    host, raw = np.zeros(2), double.empty((2,), np.float32)
    placed.all_reduce(CALL, host, None)
    assert placed.cpu.verbs() == ["all_reduce"] and not placed.there
    placed.all_reduce(CALL, raw, None)
    placed.broadcast(CALL, raw, 0)
    placed.send(CALL, raw, 1, 0)
    placed.recv(CALL, raw, None, 0)
    (there,) = placed.there
    assert there.verbs() == ["all_reduce", "broadcast", "send", "recv"]
    assert placed.cpu.verbs() == ["all_reduce"] and placed.on(double) is there


def test_many_arrays_go_together_or_not_at_all(double, placed):
    host, raw = np.zeros(2), double.empty((2,), np.float32)
    assert placed.all_gather(CALL, [raw, raw], raw) == "all_gather"
    assert placed.reduce_scatter(CALL, host, [host], None) == "reduce_scatter"
    assert placed.all_to_all(CALL, [raw], [raw]) == "all_to_all"
    assert placed.there[0].verbs() == ["all_gather", "all_to_all"]
    for ask in (
        lambda: placed.all_gather(CALL, [raw, raw], host),
        lambda: placed.reduce_scatter(CALL, raw, [host], None),
        lambda: placed.all_to_all(CALL, [raw, host], [raw]),
    ):
        with pytest.raises(DeviceError, match=r"all_gather\(...\): arrays on different devices"):
            ask()


def test_a_barrier_is_that_of_devices_which_have_met(double, placed):
    placed.barrier(CALL)
    assert placed.cpu.verbs() == ["barrier"]
    placed.on(double)
    placed.barrier(CALL)
    assert placed.cpu.verbs() == ["barrier"] and placed.there[0].verbs() == ["barrier"]


def test_settings_reach_all_of_them(double, placed):
    there = placed.on(double)
    placed.timeout = 3.0
    assert placed.cpu.timeout == there.timeout == placed.timeout == 3.0
    mine = lambda: "group"
    placed.group = mine
    assert placed.cpu.group is mine is placed.group


def test_operations_are_collected_on_all_devices(double, placed):
    there = placed.on(double)
    with placed.together():
        placed.send(CALL, double.empty((1,), np.float32), 0, 0)
    assert there.verbs() == ["together", "send", "apart"]


def test_memory_of_the_host_and_parts_of_the_group_are_the_cpu_s(double, placed):
    there = placed.on(double)
    assert placed.allocate(8) == "allocate" and placed.share(CALL, 8) == "share"
    assert placed.split(CALL, [0, 1], "half") == "split"
    assert there.asked == [("divide", ("split", [0, 1], "half"))]
    placed.split(CALL, [0, 1], "half", lambda row: row)
    assert len(there.asked) == 1, "where only members come, devices do not agree on anything"


def test_devices_end_before_the_cpu_over_which_they_agree(double, placed):
    there, order = placed.on(double), []
    there.close = lambda call: order.append(("device", call))
    placed.cpu.close = lambda call: order.append(("cpu", call))
    placed.close(CALL)
    assert order == [("device", CALL), ("cpu", CALL)] and not placed.devices


def test_where_devices_do_not_agree_the_rest_is_left_at_once(double, placed):
    placed.devices[int] = first = Recorder()
    placed.devices[float] = last = Recorder(fails="close")
    with pytest.raises(RuntimeError, match="close failed"):
        placed.close(CALL)
    assert last.asked == [("close", (CALL,))]
    assert first.asked == placed.cpu.asked == [("close", (None,))]


def test_survivors_go_on_with_the_cpu_s_and_leave_the_devices(double, placed):
    there = placed.on(double)
    placed.cpu.shrink = lambda timeout, exclude: ("fewer", [0, 2])
    assert placed.shrink(1.0, (1,)) == ("fewer", [0, 2])
    assert there.asked == [("shrunk", ("fewer", [0, 2])), ("close", (None,))]


def test_a_group_of_one_has_a_transport_like_any_other():
    alone = Placed(connect_alone(5.0), None)
    assert (alone.rank, alone.size, alone.timeout) == (0, 1, 5.0)
    alone.cpu.close(None)
