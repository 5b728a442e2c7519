"""Sums and products of sparse tensors with others, of other types and places."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ShapeError


def pair():
    a = dt.sparse_coo_tensor([[0, 2], [1, 0]], [1.0, 2.0], (3, 2)).coalesce()
    b = dt.sparse_coo_tensor([[1, 2], [1, 0]], [5.0, 7.0], (3, 2)).coalesce()
    return a, b


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: dt.add(a, b, alpha=3),
        lambda a, b: a * b, lambda a, b: dt.sub(a, b, alpha=2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layouts", ["cc", "rr", "cr", "rc"])
def test_of_two(compute, layouts):
    given = [x.to_sparse_csr() if k == "r" else x for x, k in zip(pair(), layouts, strict=True)]
    out = compute(*given)
    want = compute(*(x.to_dense() for x in pair()))
    assert out.to_dense().tolist() == want.tolist()
    assert out.layout == ("sparse_csr" if layouts[0] == "r" and layouts != "rc" else out.layout)


def test_sums_of_what_is_unique_are_unique():
    a, b = pair()
    assert (a + b).is_coalesced() and (a + b)._nnz() == 3 and (a * b)._nnz() == 1
    twice = dt.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 2))
    assert not (a + twice).is_coalesced() and (a + twice).coalesce().values().tolist() == [4.0, 2.0]
    assert (a + a)._nnz() == 2


def test_types_are_promoted():
    a, b = pair()
    assert (a + b.double()).dtype is dt.float64 and (a.to(dt.int64) * 2.5).dtype is dt.float32
    assert (a / 2).values().tolist() == [0.5, 1.0]
    assert dt.floor_divide(a, 2).values().tolist() == [0.0, 1.0]


def test_dense_ones_take_sparse_ones():
    a, _ = pair()
    dense = dt.ones(3, 2)
    assert (dense + a).tolist() == [[1.0, 2.0], [1.0, 1.0], [3.0, 1.0]]
    assert dense.add_(a).sub_(a, alpha=2).tolist() == [[1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]
    assert dense.mul_(a).tolist() == [[0.0, 0.0], [0.0, 0.0], [-2.0, 0.0]]
    assert (a * dt.tensor([[2.0], [0.0], [3.0]])).values().tolist() == [2.0, 6.0]


def test_what_does_not_fit():
    a, _ = pair()
    rows = dt.ones(3, 2).to_sparse(1)
    with pytest.raises(ShapeError, match="same number of sparse dimensions"):
        a + rows
    with pytest.raises(ShapeError, match="same sizes"):
        a * dt.eye(3).to_sparse()
    assert (rows * dt.tensor([1.0, 2.0])).values().tolist() == [[1.0, 2.0]] * 3
