"""The cross entropy of a linear map in parts equals that of the whole."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn
from disttrain.errors import ConfigError


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("rows", [1, 4, 20, None])
def test_parts_are_the_whole(probabilities, weighted, reduction, rows):
    dt.manual_seed(0)
    target = (
        dt.rand(9, 5).softmax(1) if probabilities else dt.tensor([0, 1, 4, 2, -100, 3, 3, 0, 1])
    )
    weight = dt.rand(5) if weighted else None
    results = []
    given = [dt.rand(9, 3), dt.rand(5, 3), dt.rand(5)]
    for options in (None, nn.LinearCrossEntropyOptions(batch_chunk_size=rows)):
        x, w, b = (t.clone().requires_grad_() for t in given)
        loss = F.linear_cross_entropy(
            x, w, target, linear_bias=b, weight=weight, reduction=reduction, label_smoothing=0.1,
            options=options,
        )  # fmt: skip
        loss.sum().backward()
        results.append([loss, x.grad, w.grad, b.grad])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and dt.allclose(a, b, atol=1e-5)
    logits = F.linear(given[0], given[1], given[2])
    want = F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=0.1)
    assert dt.allclose(results[0][0], want)


def test_the_module_has_the_map_and_more_dimensions():
    loss = nn.LinearCrossEntropyLoss(3, 5, out_features=(2,), bias=True, ignore_index=4)
    assert loss.linear.weight.shape == (10, 3)
    target = dt.tensor([[0, 4], [2, 1]])
    x = dt.rand(2, 3)
    logits = loss.linear(x).reshape(2, 5, 2)
    assert dt.allclose(loss(x, target), F.cross_entropy(logits, target, ignore_index=4))
    with pytest.raises(ConfigError, match=r"needed \[5\]"):
        nn.LinearCrossEntropyLoss(3, 5, weight=dt.ones(4))
    with pytest.raises(ConfigError, match="needed at least 1"):
        nn.LinearCrossEntropyOptions(batch_chunk_size=0)
