"""Reductions over segments beside loops over slices."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError

PLAIN = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
EMPTY = {"sum": 0.0, "mean": np.nan, "max": -np.inf, "min": np.inf, "prod": 1.0}


@pytest.mark.parametrize("reduce", PLAIN)
@pytest.mark.parametrize("offsets", [False, True])
def test_segments_are_slices(reduce, offsets):
    data = np.random.default_rng(0).random((6, 2))
    x = dt.from_numpy(data).requires_grad_()
    how = {"offsets": [0, 2, 2, 6]} if offsets else {"lengths": [2, 0, 4]}
    out = dt.segment_reduce(x, reduce, **{k: dt.tensor(v) for k, v in how.items()})
    want = [PLAIN[reduce](data[:2], 0), np.full(2, EMPTY[reduce]), PLAIN[reduce](data[2:], 0)]
    np.testing.assert_allclose(out.detach().numpy(), want)
    out[::2].sum().backward()
    assert x.grad.shape == (6, 2) and x.grad.abs().sum() > 0


def test_rows_have_lengths_of_their_own_and_a_beginning_takes_part():
    data = dt.arange(12.0).reshape(2, 6)
    lengths = dt.tensor([[2, 1, 3], [1, 1, 4]])
    out = dt.segment_reduce(data, "sum", lengths=lengths, axis=1)
    assert out.tolist() == [[1.0, 2.0, 12.0], [6.0, 7.0, 38.0]]
    out = dt.segment_reduce(data[0], "max", lengths=lengths[0], initial=3.0)
    assert out.tolist() == [3.0, 3.0, 5.0]
    out = dt.segment_reduce(data[0], "mean", lengths=dt.tensor([3, 0]), initial=1.0, unsafe=True)
    assert out.tolist() == [4 / 3, 1.0] or dt.allclose(out, dt.tensor([4 / 3, 1.0]))


def test_what_is_no_segment():
    x = dt.rand(6)
    for how, error in (
        ({"lengths": dt.tensor([2, 1])}, ShapeError),
        ({"lengths": dt.tensor([[6]])}, ShapeError),
        ({"lengths": dt.tensor([6.0])}, DTypeError),
        ({}, ConfigError),
    ):
        with pytest.raises(error, match="segment_reduce"):
            dt.segment_reduce(x, "sum", **how)
    with pytest.raises(ConfigError, match="reduce='median'"):
        dt.segment_reduce(x, "median", lengths=dt.tensor([6]))
