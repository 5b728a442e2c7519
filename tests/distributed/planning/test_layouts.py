"""Layouts: what follows from their degrees, and what their pipelines wait for."""

from __future__ import annotations

import pytest

from disttrain.distributed.planning.layouts import HSDP, Layout, bubble


def test_micro_batches_and_tokens():
    layout = Layout(64, 1024, 4, data=4, tensor=2, context=2, pipeline=2)
    assert (layout.devices, layout.micros, layout.tokens) == (32, 4, 4 * 512)
    uneven = Layout(168, 1024, 11, data=8)  # 21 sequences: 11, then 10
    assert uneven.micros == 2 and uneven.tokens == 10.5 * 1024


def test_shards_and_names():
    layout = Layout(64, 1024, data=8, tensor=2, sharding=HSDP, replicas=2)
    assert layout.shards == 4 and layout.name == "hsdp dp8 tp2 (2 replicas)"
    assert Layout(1, 8).name == "single" and Layout(1, 8).shards == 1


def test_layers_of_stages():
    assert Layout(8, 8, pipeline=4).stage_layers(10) == (3, 3, 2, 2)
    assert Layout(8, 8, pipeline=2, split=(4, 6)).stage_layers(10) == (4, 6)


@pytest.mark.parametrize(("ranks", "chunks", "micros", "waits"), [
    (1, 1, 8, 0.0), (4, 1, 8, 3.0), (4, 1, 100, 3.0), (4, 2, 8, 1.5), (8, 4, 64, 7 / 4),
    (4, 1, 1, 3.0),
])  # fmt: skip
def test_bubbles_are_those_of_the_schedules(ranks, chunks, micros, waits):
    """1F1B waits for ranks - 1 micro-batches (Narayanan et al., 2021), and with several stages of
    a rank for that part of them."""
    assert bubble(ranks, chunks, micros) == pytest.approx(waits, abs=0.2)
