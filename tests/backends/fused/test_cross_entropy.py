"""The kernel of cross entropy: rows of logits and class numbers."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.cross_entropy import cross_entropy, cross_entropy_backward
from disttrain.errors import DimError


@pytest.mark.parametrize("classes", [1, 2, 10, 65, 1000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_of_any_width(classes, kind):
    rng = np.random.default_rng(classes)
    a, target = (rng.normal(size=(9, classes)) * 4).astype(kind), rng.integers(0, classes, 9)
    losses, lse, total, count = cross_entropy(a, target)
    wide = a.astype("f8")
    sums = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
    wanted = sums - wide[np.arange(9), target]
    rtol = 1e-5 if kind is np.float32 else 1e-12
    np.testing.assert_allclose(losses, wanted, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(lse, sums, rtol=1e-6)
    np.testing.assert_allclose([total, count], [wanted.sum(), 9], rtol=1e-5, atol=1e-6)
    g = cross_entropy_backward(0.5, a, target, lse)
    chances = np.exp(wide - sums[:, None])
    chances[np.arange(9), target] -= 1
    np.testing.assert_allclose(g, 0.5 * chances, atol=1e-5)


def test_rows_that_are_passed_over_have_no_gradient():
    a, target = np.zeros((3, 4)), np.array([1, -100, 3])
    losses, lse, _, count = cross_entropy(a, target)
    assert losses[1] == 0 and count == 2
    assert not cross_entropy_backward(1.0, a, target, lse)[1].any()


def test_a_wrong_class_is_named():
    with pytest.raises(DimError, match="target -3 is out of range"):
        cross_entropy(np.zeros((2, 4)), np.array([0, -3]))
