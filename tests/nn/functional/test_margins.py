"""Margin losses over classes: by their sums, their labels and what they refuse."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError, DTypeError, ShapeError

F = nn.functional
X = np.random.default_rng(0).normal(size=(3, 4))


def short_of(x, label, others, margin, p=1):
    return sum(max(0.0, margin - x[label] + x[j]) ** p for j in others) / len(x)


@pytest.mark.parametrize("p", [1, 2])
def test_one_label_against_the_other_classes(p):
    labels, weight = [2, 0, 3], [0.5, 1.0, 2.0, 3.0]
    wanted = [
        weight[y] * short_of(x, y, [j for j in range(4) if j != y], 0.7, p)
        for x, y in zip(X, labels, strict=True)
    ]
    args = dt.tensor(X), dt.tensor(labels), p, 0.7, dt.tensor(weight, dtype=dt.float64)
    np.testing.assert_allclose(F.multi_margin_loss(*args, reduction="none").numpy(), wanted)
    module = nn.MultiMarginLoss(p, 0.7, args[-1], reduction="sum")
    assert module(*args[:2]).item() == pytest.approx(sum(wanted))
    assert F.multi_margin_loss(dt.tensor(X[0]), dt.tensor(2), reduction="none").shape == ()


def test_labels_end_at_the_first_minus_one():
    labels = [[3, 1, -1, 0], [-1, 2, 2, 2], [0, 1, 2, 3]]
    known = [[3, 1], [], [0, 1, 2, 3]]
    wanted = [
        sum(short_of(x, y, [j for j in range(4) if j not in ys], 1.0) for y in ys)
        for x, ys in zip(X, known, strict=True)
    ]
    got = nn.MultiLabelMarginLoss(reduction="none")(dt.tensor(X), dt.tensor(labels))
    np.testing.assert_allclose(got.numpy(), wanted)
    one = F.multilabel_margin_loss(dt.tensor(X[0]), dt.tensor(labels[0]))
    assert one.item() == pytest.approx(wanted[0])


def test_several_labels_smoothly():
    target = (X > 0.2).astype(float)
    weight = np.array([1.0, 2.0, 0.5, 0.0])
    each = np.log1p(np.exp(-X)) * target + np.log1p(np.exp(X)) * (1 - target)
    loss = nn.MultiLabelSoftMarginLoss(dt.tensor(weight))
    got = loss(dt.tensor(X), dt.tensor(target))
    assert got.item() == pytest.approx((each * weight).mean())


def test_derivatives():
    x, y = dt.tensor(X).requires_grad_(), dt.tensor([2, 0, 3])
    assert dt.autograd.gradcheck(lambda x: F.multi_margin_loss(x, y, 2), (x,))
    labels = dt.tensor([[3, 1, -1, 0], [-1, 2, 2, 2], [0, 2, -1, -1]])
    assert dt.autograd.gradcheck(lambda x: F.multilabel_margin_loss(x, labels), (x,))
    edge = dt.tensor([[0.0, 1.0]], dtype=dt.float64).requires_grad_()
    F.multi_margin_loss(edge, dt.tensor([1])).backward()
    assert edge.grad.tolist() == [[0.0, 0.0]]  # nothing is missing at the margin itself


def test_wrong_targets_are_refused():
    x = dt.tensor(X)
    with pytest.raises(ConfigError, match="target out of range: classes 0 to 5"):
        F.multi_margin_loss(x, dt.tensor([0, 1, 5]))
    with pytest.raises(ShapeError, match=r"Expected target size \[3\], but got \[2\]"):
        F.multi_margin_loss(x, dt.tensor([0, 1]))
    with pytest.raises(DTypeError):
        F.multi_margin_loss(x, dt.tensor([0.0, 1.0, 2.0]))
    with pytest.raises(ConfigError, match="p == 1 and p == 2"):
        nn.MultiMarginLoss(3)
    with pytest.raises(ShapeError, match="inconsistent weight size"):
        F.multi_margin_loss(x, dt.tensor([0, 1, 2]), weight=dt.ones(3))
    with pytest.raises(ShapeError, match="inconsistent target size"):
        F.multilabel_margin_loss(x, dt.tensor([0, 1]))
    with pytest.raises(ConfigError, match="out of range"):
        F.multilabel_margin_loss(x[0], dt.tensor([3, 4, -1, -1]))
