"""Tensors from sizes and ranges."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.device import determinism


def test_sizes_in_any_form():
    for made in (dt.zeros(2, 3), dt.zeros((2, 3)), dt.zeros([2, 3]), dt.zeros(dt.Size([2, 3]))):
        assert made.shape == (2, 3) and made.dtype is dt.float32 and made.sum() == 0
    assert dt.ones(2, dtype=dt.int64, requires_grad=False).tolist() == [1, 1]
    assert dt.full((2,), 7).dtype is dt.int64 and dt.full((2,), True).dtype is dt.bool
    with pytest.raises((RuntimeError, ValueError)):
        dt.zeros(2, -1)


@pytest.mark.parametrize(
    "given", [(5,), (1, 5), (0, 1, 0.25), (5, 0, -2), (0.5, 3.2), (3, 3), (-1, -2, -0.3)]
)
def test_ranges_are_numpys(given):
    found, wanted = dt.arange(*given), np.arange(*given)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    assert found.dtype is (dt.int64 if wanted.dtype.kind == "i" else dt.float32)


@pytest.mark.parametrize(
    ("given", "message"),
    [((0, 5, 0), "zero"), ((0, 5, -1), "inconsistent"), ((0, float("inf")), "finite")],
)
def test_ranges_without_an_end_are_refused(given, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        dt.arange(*given)
    assert dt.arange(dt.tensor(3)).tolist() == [0, 1, 2]


def test_even_steps():
    np.testing.assert_allclose(dt.linspace(-1, 2, 7).numpy(), np.linspace(-1, 2, 7), rtol=1e-6)
    np.testing.assert_allclose(dt.logspace(0, 2, 3).numpy(), [1, 10, 100], rtol=1e-6)
    assert dt.linspace(0, 1, 1).tolist() == [0.0] and dt.linspace(0, 1, 0).tolist() == []


def test_like_another():
    x = dt.ones(2, 3, dtype=dt.float64)
    for make in (dt.zeros_like, dt.ones_like, dt.empty_like):
        assert make(x).shape == x.shape and make(x).dtype is x.dtype
    assert dt.full_like(x, 4, dtype=dt.int32).tolist() == [[4] * 3] * 2
    assert x.new_zeros(2).dtype is dt.float64 and x.new_tensor([1]).dtype is dt.float64


def test_matrices_and_complex_numbers():
    assert dt.eye(2, 3).tolist() == np.eye(2, 3).tolist()
    z = dt.complex(dt.tensor([1.0]), dt.tensor([-2.0]))
    assert z.dtype is dt.complex64 and z.item() == 1 - 2j


def test_new_memory_is_filled_where_all_is_to_be_deterministic():
    dt_empties = {
        "empty": lambda kind: dt.empty(3, dtype=kind),
        "empty_like": lambda kind: dt.empty_like(dt.zeros(3, dtype=kind)),
        "new_empty": lambda kind: dt.zeros(1, dtype=kind).new_empty(3),
    }
    determinism.use_deterministic_algorithms(True)
    try:
        for make in dt_empties.values():
            assert bool(make(dt.float32).isnan().all())
            assert make(dt.int8).tolist() == [127] * 3 and make(dt.bool).tolist() == [True] * 3
        determinism.fill_uninitialized_memory(False)
        assert not determinism.fills_now()
    finally:
        determinism.fill_uninitialized_memory(True)
        determinism.use_deterministic_algorithms(False)
