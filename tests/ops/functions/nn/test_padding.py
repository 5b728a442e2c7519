"""Padding by a constant, and by what is there."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.functions.nn import padding

X = np.arange(12.0).reshape(3, 4)


def test_a_constant_goes_around():
    got = padding.pad(dt.tensor(X), (1, 2, 0, 1), value=7.0)
    np.testing.assert_array_equal(
        got.numpy(), np.pad(X, ((0, 1), (1, 2)), "constant", constant_values=7.0)
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_elements_of_its_own_go_around(mode):
    name = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    got = padding.extended(dt.tensor(X), (1, 2, 2, 0), mode)
    np.testing.assert_array_equal(got.numpy(), np.pad(X, ((2, 0), (1, 2)), name))
    assert padding.extended(dt.tensor(X), (0, 0), mode).tolist() == X.tolist()


@pytest.mark.parametrize(("call", "said"), [
    (lambda x: padding.pad(x, (1,)), "needed pairs"),
    (lambda x: padding.pad(x, (-1, 0)), "negative"),
    (lambda x: padding.pad(x, (1, 1), "reflect"), "nn.functional has more"),
    (lambda x: padding.extended(x, (4, 0), "reflect"), "less than the corresponding"),
])  # fmt: skip
def test_wrong_widths_are_refused(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(dt.tensor(X))
