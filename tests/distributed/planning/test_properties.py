"""What must hold of any model, layout and machines: drawn by a seed, so that a failure names it."""

from __future__ import annotations

import json
import random
import tomllib
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import Machines, cluster_of, read_cluster
from disttrain.distributed.planning.constants import constants
from disttrain.distributed.planning.costs import Costs
from disttrain.distributed.planning.layouts import FULL, NONE, SELECTIVE, Layout
from disttrain.distributed.planning.memory import Memory
from disttrain.distributed.planning.ranking import Job, as_json, judge, layouts, rank
from disttrain.distributed.planning.transformer import Transformer, transformer_of
from disttrain.errors import ConfigError

CLUSTERS = sorted((Path(__file__).parents[3] / "configs" / "clusters").glob("*.toml"))
SEEDS = range(24)
MORE = 1 + 1e-9


def drawn(seed: int) -> tuple[Job, list[Layout]]:
    """A job, and some of its layouts."""
    pick = random.Random(seed)
    heads, dim = pick.choice([4, 6, 8, 16, 32]), pick.choice([32, 64, 128])
    experts = pick.choice([0, 0, 4, 16])
    sparse = {"experts": experts, "top_k": 2, "expert_ffn": heads * 32,
              "dense_layers": pick.choice([0, 1])} if experts else {}  # fmt: skip
    model = Transformer(pick.randint(1, 12), heads * dim, heads, pick.choice([1000, 128256]),
                        pick.choice([0, heads // 2]), dim, pick.choice([0, heads * dim * 3]),
                        pick.random() < 0.5, window=pick.choice([0, 0, 128]), **sparse)  # fmt: skip
    machines = read_cluster(pick.choice(CLUSTERS)).sized(pick.choice([4, 8, 16, 32]))
    job = Job(model, machines, pick.choice([8, 16, 64]), pick.choice([512, 2048, 8192]))
    found = list(layouts(job))
    return job, pick.sample(found, min(6, len(found)))


def better(machines: Machines) -> dict[str, Machines]:
    """The same machines with one thing that is faster."""
    local, network, device = machines.local, machines.network, machines.device
    peaks = {kind: 2 * peak for kind, peak in device.peaks.items()}
    return {
        "local rate": replace(machines, local=replace(local, bandwidth=2 * local.bandwidth)),
        "local start": replace(machines, local=replace(local, latency=local.latency / 3)),
        "rate": replace(machines, network=replace(network, bandwidth=2 * network.bandwidth)),
        "start": replace(machines, network=replace(network, latency=network.latency / 3)),
        "memory": replace(machines, device=replace(device, bandwidth=2 * device.bandwidth)),
        "peaks": replace(machines, device=replace(device, peaks=peaks)),
    }


def seconds(job: Job, layout: Layout, **change: object) -> float:
    job = replace(job, **change)
    return Costs(job.model, layout, job.machines, constants()).times().total


def held(job: Job, layout: Layout, **change: object) -> float:
    job = replace(job, **change)
    return Memory(Costs(job.model, layout, job.machines, constants())).held().total


@pytest.mark.parametrize("seed", SEEDS)
def test_better_machines_are_never_slower(seed):
    job, some = drawn(seed)
    for layout in some:
        base = seconds(job, layout)
        for name, machines in better(job.machines).items():
            assert seconds(job, layout, machines=machines) <= base * MORE, (name, layout)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_work_takes_longer_and_more_memory(seed):
    job, some = drawn(seed)
    deeper = replace(job.model, layers=2 * job.model.layers)
    for layout in some:
        base, room = seconds(job, layout), held(job, layout)
        longer = replace(layout, seq=2 * layout.seq)
        assert seconds(job, layout, model=deeper) >= base and held(job, longer) >= room
        assert held(job, layout, model=deeper) >= room and seconds(job, longer) >= base
        assert seconds(job, replace(layout, batch=2 * layout.batch)) >= base


@pytest.mark.parametrize("seed", SEEDS)
def test_computing_again_costs_time_and_saves_memory(seed):
    job, some = drawn(seed)
    for layout in some:
        ways = [replace(layout, recompute=how) for how in (NONE, SELECTIVE, FULL)]
        took, room = ([of(job, way) for way in ways] for of in (seconds, held))
        assert took == sorted(took)
        assert room[1] <= room[0] * MORE and room[2] <= room[1] * MORE, layout


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_make_the_whole(seed):
    job, some = drawn(seed)
    for layout in some:
        times = Costs(job.model, layout, job.machines, constants()).times()
        parts = [times.compute, times.bubble, times.optimizer, *times.sent.values()]
        assert min(parts) >= 0.0 and sum(parts) == pytest.approx(times.total)
        assert 0.0 < judge(job, layout, constants()).mfu < 1.0


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_more_memory_never_rules_a_strategy_out(seed):
    job, _ = drawn(seed)
    device = job.machines.device
    small = replace(device, memory=device.memory // 8)
    less, more = (
        rank(replace(job, machines=replace(job.machines, device=d)), constants())
        for d in (small, device)
    )
    names = [{replace(c.layout, chunks=1).name for c in r.best} for r in (less, more)]
    assert names[0] <= names[1]
    if less.best:
        assert more.best[0].times.total <= less.best[0].times.total


def test_splitting_layers_across_nodes_is_slower():
    machines = read_cluster(CLUSTERS[0].with_name("h100x8x64.toml")).sized(16)
    model = Transformer(16, 4096, 32, 32000)
    near = Costs(model, Layout(16, 4096, 1, 2, 8), machines, constants()).times()
    far = Costs(model, Layout(16, 4096, 1, 1, 16), machines, constants()).times()
    assert far.sent["layers"] > 2 * near.sent["layers"]


WRONG = (0, -1, 1.5, True, "x", [], {}, None, float("nan"), float("inf"), 10**30, 1e-300)
MODEL = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "kv_heads": 2, "head_dim": 16,
         "ffn": 128, "gated": True, "tied": True, "positions": 64, "biases": False, "experts": 4,
         "top_k": 2, "expert_ffn": 32, "shared_ffn": 32, "dense_layers": 1, "q_rank": 8,
         "kv_rank": 8, "rope_dim": 8, "window": 16}  # fmt: skip


def test_a_wrong_value_is_an_error_or_a_plan():
    """Of any key of a cluster's file or a model's table: never another exception."""
    table = tomllib.loads(CLUSTERS[0].read_text())
    places = [(k,) for k in table] + [(k, n) for k, v in table.items()
                                      if isinstance(v, dict) for n in v]  # fmt: skip
    for place in places:
        for value in WRONG:
            trial = deepcopy(table)
            (trial if len(place) == 1 else trial[place[0]])[place[-1]] = value
            _plans_or_says_why(MODEL, trial)
    for name in MODEL:
        for value in (*WRONG, 3, 7, 100):
            _plans_or_says_why({**MODEL, name: value}, table)


def _plans_or_says_why(model: dict, cluster: dict) -> None:
    try:
        machines = cluster_of(cluster).sized(8)
        found = transformer_of(model)
        if found.layers < 1000:
            text = as_json(rank(Job(found, machines, 8, 64), constants()))
            json.loads(text, parse_constant=pytest.fail)  # no "Infinity", which is no JSON
    except ConfigError as error:
        assert str(error)
