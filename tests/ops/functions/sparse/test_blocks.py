"""Matrices in blocks and batches of matrices: parts, conversions, products, derivatives."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import LayoutError, ShapeError

ROWS, BLOCKS = ("sparse_csr", "sparse_bsr"), ("sparse_bsr", "sparse_bsc")
LAYOUTS = ("sparse_csr", "sparse_csc", *BLOCKS)


def drawn(*shape, seed=0):
    """With one place in three, and as many in each matrix of a batch (and in each block of it)."""
    rng = np.random.default_rng(seed)
    lead, (n, m) = shape[:-2], shape[-2:]
    out = np.zeros((int(np.prod(lead, dtype=int)), n, m), np.float32)
    for one in out:
        at = rng.permutation(n * m // 6)[: max(n * m // 18, 1)]
        for k in at:
            i, j = divmod(int(k), m // 3)
            one[2 * i : 2 * i + 2, 3 * j : 3 * j + 3] = rng.integers(1, 9, (2, 3))
    return dt.tensor(out.reshape(shape))


def made(dense, layout):
    block = (2, 3) if layout in BLOCKS else None
    return dense.to_sparse(layout=getattr(dt, layout), blocksize=block)


def parts(x):
    rows = str.__str__(x.layout) in ROWS
    names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
    return [getattr(x, n)() for n in names] + [x.values()]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_there_and_back(layout, lead):
    dense = drawn(*lead, 6, 9)
    x = made(dense, layout)
    assert str.__str__(x.layout) == layout
    assert x.shape == dense.shape
    assert (x.sparse_dim(), x.dense_dim()) == (2, 0)
    assert dt.equal(x.to_dense(), dense)
    again = dt.sparse_compressed_tensor(
        *parts(x), size=x.shape, layout=x.layout, check_invariants=True
    )
    assert dt.equal(again.to_dense(), dense)
    for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.detach()):
        assert dt.equal(copied.to_dense(), dense)
        assert copied.layout == x.layout
    file = io.BytesIO()
    dt.save(x, file)
    file.seek(0)
    assert dt.equal(dt.load(file).to_dense(), dense)
    assert dt.equal(x.to_sparse().to_dense(), dense)
    assert dt.equal((x * 2).to_dense(), dense * 2)
    assert dt.equal((x + x).to_dense(), dense * 2)
    assert (x + x).layout == x.layout
    assert dt.equal(x.neg().relu().to_dense(), (-dense).relu())
    assert dt.equal(x.double().to_dense(), dense.double())
    assert dt.equal((x * dense).to_dense(), dense * dense)
    assert x.sum().item() == dense.sum().item()
    turned = x.transpose(-2, -1)
    assert dt.equal(turned.to_dense(), dense.transpose(-2, -1))
    assert (str.__str__(turned.layout) in ROWS) != (layout in ROWS)
    assert "nnz=" in repr(x)
    if lead:
        assert dt.equal(x[1].to_dense(), dense[1])
        assert x.select(0, 1).layout == x.layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products(layout):
    dense, right, left = drawn(6, 9), dt.randn(9, 4), dt.randn(4, 6)
    x = made(dense, layout)
    assert dt.allclose(x @ right, dense @ right)
    assert dt.allclose(left @ x, left @ dense)
    assert dt.allclose(dt.nn.functional.linear(right.T, x), right.T @ dense.T)
    bias = dt.randn(6, 4)
    assert dt.allclose(dt.sparse.addmm(bias, x, right), bias + dense @ right)
    if layout in BLOCKS:
        other = drawn(9, 6).to_sparse_bsr((3, 2))
        assert dt.allclose((x @ other).to_dense(), dense @ other.to_dense())
    batch, many = drawn(2, 6, 9), dt.randn(2, 9, 4)
    assert dt.allclose(made(batch, layout) @ many, batch @ many)
    assert dt.allclose(dt.bmm(made(batch, layout), many), batch @ many)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lead", [(), (2,)])
def test_gradients(layout, lead):
    dense, right = drawn(*lead, 6, 9).double(), dt.randn(*lead, 9, 4).double()
    first, second, values = parts(made(dense, layout))

    def of_values(v, r):
        x = dt.sparse_compressed_tensor(first, second, v, dense.shape, layout=getattr(dt, layout))
        return (x * 2) @ r, x.to_dense(), x.transpose(-2, -1).sum()

    given = values.clone().requires_grad_(), right.requires_grad_()
    assert dt.autograd.gradcheck(of_values, given)
    x = dense.clone().requires_grad_()
    made(x, layout).to_dense().square().sum().backward()
    assert dt.equal(x.grad, 2 * dense)
    leaf = made(dense, layout).requires_grad_()
    leaf.to_dense().square().sum().backward()
    assert leaf.grad.layout == leaf.layout
    assert dt.equal(leaf.grad.to_dense(), 2 * dense)


def test_conversions_between_layouts():
    dense = drawn(6, 9)
    for make in (lambda: dense, dense.to_sparse, dense.to_sparse_csr, dense.to_sparse_csc):
        for convert in ("to_sparse_bsr", "to_sparse_bsc"):
            x = getattr(make(), convert)((2, 3))
            assert x.values().shape[1:] == (2, 3)
            assert dt.equal(x.to_dense(), dense)
            for back in ("to_sparse_bsr", "to_sparse_bsc"):
                assert dt.equal(getattr(x, back)((2, 3)).to_dense(), dense)
    x = dense.to_sparse_bsr((2, 3))
    with pytest.raises(ShapeError, match="not supported"):
        x.to_sparse_bsr((1, 1))
    with pytest.raises(ShapeError, match="not supported"):
        x.to_sparse_csr()
    assert x.to_sparse_bsr((2, 3)) is x
    wide = dt.ones(4, 6, 2).to_sparse_bsr((2, 3), dense_dim=1)
    assert (wide.dense_dim(), wide.values().shape) == (1, (4, 2, 3, 2))
    assert dt.equal(wide.to_dense(), dt.ones(4, 6, 2))
    zero = dt.zeros(4, 6).to_sparse_bsr((2, 3))
    assert (zero._nnz(), zero.to_dense().count_nonzero().item()) == (0, 0)
    like = dt.zeros_like(wide, dtype=dt.float64)
    assert (like.layout, like.shape, like._nnz()) == (wide.layout, wide.shape, 0)
    assert like.to_dense().dtype is dt.float64
    kept = dt.sparse_coo_tensor([[0], [1]], [0.0], (4, 6)).to_sparse_bsr((2, 3))
    assert kept._nnz() == 1  # a place, though its value is 0


def test_what_is_refused():
    dense = drawn(6, 9)
    for call, text in (
        (lambda: dense.to_sparse_bsr((4, 3)), "must be divisible by given blocksize"),
        (lambda: dense.to_sparse_bsr((0, 3)), "two positive numbers"),
        (lambda: dense.to_sparse(layout=dt.sparse_bsr), "blocksize=None"),
        (lambda: dense.to_sparse(layout=dt.sparse_csr, blocksize=(2, 3)), "others have none"),
        (lambda: dt.stack([dense, dt.ones(6, 9)]).to_sparse_csr(), "same number of specified"),
        (lambda: dt.sparse_bsr_tensor([0, 1, 2], [0, 1], dt.ones(2, 2, 3), (4, 7)), "divisible"),
        (lambda: dt.sparse_bsr_tensor([0, 1, 2], [0, 1], dt.ones(2), (4, 6)), "dimensionality"),
        (lambda: dt.sparse_bsr_tensor([0, 1], [0, 1], dt.ones(2, 2, 3), (4, 6)), "plus one"),
        (lambda: dt.sparse_bsr_tensor([0, 1, 3], [0, 1], dt.ones(2, 2, 3), (4, 6),
                                      check_invariants=True), "== nnz` is not satisfied"),
        (lambda: dt.sparse_csr_tensor([[0, 1], [0, 1]], [[0], [0], [0]], dt.ones(2, 1)), "batch"),
        (lambda: dense.to_sparse_bsr((2, 3)).ccol_indices(), "expected sparse column compressed"),
        (lambda: made(drawn(2, 6, 9), "sparse_csr").transpose(0, 1), "of the same type"),
    ):  # fmt: skip
        with pytest.raises((ShapeError, LayoutError), match=text):
            call()


def test_sizes_from_parts():
    assert dt.sparse_bsr_tensor([0, 1, 2], [0, 1], dt.ones(2, 2, 3)).shape == (4, 6)
    assert dt.sparse_bsc_tensor([0, 1, 2], [0, 1], dt.ones(2, 2, 3)).shape == (4, 6)
    assert dt.sparse_csr_tensor([[0, 1], [0, 1]], [[0], [2]], dt.ones(2, 1)).shape == (2, 1, 3)


@pytest.mark.parametrize("layout", [None, "sparse_csr", "sparse_bsr"])
def test_a_parameter_is_sparse(layout):
    dense = drawn(6, 9)
    p = dt.nn.Parameter(dense.to_sparse() if layout is None else made(dense, layout))
    assert isinstance(p, dt.nn.Parameter)
    assert p.requires_grad
    module = dt.nn.Module()
    module.p = p
    assert next(module.parameters()) is p
    assert repr(p).startswith("Parameter containing:\ntensor(")
    assert not isinstance(p * 2, dt.nn.Parameter)
    assert isinstance(copy.deepcopy(module).p, dt.nn.Parameter)
    (p @ dt.ones(9, 2)).sum().backward()
    assert p.grad.layout == p.layout
    assert dt.equal(p.grad.to_dense(), 2.0 * (dense != 0))
    if layout is None:
        dt.optim.SGD([p], lr=0.5).step()
        assert p.is_leaf and p.requires_grad
        assert dt.equal(p.to_dense(), dense - (dense != 0).float())


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_parts_are_those_of_pytorch():
    import torch

    for layout in LAYOUTS:
        for lead in ((), (2,)):
            dense = drawn(*lead, 6, 9)
            theirs = torch.tensor(dense.tolist())
            block = (2, 3) if layout in BLOCKS else None
            other = theirs.to_sparse(layout=getattr(torch, layout), blocksize=block)
            mine = made(dense, layout)
            for x, y in ((mine, other), (mine.transpose(-2, -1), other.transpose(-2, -1))):
                for a, b in zip(parts(x), parts_of(y), strict=True):
                    assert a.tolist() == b.tolist()
            assert mine.to_sparse().coalesce().indices().tolist() == (
                other.to_sparse().coalesce().indices().tolist()
            )


def parts_of(y):
    rows = str(y.layout) in ("torch.sparse_csr", "torch.sparse_bsr")
    names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
    return [getattr(y, n)() for n in names] + [y.values()]
