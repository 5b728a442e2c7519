"""Other shapes of the same elements."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

A = np.arange(24.0).reshape(2, 3, 4)
X = dt.from_numpy(A)


def test_sizes_may_leave_one_open():
    assert X.reshape(-1, 6).shape == (4, 6) and X.view(2, -1).shape == (2, 12)
    assert X.flatten(1).shape == (2, 12) and X.ravel().shape == (24,)
    assert X.unflatten(2, (2, -1)).shape == (2, 3, 2, 2)
    for size in ((5, -1), (-1, -1), (7, 3)):
        with pytest.raises((RuntimeError, ValueError)):
            X.reshape(*size)


def test_views_share_memory_and_refuse_where_they_cannot():
    X.view(24)[0] = 0.0
    assert X.reshape(24).data_ptr() == X.data_ptr()
    with pytest.raises((RuntimeError, ValueError), match=r"view|contiguous|reshape"):
        X.permute(2, 0, 1).view(24)
    assert X.permute(2, 0, 1).reshape(24).tolist() == A.transpose(2, 0, 1).ravel().tolist()


def test_dimensions_in_another_order():
    assert X.permute(2, 0, 1).tolist() == A.transpose(2, 0, 1).tolist()
    assert X.transpose(0, -1).tolist() == A.swapaxes(0, -1).tolist()
    assert dt.movedim(X, 0, 2).tolist() == np.moveaxis(A, 0, 2).tolist()
    assert dt.t(X[0]).tolist() == A[0].T.tolist()
    with pytest.raises((RuntimeError, ValueError)):
        X.permute(0, 0, 1)


def test_dimensions_of_size_one():
    y = X[:, :1]
    assert y.squeeze().shape == (2, 4) and y.squeeze(0).shape == (2, 1, 4)
    assert y.squeeze((1,)).unsqueeze(-1).shape == (2, 4, 1)
    assert y.expand(2, 5, 4).stride()[1] == 0 and y.expand(3, -1, 5, -1).shape == (3, 2, 5, 4)
    assert y.expand_as(X).shape == X.shape
    with pytest.raises((RuntimeError, ValueError)):
        X.expand(2, 5, 4)


def test_common_shapes():
    assert dt.broadcast_shapes((2, 1), (3,), (1, 1, 1)) == (1, 2, 3)
    assert [t.shape for t in dt.broadcast_tensors(dt.ones(2, 1), dt.ones(3))] == [(2, 3)] * 2
    grids = dt.meshgrid(dt.arange(2), dt.arange(3), indexing="ij")
    assert [g.tolist() for g in grids] == [
        g.tolist() for g in np.meshgrid([0, 1], [0, 1, 2], indexing="ij")
    ]


def test_mirrors_and_triangles():
    assert X.flip(0, 2).tolist() == np.flip(A, (0, 2)).tolist()
    assert (
        X.fliplr().tolist() == np.fliplr(A).tolist()
        and X.flipud().tolist() == np.flipud(A).tolist()
    )
    assert X.roll(1).tolist() == np.roll(A, 1).tolist()
    assert X.roll((1, -1), (0, 2)).tolist() == np.roll(A, (1, -1), (0, 2)).tolist()
    assert X.tril(-1).tolist() == np.tril(A, -1).tolist() and X[0].trace() == np.trace(A[0])
    assert X[0].diag(1).tolist() == np.diag(A[0], 1).tolist()
    assert dt.diag(dt.arange(3.0)).tolist() == np.diag(np.arange(3.0)).tolist()


BY_NAME = {
    "flip": ({"dims": [0]}, lambda x: x.flip(0)),
    "permute": ({"dims": (1, 0)}, lambda x: x.permute(1, 0)),
    "reshape": ({"shape": (3, 2)}, lambda x: x.reshape(3, 2)),
    "view": ({"size": (3, 2)}, lambda x: x.view(3, 2)),
    "expand": ({"size": (4, 2, 3)}, lambda x: x.expand(4, 2, 3)),
    "repeat": ({"repeats": (2, 1)}, lambda x: x.repeat(2, 1)),
    "tile": ({"dims": (2,)}, lambda x: x.tile(2)),
    "sum_to_size": ({"size": (1, 3)}, lambda x: x.sum_to_size(1, 3)),
    "broadcast_to": ({"size": (4, 2, 3)}, lambda x: x.broadcast_to((4, 2, 3))),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_sizes_and_dimensions_may_be_named(name):
    given, want = BY_NAME[name]
    x = dt.arange(6.0).reshape(2, 3)
    assert getattr(x, name)(**given).tolist() == want(x).tolist()
    if hasattr(dt, name):
        assert getattr(dt, name)(x, **given).tolist() == want(x).tolist()
    one = dt.ones(1)
    assert one.reshape(shape=(1, 1)).shape == (1, 1) == one.view(size=(1, 1)).shape
    assert one.view(dtype=dt.int32).dtype is dt.int32


@pytest.mark.parametrize("name", ["new_zeros", "new_ones", "new_empty"])
def test_sizes_of_new_tensors_may_be_named(name):
    made = getattr(dt.ones(1, dtype=dt.float64), name)(size=(2, 3))
    assert made.shape == (2, 3) and made.dtype is dt.float64
    assert getattr(dt.ones(1), name)(size=dt.ones(2).size()).shape == (2,)
