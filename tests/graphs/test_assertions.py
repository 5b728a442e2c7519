"""Assertions on tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.graphs import Graph, assertions

X = dt.tensor([1.0, 5.0])


@pytest.mark.parametrize(("call", "message"), [
    (lambda: assertions.compared("<", X, dt.tensor([2.0, 3.0]), "why"),
     r"why\nCondition x < y did not hold"),
    (lambda: assertions.true(X > 2, 7, "b"), r"to be true. Summarized data: 7\nb"),
    (lambda: assertions.finite(dt.tensor([float("nan")]), "bad"), "bad : Tensor had NaN values"),
    (lambda: assertions.finite(dt.tensor([float("inf")])), "had Inf values"),
    (lambda: assertions.shapes([(dt.ones(2, 3), ("n", "n"))]), "must be"),
    (lambda: assertions.rank(X, 2), "must have rank 2.  Received rank 1"),
])  # fmt: skip
def test_what_does_not_hold(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_holds():
    assertions.compared("!=", X, X + 1)
    assertions.true(X > 0)
    assertions.shapes([(dt.ones(2, 2), ("n", "n"))])
    assertions.rank(X, 1)
    assertions.rank(5, 0)
    assertions.rank([[1, 2]], 2)
    assertions.shapes([([[1, 2]], (1, "n")), (dt.ones(2), ("n",))])
    assertions.kind(X, dt.float32)
    with pytest.raises(TypeError, match=r"type disttrain\.int32; got disttrain\.float32"):
        assertions.kind(X, dt.int32)
    assert assertions.finite(X).tolist() == X.tolist()
    with Graph("g"):
        assert not dt.isfinite(assertions.finite(dt.tensor([float("nan")]))).all()
