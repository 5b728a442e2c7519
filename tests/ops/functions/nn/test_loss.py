"""Cross entropy and negative log likelihood, against formulas written out."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import ops  # noqa: F401  (attaches the operators)
from disttrain.core import wrap
from disttrain.errors import ConfigError, DimError, DTypeError, ShapeError
from disttrain.ops.functions.nn import loss
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4))
T = np.array([1, 3, 0, 2, 3])
W = np.array([0.5, 2.0, 1.0, 3.0])


def _t(value):
    return wrap(np.array(value))


def _log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def _reference(x, target, weight, ignore, reduction, smoothing):
    logp, classes = _log_softmax(x), x.shape[1]
    weight = np.ones(classes) if weight is None else weight
    losses, weights = np.zeros(len(x)), np.zeros(len(x))
    for i, t in enumerate(target):
        if t != ignore:
            uniform = -(logp[i] * weight).sum() / classes
            losses[i] = -(1 - smoothing) * weight[t] * logp[i, t] + smoothing * uniform
            weights[i] = weight[t]
    if reduction == "none":
        return losses
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("ignore", [-100, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction, smoothing, ignore, weighted):
    weight = W if weighted else None
    options = {"ignore_index": ignore, "reduction": reduction, "label_smoothing": smoothing}

    def fn(x):
        return loss.cross_entropy(x, _t(T), None if weight is None else _t(weight), **options)

    want = _reference(X, T, weight, ignore, reduction, smoothing)
    np.testing.assert_allclose(fn(_t(X)).array, want, rtol=1e-12)
    check_gradients(fn, X)


def test_more_dimensions_and_a_single_sample():
    x, t = RNG.normal(size=(2, 4, 3)), np.array([[0, 1, 2], [3, 3, -100]])
    rows = x.transpose(0, 2, 1).reshape(-1, 4)
    want = _reference(rows, t.reshape(-1), None, -100, "none", 0.0).reshape(2, 3)
    got = loss.cross_entropy(_t(x), _t(t), reduction="none")
    np.testing.assert_allclose(got.array, want, rtol=1e-12)
    logp = _t(_log_softmax(rows).reshape(2, 3, 4).transpose(0, 2, 1))
    np.testing.assert_allclose(loss.nll_loss(logp, _t(t), reduction="none").array, want)
    one = loss.cross_entropy(_t(X[0]), _t(T[0]))
    np.testing.assert_allclose(one.array, -_log_softmax(X[:1])[0, T[0]])
    assert one.ndim == 0


def test_probabilities_as_targets():
    p = RNG.dirichlet(np.ones(4), 5)
    want = -(_log_softmax(X) * (0.9 * p + 0.025) * W).sum(1)
    got = loss.cross_entropy(_t(X), _t(p), _t(W), label_smoothing=0.1)
    np.testing.assert_allclose(got.array, want.mean())
    check_gradients(lambda x, q: loss.cross_entropy(x, q, reduction="sum"), X, p)


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_narrow_types(kind):
    got = loss.cross_entropy(_t(X.astype(kind)), _t(T.astype(np.uint8)))
    assert got.array.dtype == kind
    np.testing.assert_allclose(got.array, _reference(X, T, None, -100, "mean", 0), rtol=2e-3)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("ignore", [-100, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction, ignore, weighted):
    weight = W if weighted else None

    def fn(x):
        given = None if weight is None else _t(weight)
        return loss.nll_loss(x, _t(T), given, ignore_index=ignore, reduction=reduction)

    want = _reference(X, T, weight, ignore, reduction, 0.0)
    np.testing.assert_allclose(fn(_t(_log_softmax(X))).array, want, rtol=1e-12)
    check_gradients(fn, X)


def test_nothing_to_average():
    nothing = _t(np.full(5, -100))
    assert np.isnan(loss.cross_entropy(_t(X), nothing).item())
    assert loss.cross_entropy(_t(X), nothing, reduction="sum").item() == 0


@pytest.mark.parametrize("fn", [loss.cross_entropy, loss.nll_loss])
def test_errors(fn):
    with pytest.raises(DimError, match="target 4 is out of range; with 4 classes"):
        fn(_t(X), _t([0, 1, 2, 3, 4]))
    with pytest.raises(ShapeError, match=r"target of shape \[4\]"):
        fn(_t(X), _t(T[:4]))
    with pytest.raises(ShapeError, match="for all 4 classes or no classes"):
        fn(_t(X), _t(T), _t(W[:3]))
    with pytest.raises(ConfigError, match="reduction"):
        fn(_t(X), _t(T), reduction="average")


def test_type_errors():
    with pytest.raises(DTypeError, match="class numbers"):
        loss.nll_loss(_t(X), _t(X))
    with pytest.raises(ShapeError, match="equal"):
        loss.cross_entropy(_t(X), _t(T * 1.0))
