"""Draws inside graphs: seed and offset are added to what lies in the device's memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.codes.code import Operand, Pointer
from disttrain.backends.device.replayed import replayed


def test_numbers_drawn_are_those_of_the_sums():
    base, got, want = np.array([40, 5], np.uint64), np.zeros(9), np.zeros(9)
    replayed(codes.UNIFORM).reference(got, base, 2, 3)
    codes.UNIFORM.reference(want, 42, 8)
    np.testing.assert_array_equal(got, want)


def test_sums_wrap_at_64_bits():
    base, got, want = np.array([2**64 - 1, 1], np.uint64), np.zeros(9), np.zeros(9)
    replayed(codes.NORMAL).reference(got, base, 3, 2**64 - 1)
    codes.NORMAL.reference(want, 2, 0)
    np.testing.assert_array_equal(got, want)


def test_further_numbers_stay():
    base, got, want = np.array([1, 0], np.uint64), np.zeros(50, int), np.zeros(50, int)
    replayed(codes.INTEGERS).reference(got, base, 6, 4, -5, 17)
    codes.INTEGERS.reference(want, 7, 4, -5, 17)
    np.testing.assert_array_equal(got, want)


def test_the_code_reads_the_base_which_comes_after_the_other_arrays():
    code = replayed(codes.BERNOULLI)
    assert code.name == "bernoulli_replayed" and code.arrays == codes.BERNOULLI.arrays + 1
    assert code.numbers == codes.BERNOULLI.numbers and code.writes == codes.BERNOULLI.writes
    p, out = Operand((8,), (4,), "float32"), Operand((8,), (1,), "bool")
    base = Operand((2,), (8,), "uint64")
    made, plain = code.plan((p, out, base)), codes.BERNOULLI.plan((p, out))
    assert len(made.launches) == len(plain.launches) and made.scratch == plain.scratch
    for step, before in zip(made.launches, plain.launches):
        assert step.values == {"base": Pointer(2), **before.values}
        assert [f.name for f in step.fields] == ["base", *[f.name for f in before.fields]]
        assert "a.seed + ((const dt_u64*)a.base)[0]" in step.body
        assert "a.offset + ((const dt_u64*)a.base)[1]" in step.body
        assert (step.grid, step.block) == (before.grid, before.block)
        assert step.name != before.name, "a program may have both"


def test_a_code_is_changed_once():
    assert replayed(codes.UNIFORM) is replayed(codes.UNIFORM)


def test_a_code_without_a_seed_cannot_be_replayed():
    with pytest.raises(AssertionError):
        replayed(replace(codes.UNIFORM, numbers=("i64", "u64")))
