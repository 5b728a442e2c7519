"""From which moment a rank's groups move arrays of devices, and which never do."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain import context
from disttrain.backends.device import platform as devices
from disttrain.comm.group import device_setup
from disttrain.comm.group.device_transport import Placed
from disttrain.comm.group.staged import Staged

pytestmark = pytest.mark.simulated


class Cpu:
    """What a transport says of itself."""

    rank, size, name, epoch, timeout, job = 0, 2, "world", 0, 30.0, None
    kind, shares, divides, between = "shm", False, True, None

    def __init__(self, hears=True, group_type=None, between=None):
        self.hears, self.group_type, self.between = hears, group_type, between
        self.group = lambda: None


class Group:
    """A group of this rank."""

    backend = "gloo"

    def __init__(self, transport):
        self.transport = device_setup.joined(self, transport)


@pytest.fixture(autouse=True)
def rank():
    """A rank of the test's own: what it has begun ends with it."""
    with context.attach(context.Rank()) as mine:
        yield mine


@pytest.fixture
def raw(double):
    devices.platform("cuda")
    return double.empty((2,), np.float32)


def test_a_rank_without_devices_holds_the_cpu_s_transport_itself(double):
    cpu = Cpu()
    group = Group(cpu)
    assert group.transport is cpu
    assert not device_setup.is_device_array(np.zeros(2)) and group.transport is cpu
    with device_setup.together(group, np.zeros(2)):
        assert group.transport is cpu


def test_from_the_first_array_on_all_groups_of_the_rank_move_devices_arrays(raw):
    before = Group(Cpu())
    assert device_setup.is_device_array(raw)
    after = Group(Cpu())
    for group in (before, after):
        assert isinstance(group.transport, Placed) and isinstance(group.transport.cpu, Cpu)
    first = before.transport
    device_setup.place()
    assert before.transport is first, "once"


def test_other_ranks_of_the_process_do_not_follow(raw):
    with context.attach(context.Rank(1, 2)):
        other = Group(Cpu())
    device_setup.is_device_array(raw)
    assert isinstance(other.transport, Cpu)


def test_transports_of_programs_and_those_without_peers_stay(raw):
    device_setup.place()
    for cpu in (Cpu(hears=False), Cpu(group_type=Group)):
        assert Group(cpu).transport is cpu
    already = Placed(Cpu(), None)
    assert Group(already).transport is already


def test_arrays_go_by_way_of_the_host_where_no_library_is_offered(double, raw):
    device_setup.place()
    group = Group(Cpu())
    assert isinstance(group.transport.on(double), Staged)


def test_what_lies_between_is_asked_with_the_backend_s_name(double, raw):
    asked = []

    def between(backend, cpu, platform):
        asked.append((backend, cpu, platform))
        return SimpleNamespace(bind=lambda index: asked.append(index))

    cpu = Cpu(between=between)
    group = Group(cpu)
    device_setup.bind(group, double, 1)
    assert asked == [("gloo", cpu, double), 1]


def test_a_group_that_is_gone_is_not_kept(raw):
    group = Group(Cpu())
    gone = weakref.ref(group)
    del group
    assert gone() is None
    device_setup.place()
