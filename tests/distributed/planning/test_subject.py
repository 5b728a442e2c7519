"""From a program's model to what each strategy needs: batches, types, the table."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
from disttrain import nn, optim
from disttrain.distributed import planning
from disttrain.distributed.planning.subject import as_json, needs_of, table
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated

NUMBERS = 16 * 32 + 32 + 32 * 4 + 4


def build():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def loss(model, n):
    return model(dt.ones(n, 16, dtype=model[0].weight.dtype)).sum()


def subject(**more):
    given = {
        "build": build, "loss": loss, "batch_size": 24,
        "optimizer": optim.AdamW, "is_unit": lambda m: isinstance(m, nn.Linear),
    }  # fmt: skip
    return planning.Subject(**{**given, **more})


def by_name(*args, **more):
    return {n.strategy: n for n in needs_of(*args, **more)}


def test_models_are_built_without_memory_once_for_each_batch_and_type():
    seen = []

    def watched():
        model = build()
        seen.append(model[0].weight.is_meta)
        return model

    found = by_name(subject(build=watched), 4)
    assert all(seen) and len(seen) <= 3
    assert found["single"].parameters == 4 * NUMBERS
    assert found["single"].optimizer >= 2 * 4 * NUMBERS
    assert found["fsdp"].parameters * 4 == pytest.approx(4 * NUMBERS, rel=0.1)


def test_the_batch_is_of_all_ranks_together():
    found = by_name(subject(), 4)
    assert found["single"].batch == 24 and found["ddp"].batch == 6
    with pytest.raises(ConfigError, match="a batch of 24 for 5 ranks given; needed is a multiple"):
        needs_of(subject(), 5)


def test_virtual_shards_run_one_after_the_other():
    plain, sharded = by_name(subject(), 2), by_name(subject(virtual_shards=8), 2)
    assert sharded["ddp"].activations < plain["ddp"].activations
    assert by_name(subject(virtual_shards=1), 2)["ddp"] == plain["ddp"]


def test_only_sharded_strategies_compute_in_another_type_and_weights_keep_theirs():
    plain, low = by_name(subject(), 2), by_name(subject(compute=dt.bfloat16), 2)
    assert low["ddp"] == plain["ddp"]
    assert low["fsdp"].parameters == plain["fsdp"].parameters
    assert low["fsdp"].activations < plain["fsdp"].activations


def test_layers_are_split_in_two_where_they_can_be():
    split = {"0": "colwise", "2": "rowwise"}
    assert "fsdp x tp" not in by_name(subject(), 4)
    assert "fsdp x tp" in by_name(subject(split=split), 4)
    assert "fsdp x tp" not in by_name(subject(split=split), 3)


def test_the_table_has_a_line_for_each_and_says_what_fits():
    needs = needs_of(subject(), 4)
    lines = table(needs).splitlines()
    assert lines[0].split()[:3] == ["strategy", "ranks", "batch"] and "fits" not in lines[0]
    assert len(lines) == 1 + len(needs) + sum(bool(n.note) for n in needs)
    middle = sorted(n.total for n in needs)[len(needs) // 2]
    lines = table(needs, middle).splitlines()
    for need, line in zip(needs, lines[1:], strict=False):
        assert line.split()[-1] == ("yes" if need.total <= middle else "no"), line
        assert line.startswith(need.strategy + "*" * bool(need.note))
    assert len({len(line) for line in lines[: 1 + len(needs)]}) == 1
    rows = json.loads(as_json(needs, middle))
    assert [r["total"] for r in rows] == [n.total for n in needs]
    assert [r["fits"] for r in rows] == [n.total <= middle for n in needs]
