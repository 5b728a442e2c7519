"""Drawn programs of elementwise operations and their gradients: compiled ones give eager's bits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from disttrain.compile.passes import region
from support.cases.drawn_chains import difference, draw, draw_layouts

PARTS, EACH = 6, 40
LAYOUTS = 120


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_chains_have_eagers_bits(part, monkeypatch):
    monkeypatch.setattr(region, "_RUNS", part % 3)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(part * EACH, (part + 1) * EACH):
            why = difference(*draw(seed), budget=1.0 if part < 3 else 0.0)
            assert why is None, f"seed {seed}\n{why}"


def test_compiled_chains_lie_as_eagers_do(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(LAYOUTS):
            why = difference(*draw_layouts(seed))
            assert why is None, f"seed {seed}\n{why}"
