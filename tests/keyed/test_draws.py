"""Draws as operations."""

from __future__ import annotations

from functools import partial

import pytest

import disttrain as dt
from disttrain.graphs import Function
from disttrain.keyed import streams
from disttrain.keyed.draws import DrawnStream, Draws

DRAWS = Draws()


@pytest.fixture(autouse=True)
def seeds():
    yield
    streams.begin(None)


def test_of_two_seeds():
    seed = partial(DRAWS.of_seed, [1, 2])
    one = DRAWS.uniform(seed, "Uniform", [3], 2.0, 4.0, dt.float64)
    assert one.dtype is dt.float64 and bool(((one >= 2) & (one < 4)).all())
    assert dt.equal(one, DRAWS.uniform(seed, "Uniform", dt.tensor([3]), 2.0, 4.0, dt.float64))
    whole = DRAWS.uniform(seed, "Uniform", 50, 2, dt.tensor(5), dt.int32)
    assert set(whole.tolist()) == {2, 3, 4}
    narrow = DRAWS.truncated_normal(seed, "Narrow", [500], 1.0, 0.5, dt.float32)
    wide = DRAWS.normal(seed, "Normal", [500], 1.0, 0.5, dt.float32)
    assert (narrow - 1).abs().max() <= 1.0 < (wide - 1).abs().max()
    pairs = DRAWS.split([1, 2], 3)
    assert pairs.shape == (3, 2) and pairs.dtype is dt.int64
    assert DRAWS.fold_in([1, 2], 7).tolist()[1] == 7
    with pytest.raises(ValueError, match="shape"):
        DRAWS.of_seed([1], "Uniform", [2], dt.float32, None)
    with pytest.raises(ValueError, match="maxval"):
        DRAWS.uniform(seed, "Uniform", [2], 0, None, dt.int64)


def test_of_seeds_and_streams():
    streams.begin(3)
    numbers = lambda: DRAWS.uniform(
        partial(DRAWS.of_seeds, None), "Uniform", [2], 0, None, dt.float32).tolist()  # fmt: skip
    first = numbers()
    assert first != numbers()
    streams.begin(3)
    assert numbers() == first
    stream = streams.Stream.from_seed(3)
    assert DRAWS.seeds_of(stream, 2).tolist()[1] == [0, 0] and stream.get() == [515, 0, 0]


def test_numbers_of_a_traced_function_go_on():
    streams.begin(5)
    draw = lambda: DRAWS.normal(
        partial(DRAWS.of_seeds, None), "Normal", [2], 0.0, 1.0, dt.float32)  # fmt: skip
    traced = Function(lambda: draw())
    assert traced().tolist() != traced().tolist()
    sized = Function(lambda n: DRAWS.uniform(
        partial(DRAWS.of_seed, [1, 2]), "Uniform", n, 0.0, 1.0, dt.float32))  # fmt: skip
    assert [tuple(sized(dt.tensor(s)).shape) for s in ([2], [5])] == [(2,), (5,)]


def test_a_stream_draws_by_operations():
    one, other = DrawnStream.from_seed(4), DrawnStream.from_seed(4)
    assert one.uniform([2], 1, 3, "int32").dtype is dt.int32
    other.taken(2)
    assert one.normal([2], 1.0).tolist() == other.normal([2], 1.0).tolist()
    assert one.truncated_normal([2]).shape == (2,) and one.uniform_full_int([2]).dtype is dt.uint64
    assert one.make_seeds(3).shape == (2, 3)
    traced = Function(lambda: one.uniform([2]))
    assert traced().tolist() != traced().tolist()


def test_functions_of_seeds():
    for word in ("uniform", "normal", "truncated_normal"):
        of_seed = getattr(DRAWS, f"{word}_of_seed")
        assert of_seed([2], [1, 2]).tolist() == of_seed([2], seed=[1, 2]).tolist()
        streams.begin(2)
        first = getattr(DRAWS, f"{word}_of_seeds")([3], dtype="float64")
        streams.begin(2)
        again = getattr(DRAWS, f"{word}_of_seeds")([3], dtype="float64")
        assert first.dtype is dt.float64 and dt.equal(first, again)
    assert DRAWS.uniform_of_seeds([50], 1, 3, "int32", 7).unique().tolist() == [1, 2]
