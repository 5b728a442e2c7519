"""Reduction operators: definition, order, narrow types, aliasing, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import OUT, ReduceOp, make_reducer, premul_sum
from disttrain.comm.calls.reduce_ops import tree as steps_of
from disttrain.errors import ConfigError, DTypeError

F4 = np.dtype("f4")


def reduce(op, parts, out=None):
    out = np.empty_like(parts[0]) if out is None else out
    make_reducer(op, parts[0].dtype, len(parts))(parts, out)
    return out


def tree(parts):
    """The order, spelled out as its own recursion: the left branch is the largest power of two."""
    if len(parts) == 1:
        return parts[0]
    cut = max(2**i for i in range(8) if 2**i < len(parts))
    return tree(parts[:cut]) + tree(parts[cut:])


@pytest.mark.parametrize("dtype", [F4, np.dtype("f8"), np.dtype("c8")])
def test_sums_are_balanced_trees_whatever_is_overwritten(dtype):
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(70_003).astype(dtype) for _ in range(8)]
    for n in range(1, 9):
        want = tree(parts[:n]).tobytes()
        for i in range(n):
            mine = [p.copy() for p in parts[:n]]
            assert reduce(ReduceOp.SUM, mine, mine[i]).tobytes() == want


def test_steps_overwrite_the_result_only_when_its_part_was_read():
    for n in range(2, 17):
        for own in (None, *range(n)):
            places = {i: frozenset([i]) for i in range(n)}
            for left, right, place in steps_of(n, own):
                if own is not None and OUT in (left, right, place):
                    places.setdefault(OUT, places[own])
                joined = places[left] | places[right]
                assert len(joined) == len(places[left]) + len(places[right])
                assert place != OUT or own is None or own in joined
                places[place] = joined
            assert places[OUT] == frozenset(range(n))
            assert max(places) < n + n.bit_length()


def test_a_rank_may_bring_the_sum_of_a_subtree():
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal(1000).astype(F4) for _ in range(8)]
    whole = reduce(ReduceOp.SUM, parts)
    for each in (2, 4):
        sums = [reduce(ReduceOp.SUM, parts[i : i + each]) for i in range(0, 8, each)]
        assert reduce(ReduceOp.SUM, sums).tobytes() == whole.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_rounded_once(dtype):
    """16 halves of the last place: rounding after each step would lose all of them."""
    one, step = np.ones(3, dtype), np.full(3, float(ml_dtypes.finfo(dtype).eps) / 2).astype(dtype)
    got = reduce(ReduceOp.SUM, [one] + [step] * 16)
    want = np.ones(3, F4) + 16 * step.astype(F4)
    assert (got == want.astype(dtype)).all() and (got != one).all()


def test_average_and_scaled_sum():
    parts = [np.full(4, float(i), F4) for i in (1, 2, 4)]
    assert (reduce(ReduceOp.AVG, parts) == F4.type(7) / F4.type(3)).all()
    assert (reduce(premul_sum(0.25), parts) == 1.75).all()
    ints = [np.full(4, i) for i in (1, 2, 4)]
    assert (reduce(premul_sum(3), ints) == 21).all()


def test_overflow_and_nan_are_results_not_warnings():
    big = np.array([3e38, np.inf, np.nan, 1], F4)
    got = reduce(ReduceOp.SUM, [big, big * np.array([1, -1, 1, 1], F4)])
    assert np.isinf(got[0]) and np.isnan(got[1]) and np.isnan(got[2]) and got[3] == 2
    assert np.isnan(reduce(ReduceOp.MAX, [big, np.zeros(4, F4)])[2])
    half = np.array([6e4], np.float16)
    assert np.isinf(reduce(ReduceOp.SUM, [half, half]))[0]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (ReduceOp.AVG, np.int32),
        (ReduceOp.AVG, bool),
        (ReduceOp.MIN, np.complex64),
        (ReduceOp.BXOR, np.float32),
        (ReduceOp.BAND, ml_dtypes.bfloat16),
        (premul_sum(0.5), np.int64),
        (premul_sum(2), bool),
    ],
)
def test_operators_without_a_meaning(op, dtype):
    with pytest.raises(DTypeError, match=r"was given; needed is"):
        make_reducer(op, np.dtype(dtype), 2)


def test_factors_are_numbers():
    with pytest.raises(ConfigError, match="real number"):
        premul_sum("2")
    assert str(premul_sum(np.float32(2))) == "PREMUL_SUM(2.0)"


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_products_have_the_same_bits_wherever_they_lie(dtype):
    """On some transports every rank reduces all data, each with its own part as the result."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 4):
        for size in (1, 5, 16):
            parts = [(rng.normal(size=size) + 1j * rng.normal(size=size)).astype(dtype)
                     for _ in range(n)]  # fmt: skip
            want = reduce(ReduceOp.PRODUCT, parts)
            np.testing.assert_allclose(want, np.prod(parts, axis=0), rtol=1e-5)
            for own in range(n):
                mine = [part.copy() for part in parts]
                for other in set(range(n)) - {own}:
                    room = np.empty(parts[0].nbytes + 8, np.uint8)
                    mine[other] = room[8:].view(dtype)
                    mine[other][:] = parts[other]
                reduce(ReduceOp.PRODUCT, mine, out=mine[own])
                assert mine[own].tobytes() == want.tobytes(), (n, size, own)


def test_a_reducer_ignores_what_numpy_would_warn_of_and_nobody_else_does():
    reduce = make_reducer(ReduceOp.SUM, np.dtype(np.float32), 2)
    parts = [np.array([np.inf, 3e38], np.float32), np.array([-np.inf, 3e38], np.float32)]
    out = np.empty(2, np.float32)
    with np.errstate(all="raise"):
        reduce(parts, out)
        assert set(np.geterr().values()) == {"raise"}
    assert np.isnan(out[0]) and np.isinf(out[1])
