"""Rows of a table, summed bag by bag."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.nn import functional as F

REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max}


def plain(table, bags, mode):
    rows = [REDUCE[mode](table[b], 0) if len(b) else np.zeros(table.shape[1]) for b in bags]
    return np.stack(rows)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_all_forms(mode):
    w = np.random.default_rng(0).standard_normal((6, 3))
    weight = dt.tensor(w)
    flat = [1, 5, 5, 2, 0, 3, 3]
    x, offsets = dt.tensor(flat), dt.tensor([0, 0, 3, 7])
    bags = [flat[:0], flat[:3], flat[3:], flat[7:]]
    assert np.allclose(F.embedding_bag(x, weight, offsets, mode=mode).numpy(), plain(w, bags, mode))
    ended = dt.tensor([0, 0, 3, 7, 7])
    out = F.embedding_bag(x, weight, ended, mode=mode, include_last_offset=True)
    assert np.allclose(out.numpy(), plain(w, bags, mode))
    two = F.embedding_bag(x[:6].view(2, 3), weight, mode=mode)
    assert np.allclose(two.numpy(), plain(w, [flat[:3], flat[3:6]], mode))
    left = [[n for n in b if n != 5] for b in bags]
    out = F.embedding_bag(x, weight, offsets, mode=mode, padding_idx=-1)
    assert np.allclose(out.numpy(), plain(w, left, mode))


def test_gradients():
    weight = dt.randn(5, 2, dtype=dt.float64, requires_grad=True)
    factors = dt.rand(4, dtype=dt.float64, requires_grad=True)
    x, offsets = dt.tensor([0, 3, 3, 1]), dt.tensor([0, 2])
    for mode in ("sum", "mean", "max"):
        run = lambda w: F.embedding_bag(x, w, offsets, mode=mode)  # noqa: B023
        assert dt.autograd.gradcheck(run, (weight,))
    run = lambda w, f: F.embedding_bag(x, w, offsets, mode="sum", per_sample_weights=f)
    assert dt.autograd.gradcheck(run, (weight, factors))


def test_of_equal_maxima_the_first_gets_the_gradient():
    weight = dt.ones(3, 1, requires_grad=True)
    F.embedding_bag(dt.tensor([[2, 1, 2]]), weight, mode="max").sum().backward()
    assert weight.grad.reshape(-1).tolist() == [0.0, 0.0, 1.0]


def test_the_module_and_its_sparse_gradient():
    bag = dt.nn.EmbeddingBag(10, 2, mode="sum", sparse=True, padding_idx=0)
    assert repr(bag) == "EmbeddingBag(10, 2, mode='sum', padding_idx=0)"
    assert bag.weight[0].tolist() == [0.0, 0.0]
    bag(dt.tensor([1, 7, 1, 0]), dt.tensor([0, 1])).sum().backward()
    assert bag.weight.grad.is_sparse and bag.weight.grad._indices().tolist() == [[1, 7, 1]]
    assert bag.weight.grad.to_dense().sum(1).tolist() == [0, 4, 0, 0, 0, 0, 0, 2, 0, 0]
    frozen = dt.nn.EmbeddingBag.from_pretrained(dt.ones(3, 2), mode="mean")
    assert not frozen.weight.requires_grad and frozen(dt.tensor([[1, 2]])).tolist() == [[1.0, 1.0]]
    nothing = F.embedding_bag(
        dt.tensor([0]), dt.ones(3, 2), dt.tensor([0, 1]), mode="max", padding_idx=0
    )
    assert nothing.tolist() == [[0.0, 0.0]] * 2


@pytest.mark.parametrize(
    "x, options, text",
    [
        ([1], {}, "offsets has to be a 1D Tensor"),
        ([[1]], {"offsets": dt.tensor([0])}, "if input is 2D, then offsets has to be None"),
        ([1], {"offsets": dt.tensor([1])}, r"offsets\[0\] has to be 0"),
        ([1], {"offsets": dt.tensor([[0]])}, "one of 2 dimensions"),
        ([[[1]]], {}, "1D or 2D Tensor, but got Tensor of dimension 3"),
        ([[1]], {"mode": "min"}, "mode has to be one of sum, mean or max"),
        ([[1]], {"per_sample_weights": dt.ones(1, 1)}, "only supported for mode='sum'"),
        ([[1]], {"mode": "sum", "per_sample_weights": dt.ones(1)}, "same shape as the input"),
        ([[1]], {"mode": "max", "scale_grad_by_freq": True}, "max mode"),
    ],
)
def test_what_has_no_meaning_is_refused(x, options, text):
    with pytest.raises(ValueError, match=text):
        F.embedding_bag(dt.tensor(x), dt.ones(3, 2), **options)
