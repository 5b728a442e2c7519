"""Questions about tensors."""

from __future__ import annotations

import math

import pytest

import disttrain as dt


def test_equality_of_whole_tensors():
    x = dt.tensor([1.0, 2.0])
    assert dt.equal(x, dt.tensor([1.0, 2.0])) and not dt.equal(x, dt.tensor([1.0, 3.0]))
    assert not dt.equal(x, dt.tensor([[1.0, 2.0]])) and not dt.equal(x, x.clone().fill_(math.nan))


@pytest.mark.parametrize(
    ("a", "b", "words", "near"),
    [
        (1.0, 1.0 + 1e-6, {}, True), (1.0, 1.001, {}, False), (1.0, 1.001, {"rtol": 1e-2}, True),
        (0.0, 1e-9, {}, True), (0.0, 1e-3, {"atol": 1e-2}, True), (math.inf, math.inf, {}, True),
        (math.inf, -math.inf, {}, False), (math.nan, math.nan, {}, False),
        (math.nan, math.nan, {"equal_nan": True}, True),
    ],
)  # fmt: skip
def test_nearness_is_relative_to_the_second(a, b, words, near):
    x, y = dt.tensor([a]).double(), dt.tensor([b]).double()
    assert dt.isclose(x, y, **words).item() is near and dt.allclose(x, y, **words) is near


def test_what_tensors_are():
    x = dt.ones(2, 3)
    assert dt.is_tensor(x) and not dt.is_tensor([1]) and dt.numel(x) == 6
    assert dt.is_floating_point(x) and not dt.is_floating_point(x.long())
    assert dt.is_complex(x.to(dt.complex64)) and not dt.is_complex(x)
    assert dt.is_nonzero(dt.tensor(0.5)) and not dt.is_nonzero(dt.tensor(0))
    with pytest.raises((RuntimeError, ValueError)):
        dt.is_nonzero(x)


def test_types_of_results_and_casts():
    assert dt.result_type(dt.ones(1, dtype=dt.int8), 1.5) is dt.float32
    assert dt.result_type(dt.ones(1, dtype=dt.float16), dt.ones((), dtype=dt.float64)) is dt.float16
    assert dt.can_cast(dt.int64, dt.float32) and not dt.can_cast(dt.float32, dt.int64)
    assert not dt.can_cast(dt.complex64, dt.float64) and dt.can_cast(dt.bool, dt.uint8)
