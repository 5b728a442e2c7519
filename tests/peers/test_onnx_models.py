"""300 models drawn from seeds, written as ONNX and run by onnxruntime: the same numbers.
A share of them, unless ALL_DRAWS=1."""

from __future__ import annotations

import pytest

from support.cases.drawn_models import drawn
from support.draws import share
from support.onnx_runs import written

pytestmark = pytest.mark.peer
OPSETS = (23, 18, 20, 17, 21, 25, 26)


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_drawn_models(first):
    for seed in share(range(first, first + 25), 3):
        made = drawn(seed)
        try:
            written(made.model, *made.given, dynamic=made.dynamic, opset_version=OPSETS[seed % 7])
        except Exception as error:
            raise AssertionError(f"the model of seed {seed}: {error}") from error
