"""Products of sparse matrices, by the older names too."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import LayoutError, ShapeError


def drawn(n, m, seed):
    dt.manual_seed(seed)
    return dt.where(dt.rand(n, m) < 0.2, dt.randn(n, m, dtype=dt.float64), 0.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("left", ["to_sparse", "to_sparse_csr", "to_sparse_csc", "clone"])
@pytest.mark.parametrize("right", ["to_sparse", "to_sparse_csr", "to_sparse_csc", "clone"])
def test_drawn_matrices(left, right, seed):
    a, b = drawn(40, 30, seed), drawn(30, 50, seed + 9)
    out = getattr(a, left)() @ getattr(b, right)()
    assert (out.to_dense() - a @ b).abs().max().item() < 1e-12
    assert (out.layout == "strided") == ("clone" in (left, right))
    if out.is_sparse:
        assert out.is_coalesced()


def test_large_ones_go_by_machine_code():
    a, b = drawn(300, 200, 0).float(), drawn(200, 70, 1).float()
    assert (a.to_sparse() @ b - a @ b).abs().max().item() < 1e-4


def test_older_names():
    a, b = drawn(5, 4, 0), dt.randn(4, 3, dtype=dt.float64)
    x = a.to_sparse()
    for name in ("spmm", "dsmm"):
        assert (getattr(dt, name)(x, b) - a @ b).abs().max().item() < 1e-12
    for out in (dt.smm(x, b), x.smm(b), dt.hspmm(x, b)):
        assert out.is_sparse and (out.to_dense() - a @ b).abs().max().item() < 1e-12
    assert dt.hspmm(x, b).dense_dim() == 1
    start = dt.ones(5, 3, dtype=dt.float64)
    out = dt.sspaddmm(start.to_sparse(), x, b, beta=2, alpha=3)
    assert (out.to_dense() - (2 * start + 3 * a @ b)).abs().max().item() < 1e-12
    assert (dt.saddmm(start, x, b) - (start + a @ b)).abs().max().item() < 1e-12
    with pytest.raises(LayoutError, match="a sparse tensor is needed"):
        dt.smm(a, b)


def test_batches():
    a = dt.stack([drawn(3, 4, 0), drawn(3, 4, 1)])
    b = dt.randn(2, 4, 5, dtype=dt.float64)
    assert (dt.bmm(a.to_sparse(), b) - a @ b).abs().max().item() < 1e-12
    for wrong in (lambda: a.to_sparse() @ b[0], lambda: b[0].t() @ a.to_sparse()):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ShapeError, match="dense dimensions"):
        a.to_sparse(2) @ b


def test_huge_sizes_cost_nothing():
    n = 2 * 10**9
    x = dt.sparse_coo_tensor([[10**9, 7], [3, 1]], [2.0, 5.0], (n, 5))
    assert (x.t() @ x).to_dense()[3].tolist() == [0, 0, 0, 4, 0]
    assert dt.smm(x, dt.ones(5, 2))._nnz() == 4 and dt.hspmm(x, dt.ones(5, 2))._nnz() == 2
    assert x.index_select(0, dt.tensor([7, 10**9, 7])).coalesce().values().tolist() == [5, 2, 5]
    mask = dt.sparse_coo_tensor([[10**9, 9], [3, 1]], [1.0, 1.0], (n, 5))
    assert x.sparse_mask(mask).coalesce().values().tolist() == [0, 2]


def test_autocast_sees_a_product_as_one_operation():
    w = dt.randn(3, 2, requires_grad=True)
    with dt.autocast("cpu", dt.bfloat16):
        outs = [dt.eye(3).to_sparse() @ w, dt.sparse.mm(dt.eye(3).to_sparse_csr(), w)]
        outs.append(dt.sparse.addmm(dt.zeros(3, 2), dt.eye(3).to_sparse(), w))
    for out in outs:
        assert out.dtype is dt.bfloat16 and dt.equal(out, w.bfloat16())
    outs[0].sum().backward()
    assert w.grad.dtype is dt.float32
