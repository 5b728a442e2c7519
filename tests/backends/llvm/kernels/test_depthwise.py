"""What generated code is told and makes: places between rows stay as they were."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.addresses import address
from disttrain.backends.fused.convolutions import depthwise as plans
from disttrain.backends.llvm.kernels import depthwise


def _plan(kind, size, out, kernel, stride):
    how = plans._how(size, out, kernel, stride, (1, 1), (1, 1))
    return plans._sums(np.dtype(kind), *how, 1, 1, False)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 7, 16, 33])
def test_nothing_is_written_around_a_plane(kind, stride, width):
    size, out = (5, width), tuple((n - 1) // stride + 1 for n in (5, width))
    plan = _plan(kind, size, out, (3, 3), (stride,) * 2)
    if plan is None:
        return
    x, w = np.ones(size, kind), np.ones((3, 3), kind)
    around = np.full((3, *out), 7, kind)
    buffer = np.zeros(plan.buffer + 64, np.uint8)
    at = -(-address(buffer) // 64) * 64
    plan.run(address(around[1]), address(x), address(w), address(plan.told), at, 0, 1)
    assert (around[[0, 2]] == 7).all()
    padded = np.pad(x, 1)
    wanted = [[padded[i : i + 3, j : j + 3].sum() for j in range(0, width, stride)]
              for i in range(0, 5, stride)]  # fmt: skip
    assert np.array_equal(around[1], wanted)


def test_the_numbers_of_a_plan_are_as_many_as_their_names():
    plan = _plan("f4", (5, 5), (5, 5), (3, 3), (1, 1))
    if plan is not None:
        assert len(plan.told) == len(depthwise.PLAN)
        assert len(plan.alive[-1]) == len(depthwise.PASS)
