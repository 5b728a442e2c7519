"""What vmap is told of dimensions: spread over leaves, or refused with what is wrong."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DimError
from disttrain.func import batch_dims, vmap

X, Y = dt.ones(2, 3), dt.ones(3, 2)


@pytest.mark.parametrize(
    ("given", "args", "found"),
    [
        (0, (X, Y), [0, 0]),
        ((0, None), (X, [Y, 2]), [0, None, None]),
        (([0, 1], {"a": None}), ([X, Y], {"a": 3}), [0, 1, None]),
        ((0, None), (X, None), [0, None]),
    ],
)
def test_an_entry_stands_for_all_below_it(given, args, found):
    assert batch_dims.spread_in(given, args) == found


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: vmap(dt.mul, [0, 0])(X, X), "expected `in_dims` to be int or"),
        (lambda: vmap(dt.mul, "no")(X, X), "expected `in_dims` to be int or"),
        (lambda: vmap(lambda: X)(), "got no inputs"),
        (lambda: vmap(dt.mul, (0,))(X, X), "not compatible with the structure of `inputs`"),
        (lambda: vmap(lambda z: z[0], ((0, 0),))([X, X]), "not compatible with the structure"),
        (lambda: vmap(dt.sum)(X, 0), "Got in_dim=0 for an input but the input is of type"),
        (lambda: vmap(dt.sin, (1.0,))(X), "must be either an integer dimension"),
        (lambda: vmap(dt.sin, -3)(X), "Got in_dim=-3 for some input"),
        (lambda: vmap(dt.sin)(dt.tensor(1.0)), "dimensionality 0"),
        (lambda: vmap(dt.sin, (None,))(X), "at least one Tensor"),
        (lambda: vmap(dt.add)(X, Y), "have the same size in the mapped dimension"),
        (lambda: vmap(dt.sin, out_dims="no")(X), "must be an int, None or a python collection"),
        (lambda: vmap(lambda x: (x, x), out_dims=(0,))(X), "not compatible"),
        (lambda: vmap(lambda x: x, out_dims=(0, 0))(X), "not compatible"),
        (lambda: vmap(lambda x: 3.0)(X), "must only return Tensors, got type <class 'float'>"),
        (lambda: vmap(lambda x: None)(X), "must only return Tensors"),
        (lambda: vmap(dt.sin, out_dims=None)(X), "can not return a BatchedTensor"),
        (lambda: vmap(dt.sin, chunk_size=0)(X), "chunk_size should be None or greater than 0"),
        (lambda: vmap(dt.sin, randomness="no"), "Only allowed values for randomness"),
    ],
)
def test_what_cannot_be_is_refused(call, match):
    with pytest.raises(ValueError, match=match) as info:
        call()
    assert isinstance(info.value, RuntimeError)


@pytest.mark.parametrize("place", [2, -3])
def test_a_place_in_the_result_must_be_there(place):
    with pytest.raises(DimError, match="Dimension out of range"):
        vmap(lambda x: x, out_dims=place)(X)


def test_one_result_for_all_need_not_be_a_tensor():
    found = vmap(lambda x: (x, "text", None), out_dims=(1, None, None))(X)
    assert found[0].tolist() == X.T.tolist() and found[1:] == ("text", None)
    assert vmap(lambda x: x, out_dims=(1,))(X).shape == (3, 2)
    assert vmap(lambda x: dt.arange(2), out_dims=None)(X).tolist() == [0, 1]


def test_kinds_of_containers_must_be_the_same():
    assert batch_dims.matched((0, 1), [X, X]) is None
    assert batch_dims.matched([0, 1], [X, X]) == [0, 1]
    with pytest.raises(ConfigError):
        batch_dims.check_out_dims((0, True))
