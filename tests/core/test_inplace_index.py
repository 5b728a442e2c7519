"""``x[...] = value`` and ``x[...] op= value``, with indices of every kind: numpy says what is
written where, and the gradient of ``value`` is read from the same places."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError, DimError, DTypeError, ShapeError

SHAPE = (3, 4, 2)
INDICES = {
    "int": 1, "negative": -1, "ints": (1, 2), "all ints": (0, -1, 1), "slice": slice(1, None),
    "step": (slice(None), slice(0, None, 2)), "reversed ends": slice(-2, -1),
    "Ellipsis": (Ellipsis, 0), "bare Ellipsis": Ellipsis, "None": (None, 1), "Nones": (
        slice(None), None, 2, None), "empty slice": slice(2, 2), "tuple": (), "list": [0, 2],
    "index": np.array([2, 0]), "negative index": np.array([-1, 0]), "2-d index": np.array(
        [[0, 1], [2, 2]]), "two indices": (np.array([0, 1]), np.array([3, 0])),
    "broadcast indices": (np.array([[0], [2]]), np.array([1, 3])),
    "index behind a slice": (slice(None), np.array([1, 3])),
    "index and int": (np.array([0, 2]), 1), "int and index": (1, np.array([3, 0])),
    "indices apart": (np.array([0, 1]), slice(None), np.array([1, 0])),
    "index and None": (None, np.array([0, 1])), "0-d index": np.array(1),
    "mask": np.arange(24).reshape(SHAPE) % 5 == 0, "row mask": np.array([True, False, True]),
    "mask behind": (slice(None), np.array([True, False, True, True])),
    "mask of two": np.arange(12).reshape(3, 4) % 2 == 0, "no mask": np.zeros(3, bool),
    "mask and int": (np.array([True, False, True]), 1), "True": True, "False": False,
}  # fmt: skip
UNIQUE = {n: i for n, i in INDICES.items() if n != "2-d index"}  # one place is named twice there


def ours(index):
    """The index with tensors in place of arrays."""
    if isinstance(index, tuple):
        return tuple(ours(i) for i in index)
    return dt.tensor(index) if isinstance(index, np.ndarray) else index


def base():
    return np.arange(24.0).reshape(SHAPE)


@pytest.mark.parametrize("name", INDICES)
def test_a_number_is_written(name):
    want, x = base(), dt.tensor(base())
    want[INDICES[name]] = -1
    x[ours(INDICES[name])] = -1
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("name", UNIQUE)
def test_a_tensor_is_written_and_gets_its_gradient(name):
    index, rng = INDICES[name], np.random.default_rng(0)
    part = base()[index]
    values, weight = rng.normal(size=part.shape), rng.normal(size=SHAPE)
    x = dt.tensor(base(), requires_grad=True)
    v = dt.tensor(values, requires_grad=True)
    y = x * 2
    y[ours(index)] = v
    want = base() * 2
    want[index] = values
    np.testing.assert_array_equal(y.detach().numpy(), want)
    (y * dt.tensor(weight)).sum().backward()
    outside = 2 * weight
    outside[index] = 0
    np.testing.assert_allclose(x.grad.numpy(), outside)
    np.testing.assert_allclose(v.grad.numpy(), weight[index])


@pytest.mark.parametrize("name", UNIQUE)
def test_a_value_is_broadcast(name):
    index = INDICES[name]
    part = base()[index]
    value = np.arange(float(part.shape[-1])) if part.ndim else np.array(3.0)
    want = base()
    want[index] = value
    v = dt.tensor(value, requires_grad=True)
    x = dt.tensor(base())
    x[ours(index)] = v
    np.testing.assert_array_equal(x.detach().numpy(), want)
    x.sum().backward()
    rows = part.size // value.size if value.size else 0
    np.testing.assert_allclose(v.grad.numpy(), np.full(value.shape, float(rows)))


@pytest.mark.parametrize("name", UNIQUE)
def test_an_update_in_place(name):
    index = INDICES[name]
    want, weight = base(), np.random.default_rng(1).normal(size=SHAPE)
    want[index] *= 3
    x = dt.tensor(base(), requires_grad=True)
    y = x * 1
    y[ours(index)] *= 3
    np.testing.assert_array_equal(y.detach().numpy(), want)
    (y * dt.tensor(weight)).sum().backward()
    factor = np.ones(SHAPE)
    factor[index] = 3
    np.testing.assert_allclose(x.grad.numpy(), weight * factor)


def test_types_are_converted_for_views_and_must_match_for_gathered_places():
    x = dt.zeros(3)
    x[1:] = dt.tensor([1, 2])
    x[0] = True
    assert x.tolist() == [1, 1, 2]
    whole = dt.zeros(2, dtype=dt.int64)
    whole[0] = 2.7
    assert whole.tolist() == [2, 0]
    with pytest.raises(DTypeError, match="same type"):
        x[dt.tensor([0, 1])] = dt.ones(2, dtype=dt.float64)
    x[dt.tensor([0, 1])] = 5
    x[x > 4] = 0.5
    assert x.tolist() == [0.5, 0.5, 2]


def test_a_list_of_sequences_is_a_tuple():
    x = dt.arange(24.0).reshape(4, 6).clone()
    for index in ([[0, 1], [1, 2]], [dt.tensor([0, 1]), dt.tensor([1, 2])]):
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            assert x[index].tolist() == [1, 8]
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            x[index] = dt.tensor([1.0, 8.0])
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[0, None]].shape == (1, 6)
    assert x[[0, 1]].shape == (2, 6) and x[dt.tensor([[0, 1]])].shape == (1, 2, 6)


def test_byte_masks_still_work_and_warn():
    x = dt.arange(3.0)
    with pytest.warns(UserWarning, match="uint8"):
        assert x[dt.tensor([1, 0, 1], dtype=dt.uint8)].tolist() == [0, 2]
    assert x[dt.tensor(0, dtype=dt.uint8)].shape == (0, 3)


def test_leading_ones_of_a_value_are_dropped():
    x = dt.zeros(2, 3)
    x[0] = dt.ones(1, 1, 3)
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_repeated_places():
    x = dt.zeros(3)
    x[dt.tensor([0, 0, 1])] += 1  # read once, written once
    assert x.tolist() == [1, 1, 0]
    x.index_put_((dt.tensor([0, 0, 1]),), dt.ones(3), accumulate=True)
    assert x.tolist() == [3, 2, 0]


@pytest.mark.parametrize(
    ("index", "value", "kind"),
    [
        (5, 0.0, DimError),
        ((0, 0, 0, 0), 0.0, DimError),
        (slice(None, None, -1), 0.0, DimError),
        (np.array([3]), 0.0, DimError),
        (np.array([True, False]), 0.0, DimError),
        (0, np.zeros(3), ShapeError),
        (0, np.zeros((2, 4, 2)), ShapeError),
        (np.array([0, 1]), np.zeros((3, 4, 2)), ShapeError),
    ],
)
def test_what_cannot_be_written(index, value, kind):
    x = dt.tensor(base())
    with pytest.raises(kind):
        x[ours(index)] = dt.tensor(value) if isinstance(value, np.ndarray) else value


def test_a_leaf_that_requires_grad_is_refused():
    x = dt.zeros(3, requires_grad=True)
    for index in (0, slice(1), dt.tensor([0]), dt.tensor([True, False, False])):
        with pytest.raises(AutogradError, match="leaf"):
            x[index] = 1.0
    with dt.no_grad():
        x[0] = 1.0
    assert x.tolist() == [1, 0, 0]


def test_a_write_to_a_part_of_what_a_rule_keeps_is_refused():
    x = dt.ones(3, requires_grad=True)
    y = x.exp()
    y[1] = 0.0
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()
