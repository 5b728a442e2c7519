"""Tensors given by their places."""

import copy

import pytest

import disttrain as dt
from disttrain.errors import ShapeError


def example():
    return dt.sparse_coo_tensor([[2, 0, 2], [1, 0, 1]], [1.0, 2.0, 3.0], (3, 2))


def test_places_and_values():
    x = example()
    assert x.is_sparse and x.layout == "sparse_coo" and tuple(x.shape) == (3, 2)
    assert x._nnz() == 3 and not x.is_coalesced()
    one = x.coalesce()
    assert one.indices().tolist() == [[0, 2], [0, 1]] and one.values().tolist() == [2.0, 4.0]
    assert one.coalesce() is one and (x.sparse_dim(), x.dense_dim()) == (2, 0)
    assert x.to_dense().tolist() == [[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]]
    with pytest.raises(RuntimeError, match=r"please call \.coalesce\(\) first"):
        example().values()


def test_values_may_have_dimensions_of_their_own():
    x = dt.sparse_coo_tensor(dt.tensor([[1]]), dt.tensor([[5.0, 6.0]]))
    assert x.to_dense().tolist() == [[0.0, 0.0], [5.0, 6.0]] and x.dense_dim() == 1
    back = x.to_dense().to_sparse(1)
    assert back.indices().tolist() == [[1]] and back.values().tolist() == [[5.0, 6.0]]
    assert dt.zeros(2, 2).to_sparse()._nnz() == 0 and back.to_sparse() is back


def test_operations_take_it_for_the_dense_tensor():
    x = example()
    assert (x + 1).tolist() == [[3.0, 1.0], [1.0, 1.0], [1.0, 5.0]] and not (x + 1).is_sparse
    x.mul_(2)
    assert x.coalesce().values().tolist() == [4.0, 8.0]
    twin = copy.deepcopy(x)
    twin.mul_(0)
    assert x.to_dense().sum().item() == 12.0 and twin.is_sparse
    dense = dt.ones(2)
    assert dense.to_dense() is dense and not dense.is_sparse


@pytest.mark.parametrize(
    "indices, values, size, text",
    [
        ([0, 1], [1.0, 2.0], None, "indices of shape"),
        ([[0, 1]], [1.0], None, "indices of shape"),
        ([[0, 1]], [1.0, 2.0], (2, 2), "size"),
        ([[0, 2]], [1.0, 2.0], (2,), "outside"),
    ],
)
def test_what_does_not_fit_is_refused(indices, values, size, text):
    with pytest.raises(RuntimeError, match=text):
        dt.sparse_coo_tensor(indices, values, size)


def test_a_sparse_dim_must_be_one_of_the_dimensions():
    with pytest.raises(RuntimeError, match="sparse_dim=3"):
        dt.ones(2, 2).to_sparse(3)


def test_zeros_may_be_sparse():
    x = dt.zeros(2, 3, layout="sparse_coo")
    assert x.is_sparse and x._nnz() == 0 and x.to_dense().tolist() == [[0.0] * 3] * 2
    assert x.dtype is dt.float32


def test_a_size_alone_gives_zeros():
    zeros = dt.sparse_coo_tensor(size=(2, 3))
    assert zeros.is_sparse and zeros.to_dense().tolist() == [[0.0] * 3] * 2
    with pytest.raises(ShapeError, match="or a size alone"):
        dt.sparse_coo_tensor([[0]], size=(2,))
