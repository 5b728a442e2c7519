"""Places by coordinates: added up by place, written to, resized, printed."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ShapeError
from disttrain.ops.functions.sparse.coo import flat, meetings, unflat


def example():
    return dt.sparse_coo_tensor([[2, 0, 2], [1, 0, 1]], [1.0, 2.0, 3.0], (3, 2))


def test_places_and_values():
    x = example()
    assert x.is_sparse and x.layout == "sparse_coo" and tuple(x.shape) == (3, 2)
    assert x._nnz() == 3 and not x.is_coalesced() and len(x) == 3 and x.numel() == 6
    one = x.coalesce()
    assert one.indices().tolist() == [[0, 2], [0, 1]] and one.values().tolist() == [2.0, 4.0]
    assert one.coalesce() is one and (x.sparse_dim(), x.dense_dim()) == (2, 0)
    for ask in (example().values, example().indices):
        with pytest.raises(RuntimeError, match=r"please call \.coalesce\(\) first"):
            ask()
    assert x.t().coalesce().indices().tolist() == [[0, 1], [0, 2]]


def test_values_of_sums_are_in_the_graph():
    v = dt.tensor([1.0, 2.0, 3.0]).requires_grad_()
    x = dt.sparse_coo_tensor([[2, 0, 2], [1, 0, 1]], v, (3, 2))
    (x.coalesce().values() * dt.tensor([5.0, 7.0])).sum().backward()
    assert v.grad.tolist() == [7.0, 5.0, 7.0]


def test_places_in_order_are_known_to_be_unique():
    x = dt.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0])
    one = x.coalesce()
    assert not x.is_coalesced() and one.is_coalesced()
    assert x._coalesced_(True).is_coalesced()


@pytest.mark.parametrize(
    "write, values",
    [
        (lambda x, y: x.add_(y), [3.0, 2.0, 4.0]),
        (lambda x, y: x.sub_(y, alpha=2), [0.0, -4.0, 4.0]),
        (lambda x, y: x.mul_(2), [4.0, 8.0]),
        (lambda x, y: x.div_(2), [1.0, 2.0]),
        (lambda x, y: x.neg_(), [-2.0, -4.0]),
        (lambda x, y: x.copy_(y), [1.0, 2.0]),
        (lambda x, y: x.zero_(), []),
        (lambda x, y: setattr(x, "data", y), [1.0, 2.0]),
        (lambda x, y: x._values().mul_(3), [6.0, 12.0]),
    ],
)
def test_in_place(write, values):
    x = example().coalesce()
    write(x, dt.sparse_coo_tensor([[0, 1], [0, 0]], [1.0, 2.0], (3, 2)).coalesce())
    assert x.coalesce().values().tolist() == values


def test_in_place_on_what_does_not_fit():
    x = example()
    for wrong in (lambda: x.add_(1), lambda: x.copy_(dt.ones(3, 2)), lambda: x.div_(dt.ones(3, 2))):
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(NotImplementedError):
        x.div_(2, rounding_mode="floor")


def test_sizes_may_grow():
    x = example()
    assert tuple(x.sparse_resize_((4, 4), 2, 0).shape) == (4, 4) and x._nnz() == 3
    with pytest.raises(ShapeError, match="shrinking"):
        x.sparse_resize_((1, 1), 2, 0)
    with pytest.raises(ShapeError, match="changing the number"):
        x.sparse_resize_((4, 4), 1, 1)
    x.sparse_resize_and_clear_((5, 2), 1, 1)
    assert x._nnz() == 0 and (x.sparse_dim(), x.dense_dim()) == (1, 1)
    assert tuple(x.resize_as_sparse_(example()).shape) == (3, 2)


def test_how_it_prints():
    assert repr(example()) == (
        "tensor(indices=tensor([[2, 0, 2],\n"
        "                       [1, 0, 1]]),\n"
        "       values=tensor([1., 2., 3.]),\n"
        "       size=(3, 2), nnz=3, layout=disttrain.sparse_coo)"
    )
    assert "requires_grad=True" in str(example().requires_grad_())
    assert "dtype=disttrain.float64" in str(example().double())
    assert "tensor([], size=(2, 0))" in str(dt.zeros(2, 2, layout=dt.sparse_coo))


def test_numbers_of_rows():
    places = example()._places
    rows = flat(places, (3, 2))
    assert rows.tolist() == [5, 0, 5] and unflat(rows, (3, 2)).tolist() == places.tolist()
    assert flat(places[:, :0], (3, 2)).shape == (0,) and unflat(rows, (9,)).tolist() == [[5, 0, 5]]


@pytest.mark.parametrize("n", [4, 10**12])
def test_meetings(n):
    keys, wanted = np.array([2, 0, 2, 3]), np.array([3, 2, 1, 2])
    which, found = meetings(keys, wanted, n)
    assert which.tolist() == [0, 1, 1, 3, 3] and found.tolist() == [3, 0, 2, 0, 2]


def test_a_size_beyond_all_numbers_is_refused():
    with pytest.raises(ShapeError, match="multiplication overflow"):
        dt.sparse_coo_tensor([[0], [0]], [1.0], (2**62, 2**62))
