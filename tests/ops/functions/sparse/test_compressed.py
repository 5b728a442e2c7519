"""Matrices of compressed rows and columns: made, turned, converted, printed."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import LayoutError, ShapeError


def csr(**options):
    return dt.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3), **options)


def test_parts():
    x = csr()
    assert x.crow_indices().tolist() == [0, 1, 3] and x.col_indices().tolist() == [2, 0, 2]
    assert x.values().tolist() == [3.0, 4.0, 5.0] and x._nnz() == 3 and x.is_sparse_csr
    y = x.to_sparse_csc()
    assert y.ccol_indices().tolist() == [0, 1, 1, 3] and y.row_indices().tolist() == [1, 0, 1]
    for ask, text in (
        (x.indices, "coordinate"), (x.coalesce, "coordinate"), (x.row_indices, "column compressed"),
        (y.crow_indices, "row compressed tensor layout but got SparseCsc"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            ask()


def test_conversions_keep_values_in_the_graph():
    dense = dt.tensor([[0.0, 0.0, 3.0], [4.0, 0.0, 5.0]]).requires_grad_()
    for x in (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_coo()):
        for name in ("to_sparse_csr", "to_sparse_csc", "to_sparse_coo", "to_sparse"):
            y = getattr(x, name)()
            assert y.to_dense().tolist() == dense.tolist() and y.requires_grad
            assert getattr(y, name)().layout == y.layout
    dense.to_sparse_csc().to_sparse_csr().values().mul(dt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert dense.grad.tolist() == [[0.0, 0.0, 1.0], [2.0, 0.0, 3.0]]
    assert csr(requires_grad=True).is_leaf and csr().to_sparse().is_coalesced()


def test_a_transpose_shares_values():
    x = csr()
    y = x.t()
    assert y.layout == "sparse_csc" and tuple(y.shape) == (3, 2)
    assert y.to_dense().tolist() == x.to_dense().t().tolist()
    y._values().zero_()
    assert x.sum().item() == 0.0


def test_writes():
    x, y = csr(), csr()
    x.mul_(2).copy_(y * 3)
    assert x.values().tolist() == [9.0, 12.0, 15.0]
    assert x.zero_()._nnz() == 3 and x.sum().item() == 0.0
    with pytest.raises(ShapeError):
        x.copy_(dt.ones(2, 3))


@pytest.mark.parametrize(
    "starts, others, size, text",
    [
        ([0, 1, 3], [2, 0, 2], (2, 2), "0 <= col_indices < ncols"),
        ([0, 1, 4], [2, 0, 2], (2, 3), r"crow_indices\[..., -1\] == nnz"),
        ([1, 1, 3], [2, 0, 2], (2, 3), r"crow_indices\[..., 0\] == 0"),
        ([0, 4, 3], [2, 0, 2], (2, 3), "0 <= crow_indices"),
        ([0, 1, 3], [2, 2, 0], (2, 3), "are sorted and distinct"),
        ([0, 3], [0, 1, 2], (2, 3), "must be equal to the number"),
        ([0, 1, 3], [2, 0], (2, 3), "number of elements in col_indices"),
        ([[0, 1, 3]], [2, 0, 2], (2, 3), "must have dimensionality 2, 2 and 2"),
        ([0, 1, 3], [2, 0, 2], (2, 3, 4), "tensor dimensionality"),
    ],
)
def test_what_is_wrong_is_said(starts, others, size, text):
    with pytest.raises(RuntimeError, match=text):
        dt.sparse_csr_tensor(starts, others, [3.0, 4.0, 5.0], size, check_invariants=True)


def test_other_layouts_are_refused():
    with pytest.raises(RuntimeError, match="needed is sparse_csr"):
        dt.sparse_compressed_tensor([0], [], [], layout="sparse_coo")
    with pytest.raises(LayoutError):
        csr().to_sparse(layout="sparse_bsr")
    with pytest.raises(ShapeError, match="2 sparse dimensions"):
        dt.ones(3).to_sparse().to_sparse_csr()
    columns = dt.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2.0])
    assert columns.to_dense().tolist() == [[0.0, 2.0], [1.0, 0.0]]


def test_how_they_print():
    assert repr(csr()) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n"
        "       col_indices=tensor([2, 0, 2]),\n"
        "       values=tensor([3., 4., 5.]), size=(2, 3), nnz=3,\n"
        "       layout=disttrain.sparse_csr)"
    )
    assert "ccol_indices" in str(csr().t())
