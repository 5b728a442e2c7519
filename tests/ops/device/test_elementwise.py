"""Elementwise operations on devices: types without kernels, divisions, powers, edges."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import NumberError
from support.on_device import agree, on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-40])


@pytest.mark.parametrize(
    "name",
    """isnan isinf isfinite sign sgn trunc expm1 log1p neg abs sqrt exp log
round floor ceil relu sigmoid tanh""".split(),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_edges_of_numbers(name):
    for kind in ("f8", "f4"):
        agree(name, EDGES.astype(kind), tol=1e-6 if kind == "f4" else 1e-13)


@pytest.mark.parametrize("name", ["xlogy", "heaviside"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pairs_of_edges(name):
    a, b = np.meshgrid(EDGES[:9], EDGES[:9])
    agree(name, a, b, tol=1e-13)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "truncate_divide"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divisions_are_those_of_the_host(name):
    whole = np.array([7, -7, 6, -6, 0]), np.array([2, 2, -3, -3, 5])
    agree(name, *whole)
    agree(name, whole[0], -2)
    a = np.array([7.5, -7.5, 1.0, 5.0, -0.0, 0.0, 3.0, np.inf])
    b = np.array([2.0, 2.0, 0.1, -2.5, 1.0, -1.0, 0.0, 2.0])
    agree(name, a, b)
    agree(name, a.astype(BF16), b.astype(BF16))
    agree(name, a, 0.3)


def test_a_whole_number_divided_by_a_zero_of_the_host_is_refused():
    with pytest.raises(Exception, match=r"zero|0"):
        dt.tensor([1, 2], device="cuda") // 0


def test_powers():
    base = np.array([1, -1, 2, -3, 0])
    up = np.array([-1, -1, 3, 2, 0])
    agree("pow", base, up)
    agree("pow", base, 3)
    agree("pow", 2, np.abs(up))
    for p in (0.5, -0.5, 1, 2, 3, -1, 2.5):
        agree("pow", np.array([0.5, 2.0, 9.0], "f4"), p, tol=1e-6)
    agree("pow", np.array([1 + 1j, 2.0]), 2.0, tol=1e-12)
    with pytest.raises(NumberError, match="integers to the negative integer power -1 given"):
        dt.tensor([1, 2], device="cuda") ** -1
    (one,) = on_device("pow", np.array([1, -1, 5]), np.array([-2, -3, -1]))
    assert one.tolist() == [1, -1, 0]  # truncated, as nobody looks at the numbers


@pytest.mark.parametrize("name", ["logical_not", "logical_and", "logical_or", "logical_xor"])
def test_truth_of_any_type(name):
    for kind in ("?", "i4", "f4", BF16, "c8"):
        a, b = np.array([0, 1, 2, 0]).astype(kind), np.array([0, 0, 3, 1]).astype(kind)
        agree(name, *([a] if name == "logical_not" else [a, b]))


def test_a_choice_by_a_condition_of_the_host():
    a, b = np.arange(3.0), np.full((2, 1), 9.0)
    for condition in (True, False):
        agree("where", np.array(condition), a, b)
    agree("where", np.array([True, False, True]), a, 7.0)


def test_bounds_and_copies():
    a = np.array([[-2.0, 0.5, 3.0]]).T
    agree("clip", a, low=-1.0, high=1.0)
    agree("clip", a, low=0.0, high=None)
    agree("clip", a, low=None, high=0.0)
    (copy,) = on_device("clone", np.asfortranarray(RNG.standard_normal((2, 3))))
    assert copy.flags.c_contiguous


def test_more_types_than_kernels_know():
    for name in ("tan", "asin", "sinh", "exp2", "log2", "log10", "conj"):
        agree(name, np.array([0.25, 0.5]), tol=1e-12)
        agree(name, np.array([0.25, 0.5], BF16), tol=1e-2)
    agree("bitwise_not", np.array([1, 2, 255], "u1"))
    agree("hypot", np.array([3.0]), np.array([4.0]))
    agree("mul", np.array([1 + 2j]), np.array([3 - 1j]))
    agree("add", np.array([250], "u1"), np.array([10], "u1"))
