"""Parts of tensors, put together and taken apart."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import pieces
from disttrain.errors import DimError

X = dt.arange(6).reshape(2, 3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: pieces.reshape(X, [4]), "6 values, but the requested shape has 4"),
    (lambda: pieces.reshape(X, [-1, 4]), "requires a multiple of 4"),
    (lambda: pieces.ensured(X, [None, 2]), r"\(2, 3\) is not compatible .* \(None, 2\)"),
    (lambda: pieces.transpose(X, [0]), "vector of size 2"),
    (lambda: pieces.expand_dims(X, 4), "expand dim index 4"),
    (lambda: pieces.squeeze(X, 0), "expected a dimension of 1, got 2"),
    (lambda: pieces.concat([X, X[0]], 0), "Ranks of all"),
    (lambda: pieces.concat([X, X[:, :2]], 0), "Dimension 1 in both"),
    (lambda: pieces.stack([X, X[0]]), "must match"),
    (lambda: pieces.split(X, 2, 1), "evenly divide"),
    (lambda: pieces.tile(X, [2]), "vector of length 2"),
    (lambda: pieces.slice_at(X, [0, 2], [1, 2]), "Expected begin and size"),
    (lambda: pieces.take(X, dt.tensor([[0, 3]])), r"indices\[0,1\] = 3 is not in \[0, 2\)"),
    (lambda: pieces.filled([2], X), "must be a scalar"),
    (lambda: pieces.read(X, [5]), "slice index 5 of dimension 0"),
    (lambda: pieces.read(X, [0, 0, 0]), "only 2 dims"),
    (lambda: pieces.arange(dt.tensor(3), dt.tensor(1), dt.tensor(1)), "start <= limit"),
])  # fmt: skip
def test_what_does_not_go_together(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reading():
    whole = X.numpy()
    for keys in ([0], [slice(None, None, -1)], [..., 1], [None, 1, slice(2, 0, -1)], [-1, ...]):
        assert np.array_equal(pieces.read(X, keys), whole[tuple(keys)])
    texts = np.array([b"a", b"b"], object)
    assert pieces.read(texts, [1]).item() == b"b"


def test_parts():
    assert [p.tolist() for p in pieces.split(X, [1, -1], 1)] == [[[0], [3]], [[1, 2], [4, 5]]]
    assert pieces.slice_at(X, [0, 1], [-1, 2]).tolist() == [[1, 2], [4, 5]]
    assert pieces.take(X, dt.tensor([2, 0]), 1).tolist() == [[2, 0], [5, 3]]
    assert pieces.boolean_mask(X, dt.tensor([True, False, True]), 1).tolist() == [[0, 2], [3, 5]]
    assert len(pieces.unstack(X, 1)) == 3


def test_texts_are_taken():
    texts = np.array([[b"a", b"b"], [b"c", b"d"]], object)
    assert pieces.take(texts, dt.tensor([1, 0]), 1).tolist() == [[b"b", b"a"], [b"d", b"c"]]
    assert pieces.take(texts, dt.tensor([1])).tolist() == [[b"c", b"d"]]
    assert pieces.take(texts[0], dt.tensor(1)).shape == ()
    with pytest.raises(DimError, match=r"indices\[0\] = 2 is not in \[0, 2\)"):
        pieces.take(texts, dt.tensor([2]))


def test_making():
    assert pieces.linspace(dt.tensor(0.0), dt.tensor(1.0), 3).tolist() == [0.0, 0.5, 1.0]
    assert pieces.arange(dt.tensor(5), dt.tensor(1), dt.tensor(-2)).tolist() == [5, 3]
    assert pieces.eyes(1, 2, [2], dt.float32).tolist() == [[[1.0, 0.0]]] * 2
    assert pieces.one_hot(dt.tensor([1, -1]), 2, kind=dt.int32).tolist() == [[0, 1], [0, 0]]
    assert pieces.one_hot(
        dt.tensor([1]), 2, dt.tensor(5), dt.tensor(4), 0, dt.float32
    ).tolist() == [[4.0], [5.0]]
    mask = pieces.sequence_mask(dt.tensor([1, 3]), None, dt.bool)
    assert mask.tolist() == [[True, False, False], [True] * 3]
    assert pieces.pad(X, [[1, 0], [0, 1]], "CONSTANT", 9).tolist()[0] == [9, 9, 9, 9]
    assert pieces.pad(X, [[0, 0], [1, 1]], "REFLECT").tolist()[0] == [1, 0, 1, 2, 1]
    assert pieces.repeat(dt.tensor([1, 2]), [2, 1]).tolist() == [1, 1, 2]


def test_subscripts_that_tensors_hold():
    one, last = dt.tensor(1), dt.tensor(-1)
    for keys in ((one,), (..., one), (slice(None, None, last), None, one), (0, slice(one, None))):
        plan, held = pieces.planned(keys, lambda t: t)
        plain = tuple(
            slice(*(b and int(b) for b in (k.start, k.stop, k.step))) if isinstance(k, slice)
            else int(k) if isinstance(k, dt.Tensor) else k for k in keys
        )  # fmt: skip
        assert pieces.read_at(X, plan, held).tolist() == X.numpy()[plain].tolist()
        assert len(held) == sum(isinstance(k, (dt.Tensor, slice)) for k in keys)
    for odd in (True, "a", 1.5):
        with pytest.raises(ZeroDivisionError):
            pieces.planned((odd,), lambda t: 1 / 0)


def test_sizes_and_copies():
    assert pieces.shape(X, dt.int32).tolist() == [2, 3] and pieces.size(X, dt.int32).item() == 6
    assert pieces.reverse(X, 1).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert dt.equal(pieces.reverse(pieces.reverse(X, [0, 1]), [0, 1]), X)
    assert pieces.broadcast_to(X, [2, 2, 3]).shape == (2, 2, 3)
    assert pieces.range_of(dt.tensor(3)).tolist() == [0, 1, 2]
    wide = pieces.range_of(dt.tensor(1, dtype=dt.int32), dt.tensor(2.0), dt.tensor(0.5))
    assert wide.tolist() == [1.0, 1.5] and wide.dtype is dt.float32
    assert pieces.range_of(dt.tensor(2), kind=dt.float64).dtype is dt.float64
    texts = pieces.filled([2], np.array(b"a", object))
    assert texts.tolist() == [b"a", b"a"] and texts.dtype == object
    assert pieces.filled_up(X, (3, 2)).shape == (3, 2)
    assert pieces.filled_up(dt.tensor(2), (2, 2)).tolist() == [[2, 2]] * 2
    with pytest.raises(TypeError, match=r"6 elements, but got `shape` \(2,\) with 2"):
        pieces.filled_up(X, (2,))
    assert pieces.alike(X, 1, dt.float32).tolist() == [[1.0] * 3] * 2
    assert pieces.where(X == 4).tolist() == [[1, 1]]
    assert pieces.where(X > 1, X, -X).tolist() == [[0, -1, 2], [3, 4, 5]]
    assert [g.shape for g in pieces.meshgrid(X[0], X[:, 0])] == [(2, 3)] * 2
