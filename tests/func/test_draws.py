"""Random operations inside vmap, by ``randomness`` (compared by tests/peers/test_vmap_draws.py)."""

from __future__ import annotations

import pytest

import disttrain as dt
from support.cases.vmap_draws import DRAWS, MODES, run

BY_VALUE = {"bernoulli", "bernoulli, number", "poisson", "multinomial", "multinomial again",
            "normal, mean", "normal, std", "normal, both", "bernoulli_, tensor"}  # fmt: skip
INPLACE = {name for name in DRAWS if name.split(",")[0].endswith("_")} | {"made inside"}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DRAWS)
def test_examples_draw_what_they_are_told(name, mode, batched):
    dt.manual_seed(5)
    found = run(dt, name, mode, batched)
    whole_target = name in INPLACE and not (batched and name != "made inside")
    refused = mode == "error" or (mode == "different" and whole_target)
    refused = refused or (mode == "same" and batched and name in BY_VALUE)
    assert isinstance(found, RuntimeError) if refused else found is (mode == "same"), found
