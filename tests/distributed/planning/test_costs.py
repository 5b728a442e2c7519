"""Times of a step: what makes them longer and shorter, and the parts they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import read_cluster
from disttrain.distributed.planning.constants import constants
from disttrain.distributed.planning.costs import Costs
from disttrain.distributed.planning.layouts import FSDP, FULL, HSDP, ZERO1, Layout
from disttrain.distributed.planning.transformer import Transformer

H100 = read_cluster(Path(__file__).parents[3] / "configs" / "clusters" / "h100x8x64.toml")
SLOW = replace(H100, oversubscription=8.0)  # between nodes
MODEL = Transformer(32, 4096, 32, 128256, 8, 128, 14336, True, False)
BASE = Layout(64, 4096, 1, data=8)


def times(layout=BASE, model=MODEL, machines=H100):
    sized = machines.sized(layout.devices)
    return Costs(model, layout, sized, constants()).times()


def test_parts_make_the_whole():
    for layout in (BASE, replace(BASE, data=2, pipeline=4), replace(BASE, sharding=FSDP)):
        found = times(layout)
        parts = found.compute + found.bubble + found.optimizer + found.exposed
        assert found.total == pytest.approx(parts) and found.total > 0


def test_no_step_beats_the_peak():
    work = MODEL.flops(4096) * 64 * 4096 / 8 / H100.device.peaks["bf16"]
    assert 1.2 * work < times().total < 4 * work


def test_a_batch_twice_as_large_takes_twice_as_long():
    once, twice = times().compute, times(replace(BASE, batch=128)).compute
    assert twice == pytest.approx(2 * once)


def test_computing_again_costs_a_forward():
    ratio = times(replace(BASE, recompute=FULL)).compute / times().compute
    assert 1.2 < ratio < 1.4


def test_tensor_parallelism_shows_its_exchanges_and_across_nodes_more_of_them():
    near = times(replace(BASE, data=1, tensor=8), machines=SLOW)
    far = times(replace(BASE, data=1, tensor=16), machines=SLOW)
    assert near.sent["layers"] > 0.0 and far.sent["layers"] > 1.5 * near.sent["layers"]
    assert times().sent["layers"] == 0.0


def test_a_pipeline_waits_less_with_more_micro_batches_and_stages_of_a_rank():
    layout = replace(BASE, data=1, pipeline=8)
    assert times(replace(layout, batch=128)).bubble == pytest.approx(times(layout).bubble)
    assert times(replace(layout, chunks=4)).bubble < times(layout).bubble / 2
    uneven = replace(layout, pipeline=2, split=(8, 24))
    assert times(uneven).compute > times(replace(layout, pipeline=2)).compute


def test_gathers_hide_behind_much_computation_only():
    much = times(replace(BASE, batch=512, data=64, micro=8, sharding=FSDP))
    little = times(replace(BASE, batch=64, seq=256, data=64, sharding=FSDP), machines=SLOW)
    assert much.sent["gathers"] == 0.0 < little.sent["gathers"]
    spread = replace(BASE, batch=64, seq=256, data=64)
    within = times(replace(spread, sharding=HSDP, replicas=8), machines=SLOW)
    assert within.sent["gathers"] < little.sent["gathers"]


def test_reductions_hide_where_they_may():
    shown = times(replace(BASE, overlap=False)).sent["gradients"]
    assert 0.0 < times().sent["gradients"] < shown
    assert times(replace(BASE, sharding=ZERO1)).optimizer < times().optimizer


def test_experts_and_sequences_exchange():
    model = replace(MODEL, experts=16, top_k=2, expert_ffn=4096)
    assert times(replace(BASE, expert=8), model).sent["layers"] > 0.0
    alone = replace(BASE, batch=8, seq=32768, data=8)
    cut = replace(alone, data=1, context=8)
    assert times(cut).sent["layers"] > 0.0
    assert times(cut).compute == pytest.approx(times(alone).compute * 1.0, rel=0.1)


def test_small_products_are_slower_by_their_operands():
    costs = Costs(MODEL, BASE, H100.sized(8), constants())
    small = Transformer(32, 512, 8, 1000)
    other = replace(costs, model=small)
    rate = [
        c.product(c.model.dense[0], 4096) / (c.model.dense[0].n * c.model.dense[0].k)
        for c in (costs, other)
    ]
    assert rate[1] > 1.2 * rate[0]
    assert other.passes(False)[0].total >= 0.99 * constants().get("launch")


def test_types_have_their_own_rates():
    assert times(replace(BASE, precision="fp8")).total < times().total
    assert times(replace(BASE, precision="fp32")).total > times().total


def test_exchanges_in_pieces_hide_behind_their_products():
    whole = replace(BASE, data=1, tensor=8)
    pieces = times(replace(whole, in_pieces=True)).exposed
    assert 0.0 < pieces < 0.6 * times(whole).exposed
    assert times(replace(BASE, in_pieces=True)) == times(BASE)  # there is nothing to exchange


def test_weights_of_8_bits_are_gathered_as_such():
    costs = [
        Costs(MODEL, replace(BASE, sharding=ZERO1, precision=kind), H100, constants())
        for kind in ("bf16", "fp8", "fp8_amp", "fp32")
    ]
    assert [c.gathered_size for c in costs] == [2, 1, 2, 4]
    assert [c.reduced_size for c in costs] == [4, 4, 4, 4]
    assert replace(costs[0], layout=replace(BASE, reduced=2)).reduced_size == 2


def test_a_host_launches_each_of_its_experts():
    small = Transformer(4, 256, 4, 1000, experts=64, top_k=1, expert_ffn=64)
    layout = Layout(8, 128, 1, 8)
    alone, spread = times(layout, small).compute, times(replace(layout, expert=8), small).compute
    assert alone > 3 * spread


def test_nobody_waits_for_a_single_group():
    lone, two = Layout(1, 128, 1, 1, 4), Layout(2, 128, 1, 2, 4)
    small = Transformer(2, 64, 4, 100)
    last = [
        Costs(small, lay, H100.sized(lay.devices), constants(), "sailor").times().optimizer
        for lay in (lone, two)
    ]
    assert last[1] > last[0] + 0.5 * constants().get("step", "sailor")
