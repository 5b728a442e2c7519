"""Memory of a device: by hand for small cases, and what divides what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import read_cluster
from disttrain.distributed.planning.constants import constants
from disttrain.distributed.planning.costs import Costs
from disttrain.distributed.planning.layouts import FSDP, FULL, HSDP, NONE, SELECTIVE, ZERO1, Layout
from disttrain.distributed.planning.memory import Memory
from disttrain.distributed.planning.transformer import Transformer

H100 = read_cluster(Path(__file__).parents[3] / "configs" / "clusters" / "h100x8x64.toml")
MODEL = Transformer(8, 1024, 16, 32000, gated=True, ffn=2816, tied=False)
BASE = Layout(64, 2048, 1, data=8)


def memory(layout=BASE, model=MODEL):
    return Memory(Costs(model, layout, H100.sized(layout.devices), constants()))


def held(layout=BASE, model=MODEL):
    return memory(layout, model).held()


def test_weights_gradients_and_state_by_hand():
    n = MODEL.weights - MODEL.hidden  # the last norm is not counted
    assert held().weights == pytest.approx(2 * n, rel=1e-3)
    assert (held().gradients, held().optimizer) == pytest.approx((2 * n, 12 * n), rel=1e-3)
    amp = held(replace(BASE, precision="bf16_amp", sharding=FSDP))
    assert amp.weights + amp.gradients + amp.optimizer == pytest.approx(16 * n / 8, rel=1e-3)
    zero = held(replace(BASE, sharding=ZERO1))
    assert zero.optimizer == pytest.approx(12 * n / 8, rel=1e-3)
    part = held(replace(BASE, sharding=HSDP, replicas=2))
    assert part.weights == pytest.approx(2 * n / 4, rel=1e-3)


def test_what_a_layer_saves_by_hand():
    h, f, tokens = 1024, 2816, 2048
    assert memory().saved(False) == tokens * 2 * (4 * h + 4 * h + 3 * f)
    cut = memory(replace(BASE, tensor=2)).saved(False)
    assert cut == memory().saved(False) / 2
    kept = memory(replace(BASE, tensor=2, sequence=False)).saved(False)
    assert kept == tokens * 2 * (4 * h + 2 * h + 1.5 * f)
    scores = memory(replace(BASE, fused=False)).saved(False) - memory().saved(False)
    assert scores == pytest.approx(tokens * 2 * (2.5 * 16 * 2048 + h))


def test_computing_again_keeps_inputs():
    assert held(replace(BASE, recompute=FULL)).activations < held().activations / 3


def test_what_is_cheap_is_not_kept():
    some = held(replace(BASE, recompute=SELECTIVE)).activations
    assert held(replace(BASE, recompute=FULL)).activations < some < 0.8 * held().activations
    scores = [
        held(replace(BASE, fused=False, recompute=how)).activations for how in (NONE, SELECTIVE)
    ]
    assert scores[1] < scores[0] / 2


def test_first_stages_keep_more_micro_batches():
    layout = replace(BASE, data=2, pipeline=4)
    assert [memory(layout).in_flight(i) for i in range(4)] == [4, 3, 2, 1]
    assert memory(replace(layout, batch=2)).in_flight(0) == 1
    assert memory(replace(layout, chunks=2)).in_flight(0) == 5.5


def test_experts_are_divided_once():
    model = Transformer(8, 1024, 16, 32000, experts=16, top_k=2, expert_ffn=1024)
    whole = held(replace(BASE, sharding=FSDP), model)
    spread = held(replace(BASE, sharding=FSDP, expert=4), model)
    assert spread.weights == pytest.approx(whole.weights, rel=0.01)
    assert held(replace(BASE, expert=4), model).weights < held(BASE, model).weights / 2


def test_the_parts_make_the_whole():
    found = held(replace(BASE, data=2, tensor=2, pipeline=2, sharding=ZERO1))
    assert found.total == pytest.approx(
        found.weights + found.gradients + found.optimizer + found.activations + found.buffers
    )
