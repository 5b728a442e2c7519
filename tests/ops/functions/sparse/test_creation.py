"""Sparse tensors from places and values, of dense ones, and what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import LayoutError, ShapeError


def example(**options):
    return dt.sparse_coo_tensor([[2, 0, 2], [1, 0, 1]], [1.0, 2.0, 3.0], (3, 2), **options)


def test_values_may_have_dimensions_of_their_own():
    x = dt.sparse_coo_tensor(dt.tensor([[1]]), dt.tensor([[5.0, 6.0]]))
    assert x.to_dense().tolist() == [[0.0, 0.0], [5.0, 6.0]] and x.dense_dim() == 1
    back = x.to_dense().to_sparse(1)
    assert back.indices().tolist() == [[1]] and back.values().tolist() == [[5.0, 6.0]]
    assert dt.zeros(2, 2).to_sparse()._nnz() == 0 and back.to_sparse() is back


@pytest.mark.parametrize(
    "indices, values, size, text",
    [
        ([0, 1], [1.0, 2.0], None, "indices of shape"),
        ([[0, 1]], [1.0], None, "must have same nnz"),
        ([[0, 1]], [1.0, 2.0], (2, 2), "number of dimensions"),
        ([[0, 1]], [[1.0], [2.0]], (2, 2), "incorrect size"),
        ([[0, 2]], [1.0, 2.0], (2,), "outside"),
        ([[0, -1]], [1.0, 2.0], None, "negative index -1 for dim 0"),
        (dt.tensor([[0.0, 1.0]]), [1.0, 2.0], None, "must be an int64 tensor"),
    ],
)
def test_what_does_not_fit_is_refused(indices, values, size, text):
    with pytest.raises(RuntimeError, match=text):
        dt.sparse_coo_tensor(indices, values, size)


def test_a_sparse_dim_must_be_one_of_the_dimensions():
    with pytest.raises(RuntimeError, match="sparse_dim=3"):
        dt.ones(2, 2).to_sparse(3)
    with pytest.raises(LayoutError, match="blocks"):
        dt.ones(2, 2).to_sparse(blocksize=(1, 1))


def test_zeros_may_be_sparse():
    x = dt.zeros(2, 3, layout=dt.sparse_coo)
    assert x.is_sparse and x._nnz() == 0 and x.to_dense().tolist() == [[0.0] * 3] * 2
    assert x.dtype is dt.float32 and dt.zeros_like(x).layout == "sparse_coo"
    y = dt.zeros(2, 3, layout=dt.sparse_csr, dtype=dt.int64)
    assert y.crow_indices().tolist() == [0, 0, 0] and y.dtype is dt.int64
    assert (
        dt.empty(2, layout=dt.sparse_coo).is_sparse and not dt.zeros(2, layout=dt.strided).is_sparse
    )


def test_a_size_alone_gives_zeros():
    zeros = dt.sparse_coo_tensor(size=(2, 3))
    assert zeros.is_sparse and zeros.to_dense().tolist() == [[0.0] * 3] * 2
    with pytest.raises(ShapeError, match="or a size alone"):
        dt.sparse_coo_tensor([[0]], size=(2,))


def test_values_in_a_graph_stay_there_and_a_leaf_is_one_of_its_own():
    v = dt.tensor([1.0, 2.0]).requires_grad_()
    x = dt.sparse_coo_tensor([[0, 1]], v, (3,))
    assert x.requires_grad and not x.is_leaf and x.grad_fn is not None
    x.to_dense().pow(2).sum().backward()
    assert v.grad.tolist() == [2.0, 4.0]
    leaf = dt.sparse_coo_tensor([[0, 1]], v, (3,), requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad
    (leaf.to_dense() * dt.tensor([3.0, 5.0, 7.0])).sum().backward()
    assert leaf.grad.is_sparse and leaf.grad._indices().tolist() == [[0, 1]]
    assert leaf.grad._values().tolist() == [3.0, 5.0] and v.grad.tolist() == [2.0, 4.0]
    plain = dt.sparse_coo_tensor([[0, 1]], dt.tensor([1.0, 2.0]), (3,))
    assert not plain.requires_grad and plain.is_leaf


def test_gradients_asked_for_directly_have_the_places():
    x = example(dtype=dt.float64, requires_grad=True)
    (g,) = dt.autograd.grad((x @ dt.ones(2, 2, dtype=dt.float64)).sum(), x)
    assert g.is_sparse and g._values().tolist() == [2.0, 2.0, 2.0] and x.grad is None


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
@pytest.mark.parametrize("layout", [dt.sparse_coo, dt.sparse_csr, dt.sparse_csc])
def test_copies(copied, grad, layout):
    x = example().to_sparse(layout=layout).detach().requires_grad_(grad)
    twin = copied(x)
    assert twin.layout == layout and twin.requires_grad is grad and twin.is_leaf
    assert twin._nnz() == x._nnz() and twin.to_dense().tolist() == x.to_dense().tolist()


@pytest.mark.parametrize("leaf", [False, True])
def test_they_are_saved_and_loaded_as_they_are(leaf, tmp_path):
    x = example().requires_grad_(leaf)
    dt.save({"a": x, "b": [x], "c": x.detach().to_sparse_csr()}, tmp_path / "sparse")
    found = dt.load(tmp_path / "sparse")
    assert found["a"] is found["b"][0] and found["a"].requires_grad == leaf
    assert found["a"]._indices().tolist() == [[2, 0, 2], [1, 0, 1]]
    assert not found["a"].is_coalesced() and found["c"].layout == "sparse_csr"
    assert found["a"].to_dense().tolist() == found["c"].to_dense().tolist()


def test_a_buffer_may_be_sparse(tmp_path):
    net = dt.nn.Linear(2, 3)
    net.register_buffer("adj", example().coalesce())
    dt.save(net.state_dict(), tmp_path / "net")
    net.double().load_state_dict(dt.load(tmp_path / "net"))
    assert net.adj.is_sparse and net.adj.dtype is dt.float64
    assert net(net.adj).shape == (3, 3)


def test_masks_give_their_places():
    dense = dt.arange(6.0).reshape(3, 2).requires_grad_()
    for mask in (example().coalesce(), example().to_sparse_csr()):
        got = dense.sparse_mask(mask)
        assert got.layout == mask.layout and got.values().tolist() == [0.0, 5.0]
    dense.sparse_mask(example().coalesce()).sum().backward()
    assert dense.grad.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    with pytest.raises(LayoutError, match="mask is to be a sparse tensor"):
        dense.sparse_mask(dt.ones(3, 2))
    with pytest.raises(ShapeError, match="incompatible sizes"):
        dense.sparse_mask(dt.eye(3).to_sparse())


@pytest.mark.parametrize(
    "name", ["values", "indices", "coalesce", "is_coalesced", "crow_indices", "row_indices", "_nnz"]
)
def test_strided_tensors_have_no_places(name):
    x = dt.ones(2, 2)
    with pytest.raises(RuntimeError, match=rf"{name} expected sparse|'aten::_nnz'"):
        getattr(x, name)()
    assert (x.sparse_dim(), x.dense_dim(), x.layout) == (0, 2, dt.strided)


def test_numbers_that_are_not_known_on_the_way_go_to_the_default_type():
    assert example().dtype is dt.float32
    x = dt.sparse_coo_tensor([[0]], np.ones(1), (2,))
    assert x.dtype is dt.float64
    assert dt.sparse_coo_tensor([[0]], [1], (2,)).dtype is dt.int64


def test_what_takes_dense_tensors_says_so(tmp_path):
    x = example()
    with pytest.raises(LayoutError, match=r"make the sparse tensor of them in forward"):
        dt.nn.Parameter(x)
    with pytest.raises(RuntimeError, match="save its values as tensors"):
        dt.save({"x": x}, tmp_path / "x.pt", format="torch")
    copied = dt.tensor(x)
    copied._values().zero_()
    assert copied.is_sparse and x.sum().item() == 6.0
