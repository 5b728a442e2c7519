"""What goes along dimensions of sparse tensors is what dense ones have there."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain.errors import DimError, LayoutError, ShapeError


def hybrid():
    values = dt.arange(8.0).reshape(4, 2)
    return dt.sparse_coo_tensor([[0, 2, 0, 1], [1, 0, 1, 2]], values, (3, 3, 2))


@pytest.mark.parametrize("dims", [0, 1, 2, -1, (0, 1), (0, 2), (0, 1, 2), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums(dims, keepdim):
    x = hybrid()
    if dims is None and keepdim:
        return
    got = x.sum() if dims is None else x.sum(dims, keepdim=keepdim)
    want = x.to_dense().sum() if dims is None else x.to_dense().sum(dims, keepdim=keepdim)
    assert got.is_sparse == (keepdim or dims not in (None, (0, 1), (0, 1, 2)))
    assert (got.to_dense() - want).abs().sum().item() == 0.0


def test_rows_of_hybrids():
    x, dense = hybrid(), hybrid().to_dense()
    for part in (
        lambda t: t[0], lambda t: t[0, 1], lambda t: t[..., 0], lambda t: t[-1, :, 1],
        lambda t: t.permute(1, 0, 2), lambda t: t.select(1, 2), lambda t: t.narrow(0, 1, 2),
        lambda t: t.index_select(0, dt.tensor([2, 0])), lambda t: t.index_select(2, dt.tensor([1])),
    ):  # fmt: skip
        assert part(x).to_dense().tolist() == part(dense).tolist()
    with pytest.raises(ShapeError, match="change places"):
        x.permute(2, 0, 1)
    with pytest.raises(IndexError):
        x.index_select(0, dt.tensor([3]))
    chosen = x[dt.tensor([True, False, True])]
    assert chosen.to_dense().tolist() == dense[dt.tensor([True, False, True])].tolist()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_is_over_the_values_that_are_there(dim):
    x = hybrid().coalesce()
    there = dt.full((3, 3, 2), -math.inf)
    for (i, j), row in zip(x.indices().t().tolist(), x.values(), strict=True):
        there[i, j] = row
    want = dt.nan_to_num(dt.softmax(there, dim))
    assert (dt.sparse.softmax(x, dim).to_dense() - want).abs().max().item() < 1e-6
    logs = dt.sparse.log_softmax(x, dim)
    assert (logs.values().exp() - dt.sparse.softmax(x, dim).values()).abs().max().item() < 1e-6
    assert dt.sparse.softmax(x, dim, dtype=dt.float64).dtype is dt.float64


def test_softmax_of_what_has_none():
    with pytest.raises(LayoutError, match="a sparse tensor is needed"):
        dt.sparse.softmax(dt.ones(2, 2), 1)
    with pytest.raises(DimError, match="out of range"):
        dt.sparse.softmax(hybrid(), 3)
    assert dt.sparse.softmax(dt.zeros(2, 2, layout=dt.sparse_coo), 1)._nnz() == 0
    assert (
        dt.sparse.softmax(dt.sparse_coo_tensor([[0, 1]], [1.0, 1.0]), 0).values().sum().item() == 1
    )


def test_shapes_change_by_ones_only():
    x = dt.eye(3).to_sparse()
    assert tuple(x.unsqueeze(0).unsqueeze(-1).shape) == (1, 3, 3, 1)
    assert x.unsqueeze(1).squeeze().to_dense().tolist() == dt.eye(3).tolist()
    for shape in ((9,), (1, 9)):
        with pytest.raises(ShapeError, match="reshape is not implemented"):
            x.reshape(shape)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_dimensions_come_before_dense_ones(dim):
    values = dt.randn(2, 3, requires_grad=True)
    x = dt.sparse_coo_tensor([[0, 2]], values, (4, 3))
    out = x.unsqueeze(dim)
    assert out.dense_dim() == (2 if dim in (2, -1) else 1)
    assert dt.equal(out.to_dense(), x.to_dense().unsqueeze(dim))
    out.to_dense().sum().backward()
    assert values.grad.tolist() == [[1.0] * 3] * 2
