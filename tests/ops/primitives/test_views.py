"""Rearrangements: NumPy's, as views where they can be."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import views as vw

A = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("turned", [False, True])
def test_shapes_are_views_of_what_lies_in_order(turned):
    a = A.transpose(2, 1, 0) if turned else A
    found = vw.reshape.forward(a, shape=(6, 4))
    assert (found == a.reshape(6, 4)).all() and np.may_share_memory(found, a) != turned
    assert np.may_share_memory(vw.permute.forward(a, dims=(2, 0, 1)), a)
    assert (vw.permute.forward(a, dims=(2, 0, 1)) == a.transpose(2, 0, 1)).all()


def test_expanded_arrays_repeat_without_memory():
    a = A[:, :1]
    found = vw.expand.forward(a, shape=(5, 2, 3, 4))
    assert (found == np.broadcast_to(a, (5, 2, 3, 4))).all() and np.may_share_memory(found, a)


@pytest.mark.parametrize(
    "index", [(0,), (slice(None), slice(2, 0, -1)), (..., 1), (None, 1, slice(0, 4, 2)), (1, 2, 3)]
)
def test_what_is_taken_by_basic_indices_goes_back_there(index):
    found = np.asarray(vw.getitem.forward(A, index=index))
    assert (found == A[index]).all() and np.may_share_memory(found, A)
    back = vw.embed.forward(found, index=index, shape=A.shape)
    wanted = np.zeros_like(A)
    wanted[index] = A[index]
    assert (back == wanted).all()


def test_flips_rolls_and_triangles():
    assert (vw.flip.forward(A, dims=(0, 2)) == np.flip(A, (0, 2))).all()
    assert not np.may_share_memory(vw.flip.forward(A, dims=(0,)), A)
    assert (vw.roll.forward(A, shifts=(1, -2), dims=(1, 2)) == np.roll(A, (1, -2), (1, 2))).all()
    for k in (-1, 0, 2):
        assert (vw.tri.forward(A, k=k, upper=True) == np.triu(A, k)).all()
        assert (vw.tri.forward(A, k=k, upper=False) == np.tril(A, k)).all()
    padded = vw.pad_constant.forward(A, widths=((0, 0), (1, 0), (0, 2)), value=7.0)
    assert (padded == np.pad(A, ((0, 0), (1, 0), (0, 2)), constant_values=7.0)).all()


def test_parts_and_wholes():
    parts = vw.split.forward(A, dim=2, sizes=(1, 3))
    assert [p.shape for p in parts] == [(2, 3, 1), (2, 3, 3)]
    assert all(np.may_share_memory(p, A) for p in parts)
    assert (vw.cat.forward(*parts, dim=2, sizes=(1, 3)) == A).all()
    assert [p.tolist() for p in vw.unbind.forward(A, dim=1)] == [A[:, i].tolist() for i in range(3)]
