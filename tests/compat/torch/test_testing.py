"""``assert_close`` and ``make_tensor``: tolerances by type, containers, what is made."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.compat.torch.testing import assert_close, make_tensor

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("kind", "near", "far"),
    [(dt.float64, 1e-8, 1e-6), (dt.float32, 1e-6, 1e-4), (dt.float16, 9e-4, 1e-2),
     (dt.bfloat16, 1e-2, 5e-2), (dt.complex128, 1e-8, 1e-6)],
)  # fmt: skip
def test_tolerances_are_those_of_the_type(kind, near, far):
    one = dt.ones(2, dtype=kind)

    def off_by(share):
        return (one * (1 + share)) if kind.is_complex else (one.double() * (1 + share)).to(kind)

    assert_close(off_by(near), one)
    with pytest.raises(AssertionError):
        assert_close(off_by(far), one)


def test_whole_numbers_are_equal_or_not():
    big = 1 << 60
    assert_close(dt.tensor([big]), dt.tensor([big]))
    with pytest.raises(AssertionError):
        assert_close(dt.tensor([big]), dt.tensor([big + 1]))
    assert_close(dt.tensor([5]), dt.tensor([6]), rtol=0, atol=1)
    assert_close(True, True)
    with pytest.raises(AssertionError):
        assert_close(dt.tensor([True]), dt.tensor([False]))


def test_types_and_shapes_count_unless_the_program_says_otherwise():
    a, b = dt.ones(2), dt.ones(2, dtype=dt.float64)
    with pytest.raises(AssertionError, match=r"dtypes differ: disttrain\.float32 and"):
        assert_close(a, b)
    assert_close(a, b, check_dtype=False)
    assert_close([a], [b], check_dtype=False)  # also inside
    assert_close(a.half(), b * (1 + 5e-4), check_dtype=False)  # the wider tolerance of both
    with pytest.raises(AssertionError, match=r"shapes differ: \[2\] and \[1, 2\]"):
        assert_close(a, dt.ones(1, 2))
    assert_close(1.0, np.float64(1.0))
    assert_close(
        dt.tensor([1 + 1e-9j], dtype=dt.complex128), dt.ones(1).double(), check_dtype=False
    )


def test_containers_are_compared_value_by_value():
    one, two = {"a": [dt.ones(1)], "b": (1, 2.0)}, {"b": (1, 2.0), "a": [dt.ones(1)]}
    assert_close(one, two)
    with pytest.raises(AssertionError, match=r"keys differ"):
        assert_close(one, {"a": [dt.ones(1)]})
    with pytest.raises(AssertionError, match="lengths differ: 1 and 2"):
        assert_close([1], [1, 2])
    with pytest.raises(AssertionError):
        assert_close({"a": [dt.ones(1)]}, {"a": [dt.zeros(1)]})


def test_nan_is_close_where_it_is_asked_for():
    nan = dt.tensor([math.nan])
    with pytest.raises(AssertionError):
        assert_close(nan, nan)
    assert_close(nan, nan, equal_nan=True)
    assert_close([nan], [nan], equal_nan=True)


def test_what_is_said():
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(1.0, 2.0, msg="mine")
    with pytest.raises(AssertionError, match=r"^before: [\s\S]*Not equal"):
        assert_close(1.0, 2.0, msg=lambda text: f"before: {text}")
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(dt.ones(2), dt.ones(3), msg="mine")
    for half in ({"rtol": 0.1}, {"atol": 0.1}):
        with pytest.raises(ValueError, match="Both 'rtol' and 'atol' must be either specified"):
            assert_close(1.0, 1.0, **half)


def test_tensors_of_a_device(double):
    assert_close(dt.ones(2, device="cuda"), dt.ones(2))
    with pytest.raises(AssertionError):
        assert_close(dt.ones(2, device="cuda"), dt.zeros(2))


@pytest.mark.parametrize("kind", [dt.float32, dt.float64, dt.bfloat16, dt.complex64, dt.int64,
                                  dt.uint8, dt.int8, dt.bool])  # fmt: skip
def test_numbers_of_every_type_lie_in_their_range(kind):
    dt.manual_seed(0)
    t = make_tensor(40, 5, dtype=kind)
    assert t.shape == (40, 5) and t.dtype is kind and len(set(t.reshape(-1).tolist())) > 1
    values = dt.view_as_real(t) if kind.is_complex else t.double()
    low = 0 if kind in (dt.uint8, dt.bool) else -9
    assert low <= values.min().item() and values.max().item() <= 9
    if not kind.is_complex and kind is not dt.bool:
        few = make_tensor((30,), dtype=kind, low=2, high=4)
        assert 2 <= few.double().min().item() and few.double().max().item() <= 4


def test_options():
    assert make_tensor(3, dtype=dt.float32, requires_grad=True).requires_grad
    apart = make_tensor(3, 4, dtype=dt.float32, noncontiguous=True)
    assert not apart.is_contiguous() and apart.shape == (3, 4)
    assert make_tensor((), dtype=dt.float32, noncontiguous=True).shape == ()
    dt.manual_seed(0)
    assert (make_tensor(1000, dtype=dt.int8, exclude_zero=True) != 0).all()
    assert make_tensor(0, 2, dtype=dt.int64).shape == (0, 2)
