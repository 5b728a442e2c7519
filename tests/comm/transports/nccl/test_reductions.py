"""What NCCL reduces itself, and what is folded from copies: against the CPU's reducers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, make_reducer, premul_sum
from disttrain.comm.transports.nccl.reductions import Native, fold, native
from disttrain.errors import DTypeError

pytestmark = pytest.mark.simulated

HOPPER = 9


def of(op, dtype, major=HOPPER):
    return native(op, np.dtype(dtype), 4, major)


def test_numbers_are_nccl_s_under_its_names():
    assert of(ReduceOp.SUM, "f4") == Native("FLOAT32", "SUM")
    assert of(ReduceOp.PRODUCT, "i8") == Native("INT64", "PROD")
    assert of(ReduceOp.AVG, ml_dtypes.bfloat16) == Native("BFLOAT16", "AVG")
    assert of(ReduceOp.MIN, "u1") == Native("UINT8", "MIN")


def test_truth_is_bytes_of_which_the_greatest_is_or_and_the_least_is_and():
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR):
        assert of(op, bool) == Native("UINT8", "MAX"), op
    for op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.BAND):
        assert of(op, bool) == Native("UINT8", "MIN"), op
    rows = [np.array([a, b]) for a in (False, True) for b in (False, True)]
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR, ReduceOp.PRODUCT, ReduceOp.BAND):
        want = np.zeros(2, bool)
        make_reducer(op, np.dtype(bool), 4)(rows, want)
        fewest = getattr(np, {"MAX": "maximum", "MIN": "minimum"}[of(op, bool).op])
        as_bytes = fewest.reduce([row.view(np.uint8) for row in rows])
        assert as_bytes.astype(bool).tolist() == want.tolist(), op


def test_complex_numbers_are_pairs_of_which_products_are_folded():
    assert of(ReduceOp.SUM, "c8") == Native("FLOAT32", "SUM", None, 2)
    assert of(ReduceOp.PRODUCT, "c16") is None
    assert of(premul_sum(0.5), "c8") == Native("FLOAT32", "", 0.5, 2)


def test_what_nccl_lacks_is_folded():
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        assert of(op, "i4") is None, op
    assert of(ReduceOp.SUM, "i2") is None


def test_eight_bits_need_hopper():
    e4, foreign = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz
    assert of(ReduceOp.SUM, e4) == Native("FLOAT8E4M3", "SUM")
    with pytest.raises(DTypeError, match=r"compute capability 8 was given; .* from 9.0 on"):
        of(ReduceOp.SUM, e4, 8)
    with pytest.raises(DTypeError, match="Convert it to bfloat16"):
        of(ReduceOp.SUM, foreign)


def test_what_has_no_meaning_is_refused_as_on_the_cpu():
    for op, dtype in ((ReduceOp.BAND, "f4"), (ReduceOp.MAX, "c8")):
        with pytest.raises(DTypeError):
            make_reducer(op, np.dtype(dtype), 4)
        with pytest.raises(DTypeError):
            of(op, dtype)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_a_fold_takes_every_rank_once(ranks):
    rng = np.random.default_rng(ranks)
    rows = [rng.integers(0, 1 << 30, 6, dtype=np.int32) for _ in range(ranks)]
    for op, join in (
        (ReduceOp.BXOR, np.bitwise_xor),
        (ReduceOp.BAND, np.bitwise_and),
        (ReduceOp.MAX, np.maximum),
    ):
        out = np.zeros(6, np.int32)
        fold(rows, op, out)
        assert out.tolist() == join.reduce(rows).tolist(), op


def test_neighbours_are_folded_first():
    class Seen:
        dtype = np.dtype("c8")

        def __init__(self, text):
            self.text = text

        def __array_ufunc__(self, ufunc, method, a, b, **more):
            return Seen(f"({a.text}{b.text})")

        def __mul__(self, other):
            return Seen(f"({self.text}{other.text})")

    out = np.empty(1, object)
    fold([Seen(letter) for letter in "abcde"], ReduceOp.PRODUCT, out)
    assert out[0].text == "(((ab)(cd))e)"


def test_a_factor_is_multiplied_first():
    out = np.zeros(2, np.int16)
    fold([np.array([1, 2], np.int16), np.array([3, 4], np.int16)], premul_sum(3), out)
    assert out.tolist() == [12, 18]
