"""Cross entropy in one primitive, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.errors import DimError
from disttrain.ops.primitives import loss

RNG = np.random.default_rng(0)


def plain(a, target, weight, ignore, smoothing):
    logs = (
        a
        - np.log(np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True))
        - a.max(1, keepdims=True)
    )
    weight = np.ones(a.shape[1]) if weight is None else weight
    rows, weights = [], []
    for row, t in zip(logs, target, strict=True):
        if t == ignore:
            rows.append(0.0)
            weights.append(0.0)
            continue
        smooth = -(weight * row).sum() * smoothing / len(row)
        rows.append(-(1 - smoothing) * weight[t] * row[t] + smooth)
        weights.append(weight[t])
    return np.array(rows), np.array(weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_it_is_the_formula(smoothing, weighted, reduction):
    a, target = RNG.normal(size=(6, 5)) * 3, np.array([0, 4, 2, -100, 1, 2])
    weight = RNG.uniform(0.5, 2, 5) if weighted else None
    rows, weights = plain(a, target, weight, -100, smoothing)
    wanted = {"none": rows, "sum": rows.sum(), "mean": rows.sum() / weights.sum()}[reduction]
    how = {"ignore_index": -100, "smoothing": smoothing, "reduction": reduction}
    found, lse, count = loss.cross_entropy_rows.forward(a, target, weight, **how)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(lse, np.log(np.exp(a).sum(1)))
    np.testing.assert_allclose(count, weights.sum(), rtol=1e-6)


def test_its_gradient_by_differences():
    a, target = RNG.normal(size=(4, 3)), np.array([0, 2, -1, 1])
    how = {"ignore_index": -1, "smoothing": 0.1}
    _, lse, _ = loss.cross_entropy_rows.forward(a, target, None, **how, reduction="sum")
    found = loss.cross_entropy_backward.forward(np.array(1.0), a, target, None, lse, **how)
    for at in np.ndindex(a.shape):
        ends = []
        for step in (1e-6, -1e-6):
            b = a.copy()
            b[at] += step
            ends.append(plain(b, target, None, -1, 0.1)[0].sum())
        np.testing.assert_allclose(found[at], (ends[0] - ends[1]) / 2e-6, atol=1e-7)


def test_targets_out_of_range_are_told():
    with pytest.raises(DimError, match=r"target 7 is out of range; with 3 classes"):
        loss.cross_entropy_rows.forward(
            np.zeros((2, 3)), np.array([0, 7]), None,
            ignore_index=-100, smoothing=0.0, reduction="mean",
        )  # fmt: skip
