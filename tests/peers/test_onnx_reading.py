"""All of ONNX's own cases, models drawn beside onnxruntime, and damaged models: of all these
``tests/onnx`` runs a few."""

from __future__ import annotations

import pytest

from support.onnx_backend import cases, check, is_left_out
from support.onnx_hostile import KINDS, attack
from support.onnx_models import drawn, ours, theirs

pytestmark = pytest.mark.peer


def test_the_cases_of_onnx():
    failed = {}
    for name in cases():
        if not is_left_out(name):
            try:
                check(name)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    assert not failed
    held = sum(not is_left_out(name) for name in cases())
    assert held > 0.98 * len(cases())


@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_drawn_models_are_those_of_onnxruntime(first):
    for seed in range(first, first + 50):
        found, differences = drawn(seed, ours, theirs, version=20 if seed % 3 else 13)
        assert not differences, [d[:4] for d in differences]
        assert found.nodes


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_are_refused_or_run(kind):
    outcomes = attack(kind, range(1000, 2250))
    assert set(outcomes) <= {"ran", "refused", "not run"}
