"""Which layouts are looked at, which fit, and in what order they are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import read_cluster
from disttrain.distributed.planning.constants import constants
from disttrain.distributed.planning.ranking import (
    USABLE,
    Job,
    as_json,
    as_text,
    divisors,
    layouts,
    rank,
)
from disttrain.distributed.planning.transformer import Transformer
from disttrain.errors import ConfigError

H100 = read_cluster(Path(__file__).parents[3] / "configs" / "clusters" / "h100x8x64.toml")
MODEL = Transformer(32, 4096, 32, 128256, 8, 128, 14336, True, False)
JOB = Job(MODEL, H100.sized(16), 64, 4096)


def test_layouts_fill_the_devices_and_divide_what_they_must():
    seen = list(layouts(JOB))
    assert len(set(seen)) == len(seen) > 100
    for layout in seen:
        assert layout.devices == 16 and 64 % (layout.data * layout.micro) == 0
        assert MODEL.groups % layout.tensor == 0 and layout.tensor <= 8
        if layout.chunks > 1:
            assert MODEL.layers % (layout.pipeline * layout.chunks) == 0
    names = {layout.name for layout in seen}
    assert {"ddp dp16", "zero1 dp16", "fsdp dp16", "hsdp dp16 (2 replicas)", "ddp dp2 tp8",
            "fsdp dp4 tp4", "ddp dp2 tp2 pp4"} <= names  # fmt: skip


def test_long_sequences_and_experts_add_their_degrees():
    long = Job(MODEL, H100.sized(8), 8, 65536)
    assert {layout.context for layout in layouts(long)} == {1, 2, 4, 8}
    experts = Transformer(8, 1024, 16, 1000, experts=8, top_k=2, expert_ffn=512)
    found = {layout.expert for layout in layouts(Job(experts, H100.sized(8), 8, 1024))}
    assert found == {1, 2, 4, 8}


def test_the_fastest_that_fits_is_first_and_others_say_why():
    ranking = rank(JOB, constants())
    seconds = [c.times.total for c in ranking.best]
    room = USABLE * H100.device.memory
    assert seconds == sorted(seconds) and all(c.held.total <= room for c in ranking.best)
    assert ranking.ruled_out and all(c.held.total > room for c in ranking.ruled_out)
    names = [c.layout.name for c in ranking.ruled_out]
    assert "ddp dp16" in names  # 8 billion weights and their state do not fit
    assert all(0.05 < c.mfu < 0.8 for c in ranking.best[:5])


def test_text_and_json_say_the_same():
    ranking = rank(JOB, constants())
    lines = as_text(ranking, 3).splitlines()
    assert lines[0].startswith("8.03 billion weights on 16 h100")
    assert lines[2].startswith(ranking.best[0].layout.name)
    assert any(line.startswith("ruled out: ") and "at the least" in line for line in lines)
    table = json.loads(as_json(ranking))
    first = table["best"][0]
    assert first["step_seconds"] == ranking.best[0].times.total and first["fits"]
    assert first["memory_bytes"]["total"] == ranking.best[0].held.total
    assert len(table["best"]) == len(ranking.best)


def test_nothing_fits():
    huge = Job(Transformer(126, 16384, 128, 128256, 8, 128, 53248, True, False),
               H100.sized(8), 8, 4096)  # fmt: skip
    ranking = rank(huge, constants())
    assert not ranking.best and "none fits" in as_text(ranking)


@pytest.mark.parametrize(("change", "message"), [
    ({"batch": 0}, "batch=0 given"),
    ({"seq": -1}, "seq=-1 given"),
    ({"model": replace(MODEL, positions=64)}, "seq=128 given; the model has positions=64"),
    ({"precision": "int8"}, "precision='int8' given; h100 has bf16, fp32, fp8"),
])  # fmt: skip
def test_wrong_jobs(change, message):
    given = {"model": MODEL, "machines": H100, "batch": 8, "seq": 128, **change}
    with pytest.raises(ConfigError, match=message):
        Job(**given)


def test_a_batch_that_nothing_divides():
    prime = Transformer(7, 62, 31, 100)  # 7 layers and 31 heads: no degree of 16 but of replicas
    with pytest.raises(ConfigError, match="a batch of 3 cannot be divided among 16"):
        rank(Job(prime, H100.sized(16), 3, 128), constants())


def test_divisors():
    assert divisors(12, 6) == [1, 2, 3, 4, 6]
