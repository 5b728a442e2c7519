"""Layouts played on the simulator's links: programs, contention, and what the timeline says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import read_cluster
from disttrain.distributed.planning.constants import constants
from disttrain.distributed.planning.costs import Costs
from disttrain.distributed.planning.layouts import FSDP, HSDP, Layout
from disttrain.distributed.planning.playing import Compute, Player, Send, Start, Wait
from disttrain.distributed.planning.transformer import Transformer
from disttrain.errors import ConfigError

H100 = read_cluster(Path(__file__).parents[3] / "configs" / "clusters" / "h100x8x64.toml")
MODEL = Transformer(8, 4096, 32, 32000, 8, 128, 14336, True, False)
BASE = Layout(32, 4096, 1, data=16)


def player(layout=BASE, machines=H100):
    return Player(Costs(MODEL, layout, machines.sized(layout.devices), constants()))


def estimate(layout):
    return Costs(MODEL, layout, H100.sized(layout.devices), constants()).times().total


@pytest.mark.parametrize("layout", [
    BASE,
    replace(BASE, sharding=FSDP),
    replace(BASE, sharding=HSDP, replicas=2),
    replace(BASE, data=4, pipeline=4),
    replace(BASE, data=2, tensor=2, pipeline=4, chunks=2),
    replace(BASE, data=4, pipeline=4, split=(1, 2, 3, 2)),
    replace(BASE, data=1, batch=1),
], ids=lambda layout: layout.name)  # fmt: skip
def test_played_times_are_near_the_estimate(layout):
    one = player(layout)
    seconds = one.play()
    assert seconds == pytest.approx(estimate(layout), rel=0.35)
    assert seconds == player(layout).play()  # the same each time
    for rank in range(one.ranks):
        computed = sum(end - start for kind, _, start, end in one.timeline.spans[rank]
                       if kind == "compute")  # fmt: skip
        assert computed <= seconds * (1 + 1e-9)
        assert one.timeline.steps[rank][0] <= seconds


def test_programs_send_what_others_wait_for():
    one = player(replace(BASE, data=2, pipeline=4))
    steps = [step for rank in range(one.ranks) for step in one.program(rank)]
    sent = {s.key for s in steps if isinstance(s, (Send, Start))}
    assert {s.key for s in steps if isinstance(s, Wait)} == sent
    assert sum(isinstance(s, Compute) for s in steps) > 2 * 16 * 4


def test_groups_that_meet_on_a_nodes_adapters_wait_for_each_other():
    """Replicas across nodes: eight reductions of one node share its adapters."""
    layout = replace(BASE, data=16, sharding=HSDP, replicas=2)
    slow = replace(H100, oversubscription=8.0)
    pipe = replace(BASE, data=8, pipeline=2)
    assert player(pipe, slow).play() > 1.02 * player(pipe).play()
    assert player(layout).shards_of(9) == tuple(range(8, 16))


def test_devices_of_a_layer_are_one_rank():
    one = player(replace(BASE, data=2, tensor=8))
    assert one.ranks == 2 and len(set(one.network.hosts)) == 2


def test_too_much_to_play_is_refused():
    with pytest.raises(ConfigError, match="too many to play"):
        player(replace(BASE, batch=512 * 400, data=512, sharding=FSDP))
    with pytest.raises(ConfigError, match="too many to play"):
        player(replace(BASE, batch=10**9))  # told before a schedule of that many is made
