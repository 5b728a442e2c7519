"""Reading and writing by index: against numpy, errors, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import ops
from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.errors import DimError, DTypeError, ShapeError
from disttrain.ops.functions import gathering as index
from disttrain.ops.functions import repeating
from disttrain.ops.primitives import gathering
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
I = np.array([2, 0, 2])
J = np.array([[1], [-1]])


def _t(value):
    return wrap(np.array(value))


KEYS = {
    "one": (I,),
    "second": (slice(None), I),
    "two": (I, np.array([0, 3, 1])),
    "broadcast": (I, J),
    "apart": (I, slice(None), np.array([4, 0, 1])),
    "none": (None, I, None),
    "slices": (slice(1, None), I, slice(0, 4, 2)),
    "ellipsis": (Ellipsis, I),
    "list": ([0, -1],),
    "empty": ([],),
    "mask": (X[:, 0, 0] > 0,),
    "mask all": (X > 0,),
    "mask two": (X[..., 0] > 0,),
    "mask behind": (slice(None), X[0] > 0),
    "mask and index": (X[:, 0, 0] < 9, I),
}


def _as_items(key):
    return tuple(_t(k) if isinstance(k, np.ndarray) else k for k in key)


@pytest.mark.parametrize("name", KEYS)
def test_index_get_is_numpys(name):
    got = index.index_get(_t(X), _as_items(KEYS[name])).array
    np.testing.assert_array_equal(got, X[tuple(KEYS[name])])


def test_integers_are_taken_first():
    got = index.index_get(_t(X), (0, slice(None), _t(I)))
    np.testing.assert_array_equal(got.array, X[0][:, I])
    got = index.index_get(_t(X), (_t(I), slice(None), 1))
    np.testing.assert_array_equal(got.array, X[..., 1][I])


@pytest.mark.parametrize("name", KEYS)
def test_index_put_is_numpys(name):
    key = KEYS[name]
    for values in (7.0, np.arange(X[tuple(key)].size * 1.0).reshape(X[tuple(key)].shape)):
        want = X.copy()
        want[tuple(key)] = values
        value = values if isinstance(values, float) else _t(values)
        np.testing.assert_array_equal(index.index_put(_t(X), _as_items(key), value).array, want)


def test_index_put_accumulates_repeated_places():
    want = X.copy()
    np.add.at(want, (I,), 1.5)
    got = index.index_put(_t(X), (_t(I),), _t(1.5), accumulate=True)
    np.testing.assert_allclose(got.array, want)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((_t([0, 7]),), "index 7 is out of range for dimension 0 of size 3"),
        ((slice(None), _t([-5])), "index -5 is out of range for dimension 1 of size 4"),
        ((_t([True, False]),), "mask"),
        ((_t([0.5]),), "integers or booleans"),
        ((_t([0]),) * 4, "4 indices"),
        ((_t([0, 1]), _t([0, 1, 2])), "broadcast"),
        ((_t([0]), slice(None, None, -1)), "step"),
        ((_t([0]), 9), "index 9"),
    ],
)
def test_index_errors(items, words):
    with pytest.raises(DimError, match=words):
        index.index_get(_t(X), items)


def test_index_put_shape_error():
    with pytest.raises(ShapeError, match="broadcast"):
        index.index_put(_t(X), (_t(I),), _t(np.ones(7)))


def test_gather_and_its_kin():
    a, at = X[0], np.array([[0, 4, 4], [1, 1, 2]])
    np.testing.assert_array_equal(
        index.gather(_t(a), 1, _t(at)).array, np.take_along_axis(a[:2], at, 1)
    )
    down = np.array([[0, 3, 1], [2, 2, 0]])
    want = np.take_along_axis(a[:, :3], down, 0)
    np.testing.assert_array_equal(index.gather(_t(a), 0, _t(down)).array, want)
    best = a.argsort(1)
    np.testing.assert_array_equal(
        index.take_along_dim(_t(a), _t(best), 1).array, np.take_along_axis(a, best, 1)
    )
    assert index.take_along_dim(_t(a), _t([3])).array == a.reshape(-1)[3]
    with pytest.raises(DimError, match="index 9"):
        index.gather(_t(a), 1, _t([[9]]))
    with pytest.raises(ShapeError, match="larger"):
        index.gather(_t(a), 1, _t(np.zeros((6, 1), int)))
    with pytest.raises(DTypeError, match="integers"):
        index.gather(_t(a), 1, _t(np.zeros((1, 1))))


def test_scatter_and_scatter_add():
    a, at, src = X[0], np.array([[0, 4], [3, 2]]), RNG.normal(size=(2, 3))
    want = a.copy()
    np.put_along_axis(want[:2], at, src[:, :2], 1)
    np.testing.assert_array_equal(index.scatter(_t(a), 1, _t(at), _t(src)).array, want)
    np.put_along_axis(want[:2], at, 9.0, 1)
    np.testing.assert_array_equal(index.scatter(_t(a), 1, _t(at), 9.0).array, want)
    same = np.array([[1, 1, 1], [0, 2, 0]])
    want = a.copy()
    for i, j in np.ndindex(2, 3):
        want[i, same[i, j]] += src[i, j]
    np.testing.assert_allclose(index.scatter_add(_t(a), 1, _t(same), _t(src)).array, want)
    got = index.scatter(_t(a), 1, _t(same), _t(src), reduce="add")
    np.testing.assert_allclose(got.array, want)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    a, at, src = X[0, :2], np.array([[1, 1, 1], [0, 2, 0]]), RNG.normal(size=(2, 3))
    fold = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min}[reduce]
    want = a.copy()
    for i, j in np.ndindex(2, 5):
        parts = [src[i, k] for k in range(3) if at[i, k] == j]
        if parts:
            want[i, j] = fold(parts + [a[i, j]] * include_self)
    got = index.scatter_reduce(_t(a), 1, _t(at), _t(src), reduce, include_self=include_self)
    np.testing.assert_allclose(got.array, want)


def test_index_functions_along_a_dimension():
    np.testing.assert_array_equal(index.index_select(_t(X), 1, _t(I)).array, X[:, I])
    src = RNG.normal(size=(3, 3, 5))
    want = X.copy()
    np.add.at(want, (slice(None), I), 2 * src)
    np.testing.assert_allclose(index.index_add(_t(X), 1, _t(I), _t(src), alpha=2).array, want)
    want = X.copy()
    want[:, I] = -1
    np.testing.assert_array_equal(index.index_fill(_t(X), 1, _t(I), -1).array, want)
    want[:, I[:2]] = src[:, :2]
    got = index.index_copy(index.index_fill(_t(X), 1, _t(I), -1), 1, _t(I[:2]), _t(src[:, :2]))
    np.testing.assert_array_equal(got.array, want)
    np.testing.assert_array_equal(index.take(_t(X), _t([-1, 3])).array, X.reshape(-1)[[-1, 3]])
    with pytest.raises(DimError, match="size 4"):
        index.index_select(_t(X), 1, _t([4]))
    with pytest.raises(DimError, match=r"0\.\.3"):
        index.index_select(_t(X), 1, _t([-1]))


def test_masks():
    mask = X > 0
    np.testing.assert_array_equal(index.masked_select(_t(X), _t(mask)).array, X[mask])
    got = index.masked_fill(_t(X), _t(mask[0]), 3)
    np.testing.assert_array_equal(got.array, np.where(mask[0], 3, X))
    want = X.copy()
    want[mask] = np.arange(mask.sum())
    got = index.masked_scatter(_t(X), _t(mask), _t(np.arange(X.size * 1.0)))
    np.testing.assert_array_equal(got.array, want)
    with pytest.raises(DTypeError, match="boolean"):
        index.masked_fill(_t(X), _t(I), 0)


def test_functions_that_give_places():
    a = np.array([[0, 3, 0], [1, 0, 2]])
    np.testing.assert_array_equal(index.nonzero(_t(a)).array, np.argwhere(a))
    rows, columns = index.nonzero(_t(a), as_tuple=True)
    assert rows.tolist() == [0, 1, 1] and columns.tolist() == [1, 0, 2]
    assert index.one_hot(_t([1, 0])).tolist() == [[0, 1], [1, 0]]
    assert index.one_hot(_t([1]), 3).tolist() == [[0, 1, 0]]
    edges = _t([1.0, 2.0, 2.0, 5.0])
    assert index.searchsorted(edges, _t([2.0, 6.0])).tolist() == [1, 4]
    assert index.bucketize(_t([2.0]), edges, right=True).tolist() == [3]
    two = index.searchsorted(_t([[1.0, 2.0], [3.0, 4.0]]), _t([[1.5], [1.5]]))
    assert two.tolist() == [[1], [0]]
    assert repeating.repeat_interleave(_t([1, 2]), 2).tolist() == [1, 1, 2, 2]
    assert repeating.repeat_interleave(_t(a), _t([0, 2]), dim=0).tolist() == [[1, 0, 2]] * 2
    assert repeating.repeat_interleave(_t([2, 1])).tolist() == [0, 0, 1]
    assert repeating.repeat_interleave(_t([]), wrap(np.zeros(0, np.int64)), dim=0).tolist() == []


@pytest.mark.parametrize(
    ("n", "size", "d"),
    [(40, 5, 3), (400, 300, 70), (90, 3, 500), (300, 1000, 300), (50, 9, 1), (0, 4, 2)],
)
@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "f2"])
def test_add_rows_in_all_its_ways(n, size, d, kind):
    rng = np.random.default_rng(1)
    g, at = rng.integers(-4, 5, (n, d)).astype(kind), rng.integers(0, size, n)
    want = np.zeros((size, d), "f8")
    np.add.at(want, at, g)
    np.testing.assert_array_equal(gathering.add_rows(g, at, size), want.astype(kind))


def test_gradients():
    at = _t([[0, 1, 1], [3, 3, 2]])
    a, small, flat = X[0, :2], RNG.normal(size=(2, 3)), RNG.normal(size=6)
    check_gradients(lambda x: index.gather(x, 1, at) ** 2, a[:, :4])
    check_gradients(lambda x, y: index.scatter_add(x, 1, at, y) ** 2, a, small)
    there = _t([[0, 1, 2], [3, 0, 2]])
    check_gradients(lambda x, y: index.scatter(x, 1, there, y) ** 2, a, small)
    check_gradients(lambda x: index.index_select(x, 1, _t(I)) ** 2, a)
    check_gradients(lambda x, y: index.index_add(x, 1, _t(I), y) ** 2, a, small)
    check_gradients(lambda x: index.index_get(x, (_t([1, 1]), slice(1, 4), _t([0, 2]))) ** 2, X)
    check_gradients(lambda x: index.index_get(x, (_t(X > 0),)) ** 2, X)
    for accumulate in (False, True):
        places = _t([0, 0, 5]) if accumulate else _t([0, 3, 5])
        check_gradients(
            lambda x, y, p=places, c=accumulate: index.index_put(x, (p,), y, accumulate=c) ** 2,
            flat,
            np.array([1.0, 2, 3]),
        )
    check_gradients(lambda x, v: index.masked_fill(x, _t(a > 0), v) ** 2, a, np.array(2.0))


def test_setitem_and_getitem_through_tensor():
    x = wrap(X.copy()).requires_grad_()
    y = x * 1.0
    y[:, _t(I)] = 0.0
    y[y > 1] = 5.0
    (y * y).sum().backward()
    want = X.copy()
    want[:, I] = 0
    np.testing.assert_allclose(x.grad.array, np.where(want > 1, 0, 2 * want))


def test_meta_tensors_have_shapes():
    x = ops.create.zeros(3, 4, 5, device="meta")
    assert tuple(index.index_get(x, (_t(I), slice(None), _t(I))).shape) == (3, 4)
    assert tuple(index.gather(x, 2, _t(np.zeros((3, 4, 2), int))).shape) == (3, 4, 2)
    assert dtypes.int64 is index.one_hot(_t([1])).dtype


def test_values_of_another_type_are_converted_without_index_tensors_only():
    def half():
        return wrap(np.arange(6.0).reshape(2, 3).astype(np.float16))

    x = half()
    x[True] = wrap(np.ones((2, 3)))
    assert x.array.sum() == 6
    x[wrap(np.array([True, False]))] = wrap(np.array([[7]]))
    assert x[0].tolist() == [7, 7, 7]
    for at, value in (([1, 0], np.array(2.5)), (wrap(np.array([1])), np.ones(3))):
        with pytest.raises(DTypeError, match="same type"):
            half()[at] = wrap(value)
