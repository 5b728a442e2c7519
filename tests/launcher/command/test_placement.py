"""Which device and which cores each rank of a node gets."""

from __future__ import annotations

import pytest

from disttrain import gpus
from disttrain.errors import LaunchError
from disttrain_launcher.command import placement
from disttrain_launcher.options import command_line
from disttrain_launcher.plan import binding
from disttrain_launcher.plan.job import make_plan

pytestmark = pytest.mark.simulated

CARDS = tuple(gpus.Card(i, f"GPU-{i}", f"0000:0{i}:00.0") for i in range(3))


def placed(*words):
    chosen = command_line.parse([*words, "t.py"], {})
    return placement.placed(make_plan(chosen, 1), chosen)


@pytest.fixture
def machine(monkeypatch):
    """A machine of three devices, on two NUMA nodes of four cores."""
    monkeypatch.setattr(gpus, "ask", lambda: gpus.Machine("dev", cards=CARDS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cores = {i: binding.Core(i // 4, i // 4, i, i // 4) for i in range(8)}
    near = {card.bus: card.index % 2 for card in CARDS}

    def read(buses, allowed):
        return binding.Host(cores, {bus: near[bus] for bus in buses})

    monkeypatch.setattr(binding, "read_host", read)


@pytest.mark.parametrize(("given", "ranks", "words"), [
    (None, 2, ("0", "1")), ("5,3,1", 2, ("5", "3")), ("", 1, ("",)), ("5", 2, None),
])  # fmt: skip
def test_virtual_local_ranks_where_there_are_no_devices(monkeypatch, given, ranks, words):
    """As with torchrun, which asks nobody whether there are any."""
    monkeypatch.setattr(gpus, "ask", lambda: gpus.Machine("dev"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    chosen = command_line.parse(
        ["--nproc-per-node", str(ranks), "--virtual-local-rank", "t.py"], {}
    )
    if words is None:
        with pytest.raises(LaunchError, match="2 ranks, and CUDA_VISIBLE_DEVICES=5 names 1"):
            placement.placed(make_plan(chosen, 1), chosen)
    else:
        assert placement.placed(make_plan(chosen, 1), chosen).devices == words


def test_without_flags_a_plan_stays_as_it_is(machine):
    plan = placed("--nproc-per-node", "2")
    assert plan.devices == () and plan.cores == ()


def test_ranks_take_the_devices_in_turn(machine, monkeypatch):
    three = placed("--nproc-per-node", "4", "--virtual-local-rank").devices
    assert len(set(three[:3])) == 3 and three[3] == three[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    two = placed("--nproc-per-node", "3", "--virtual-local-rank").devices
    assert two == ("2", "0", "2")


def test_cores_are_those_near_a_rank_s_device(machine):
    plan = placed("--nproc-per-node", "3", "--numa-binding", "node")
    assert plan.cores == ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 2, 3)) and plan.devices == ()


def test_where_no_device_is_visible_nobody_sees_one_alone(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(LaunchError, match="--virtual-local-rank: no device is visible here"):
        placed("--virtual-local-rank")
    plan = placed("--nproc-per-node", "2", "--numa-binding", "node")
    assert plan.cores == ((0, 1, 2, 3), (4, 5, 6, 7)), "spread over the nodes"
