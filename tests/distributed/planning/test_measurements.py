"""The published tables: their sources, their rows, and that the halves are fixed."""

from __future__ import annotations

from collections import Counter

import pytest

from disttrain.distributed.planning.constants import DATA
from disttrain.distributed.planning.measurements import TABLES, cases

ALL = cases()


@pytest.mark.parametrize("path", sorted(DATA.glob("*.csv")), ids=lambda p: p.stem)
def test_tables_say_where_they_are_from(path):
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    text = "\n".join(head)
    assert "source: github.com/" in text and "licence: " in text and "commit" in text
    assert path.stat().st_size < 100_000


def test_rows_are_those_of_the_tables():
    assert Counter(c.table for c in ALL) == {
        "llm_foundry": 201, "vtrain": 109, "sailor": 26, "simumax": 43, "megatron_bridge": 27,
    }  # fmt: skip
    assert set(TABLES) == {c.table for c in ALL}
    assert all(c.seconds > 0 and c.layout.devices >= 1 for c in ALL)
    assert sum(c.memory > 0 for c in ALL) == 26 + 43


def test_models_have_the_published_weights():
    sizes = {c.key.split()[2]: c.model.weights for c in ALL if c.table == "llm_foundry"
             and " 2048 " in c.key}  # fmt: skip
    # NumParams of the source, at sequences of 2048
    told = {
        "125m": 125311488,
        "1b": 1315950592,
        "7b": 6658859008,
        "70b": 64862437376,
    }
    for name, weights in told.items():
        assert sizes[name] == pytest.approx(weights, rel=0.01)


def test_the_halves_never_change():
    """A row is scored by the hash of its key; these counts hold the split as it was fitted."""
    scored = Counter(c.table for c in ALL if c.scored)
    assert scored == {
        "llm_foundry": 99, "vtrain": 57, "sailor": 16, "simumax": 23, "megatron_bridge": 12,
    }  # fmt: skip
    assert len({(c.table, c.key) for c in ALL}) >= len(ALL) - 1  # the source has one row twice
