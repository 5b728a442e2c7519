"""What collectives cost on two levels."""

from __future__ import annotations

import pytest

from disttrain.distributed.planning.clusters import Device, Machines, Wire
from disttrain.distributed.planning.constants import Constants
from disttrain.distributed.planning.links import Crowd, Links, crowd

DEVICE = Device("d", "d", 1 << 36, 1e12, {"bf16": 1e15})
MACHINES = Machines("m", 4, 8, DEVICE, Wire(100e9, 1e-6), Wire(10e9, 1e-5))
PLAIN = Constants({"latency": 1.0, "fast_links.default": 1.0, "network": 1.0})
LINKS = Links(MACHINES, PLAIN)


@pytest.mark.parametrize(("size", "stride", "near"), [
    (8, 1, 8), (32, 1, 8), (4, 8, 1), (8, 4, 2), (2, 16, 1), (6, 1, 6), (12, 1, 6),
])  # fmt: skip
def test_who_is_near(size, stride, near):
    assert crowd(MACHINES, size, stride) == Crowd(size, near)


def test_a_ring_inside_an_island():
    assert LINKS.halves(Crowd(8, 8), 8e9) == pytest.approx(3e-6 + 7e9 / 100e9)
    assert LINKS.all_reduce(Crowd(8, 8), 8e9) == pytest.approx(2 * (3e-6 + 0.07))
    assert LINKS.halves(Crowd(1, 1), 8e9) == 0.0


def test_between_islands_groups_share_the_adapters():
    alone = LINKS.halves(Crowd(4, 1), 4e9)  # one device of each node; seven such groups beside it
    whole = LINKS.halves(Crowd(32, 8), 4e9)  # all devices of each node
    assert alone == pytest.approx(2e-5 + 3e9 / 10e9)
    assert whole == pytest.approx(3e-6 + 31 / 32 * 4e9 / 100e9)  # the near links


def test_exchanges_and_messages():
    assert LINKS.all_to_all(Crowd(8, 8), 8e9) == pytest.approx(1e-6 + 0.07)
    assert LINKS.all_to_all(Crowd(16, 8), 16e9) == pytest.approx(1e-5 + 8e9 / 10e9)
    assert LINKS.send(1, 1e9) == pytest.approx(1e-6 + 0.01)
    assert LINKS.send(8, 1e9) == pytest.approx(1e-5 + 0.1)
    slow = Links(Machines("m", 4, 8, DEVICE, MACHINES.local, MACHINES.network, 2.0), PLAIN)
    assert slow.send(8, 1e9) == pytest.approx(1e-5 + 0.2)
