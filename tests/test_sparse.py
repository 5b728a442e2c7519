"""``dt.sparse``: the functions of ``torch.sparse``."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import sparse
from disttrain.autograd import gradcheck
from disttrain.errors import ShapeError


def example():
    return dt.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))


def test_sums_and_products():
    x = example().requires_grad_()
    assert sparse.sum(x).item() == 12.0 and sparse.sum(x, 0).to_dense().tolist() == [4.0, 0.0, 8.0]
    assert sparse.sum(x, dtype=dt.float64).dtype is dt.float64
    assert sparse.sum(x, [0, 1]).item() == 12.0
    y = dt.ones(3, 2).requires_grad_()
    sparse.mm(x, y).sum().backward()
    assert y.grad.tolist() == [[4.0, 4.0], [0.0, 0.0], [8.0, 8.0]]
    assert x.grad._values().tolist() == [2.0, 2.0, 2.0]
    assert sparse.addmm(dt.ones(2, 2), x, y).tolist() == [[4.0, 4.0], [10.0, 10.0]]
    assert sparse.addmm(dt.ones(2, 2), x, y, beta=0.5, alpha=2)[0, 0].item() == 6.5
    assert sparse.mm(x, x.t()).is_sparse
    with pytest.raises(IndexError, match="out of range"):
        sparse.sum(x, 2)
    with pytest.raises(ShapeError, match="matrices are needed"):
        sparse.mm(x, dt.ones(3))
    with pytest.raises(NotImplementedError, match="reduce"):
        sparse.mm(x, y, "mean")


def test_products_at_places():
    x = example().to_sparse_csr()
    a, b = dt.randn(2, 4), dt.randn(4, 3)
    out = sparse.sampled_addmm(x, a, b, beta=0.5, alpha=2.0)
    want = (0.5 * x.to_dense() + 2 * a @ b).sparse_mask(x)
    assert (out.values() - want.values()).abs().max().item() < 1e-5
    assert sparse.sampled_addmm(x, a, b, beta=0).values().shape == (3,)
    for wrong in ((example(), a, b), (x, a, a), (x, a, x)):
        with pytest.raises(ShapeError, match="sampled_addmm"):
            sparse.sampled_addmm(*wrong)


def test_diagonals():
    rows = dt.arange(1.0, 7.0).reshape(2, 3).requires_grad_()
    out = sparse.spdiags(rows, dt.tensor([0, 1]), (3, 3))
    assert out.to_dense().tolist() == [[1.0, 5.0, 0.0], [0.0, 2.0, 6.0], [0.0, 0.0, 3.0]]
    out.sum().backward()
    assert rows.grad.tolist() == [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    assert sparse.spdiags(rows[0], dt.tensor(-1), (4, 3), dt.sparse_csr).is_sparse_csr
    for offsets, text in ((dt.tensor([0]), "does not match"), (dt.tensor([1, 1]), "duplicate")):
        with pytest.raises(ShapeError, match=text):
            sparse.spdiags(rows, offsets, (3, 3))


def test_gradcheck_of_sparse_inputs():
    check = sparse.as_sparse_gradcheck(gradcheck)
    x = example().double().requires_grad_()
    assert check(lambda x: x * x, x, masked=True)
    assert check(lambda x, d: x @ d, (x, dt.ones(3, 2, dtype=dt.float64)))
