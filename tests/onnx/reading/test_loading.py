"""Hostile models: flipped, cut and rewritten ones are refused by name, in bounded time."""

from __future__ import annotations

import pytest

from support.onnx_hostile import KINDS, attack


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_are_refused_or_run(kind):
    outcomes = attack(kind, range(60))
    assert set(outcomes) <= {"ran", "refused", "not run"}
    assert outcomes["refused"] > 0
