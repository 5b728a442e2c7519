"""The parts of ``scripts/gpu``, rehearsed on the stand-in for devices, in this process.

Where a part has hundreds of cases, some of them; `scripts/gpu --platform double` runs them all."""

from __future__ import annotations

import pytest
from gpuproof import run
from gpuproof.journal import read
from gpuproof.parts import PARTS

from disttrain.backends.device import platform as places

SHARDS = {"primitives": 160, "kernels": 12, "ranks": 4, "training": 12}


@pytest.fixture
def offered():
    """What a part offers as "cuda" is taken back."""
    before = places.offer("cuda", None)
    places.offer("cuda", *before)
    yield
    places.offer("cuda", *before)


@pytest.mark.parametrize("name", [p.name for p in PARTS if p.name != "environment"])
def test_a_part_holds_on_the_stand_in(offered, tmp_path, name):
    path = tmp_path / "journal.jsonl"
    shards = SHARDS.get(name, 1)
    assert run.main([name, str(path), "double", str(1 % shards), str(shards)]) == 0
    told = read(path)
    assert told.ended and told.checks
    assert [(c["name"], c["detail"]) for c in told.failures] == []
