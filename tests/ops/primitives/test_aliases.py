"""Views that share memory with what they show, and what is the inverse of each."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import aliases as al


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize(("dim1", "dim2"), [(0, 1), (1, 0), (2, 0)])
def test_diagonals_are_numpys_and_lie_in_the_array(offset, dim1, dim2):
    a = drawn(3, 4, 5)
    found = al.diagonal.forward(a, offset=offset, dim1=dim1, dim2=dim2)
    assert (found == np.diagonal(a, offset, dim1, dim2)).all()
    assert found.size == 0 or np.may_share_memory(found, a)
    whole = al.diagonal_embed.forward(found, offset=offset, dim1=dim1, dim2=dim2, shape=a.shape)
    assert (np.diagonal(whole, offset, dim1, dim2) == found).all()
    assert np.count_nonzero(whole) == found.size


def test_windows_overlap_and_add_up_again():
    a = drawn(2, 7)
    found = al.unfold.forward(a, dim=1, size=3, step=2)
    assert found.shape == (2, 3, 3) and np.may_share_memory(found, a)
    assert all((found[:, i] == a[:, 2 * i : 2 * i + 3]).all() for i in range(3))
    back = al.fold_windows.forward(np.ones((2, 3, 3)), dim=1, size=3, step=2, shape=a.shape)
    assert back.tolist() == [[1, 1, 2, 1, 2, 1, 1]] * 2


def test_complex_numbers_are_pairs():
    a = drawn(3, 2)
    z = al.view_as_complex.forward(a)
    assert (z == a[:, 0] + 1j * a[:, 1]).all() and np.may_share_memory(z, a)
    assert (al.view_as_real.forward(z) == a).all()
    assert (al.real.forward(z) == a[:, 0]).all() and (al.imag.forward(z) == a[:, 1]).all()


def test_memory_by_strides_and_back():
    a = drawn(12).reshape(3, 4)
    layout = al.Layout(first=0, stride=(4, 1), total=12)
    how = {"size": (2, 3), "stride": (5, 1), "offset": 1, "layout": layout}
    found = al.as_strided.forward(a, **how)
    assert found.tolist() == [a.flat[1:4].tolist(), a.flat[6:9].tolist()]
    back = al.unstride.forward(np.ones((2, 3)), **how, shape=a.shape)
    assert np.flatnonzero(back).tolist() == [1, 2, 3, 6, 7, 8]


def test_what_overlaps_itself():
    a = np.zeros(6)
    assert not al.overlaps_itself(a.reshape(2, 3)) and not al.overlaps_itself(a[::2])
    assert al.overlaps_itself(np.broadcast_to(a, (2, 6)))
