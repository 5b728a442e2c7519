"""Operations on elements against NumPy, at odd numbers too."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.primitives import elementwise as el

ODD = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-30, -1e30, np.inf, -np.inf, np.nan])
ONE = {
    "neg": np.negative, "absolute": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "square": np.square, "reciprocal": np.reciprocal, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "log1p": np.log1p, "expm1": np.expm1, "log2": np.log2, "log10": np.log10,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "isnan": np.isnan, "isfinite": np.isfinite,
    "relu": lambda a: np.where(np.isnan(a), a, np.maximum(a, 0)),
    "rsqrt": lambda a: 1 / np.sqrt(a), "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "sign": lambda a: np.where(np.isnan(a), 0, np.sign(a)),
}  # fmt: skip
TWO = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "maximum": np.maximum, "minimum": np.minimum, "fmod": np.fmod,
    "floor_divide": np.floor_divide, "remainder": np.remainder, "logaddexp": np.logaddexp,
    "atan2": np.arctan2,
}  # fmt: skip
SIZES = {"sign", "isnan", "isfinite", "floor", "ceil", "trunc", "neg", "absolute", "relu"}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE)
def test_of_one(name, kind):
    a = np.concatenate([ODD, np.random.default_rng(0).normal(size=50)]).astype(kind)
    with np.errstate(all="ignore"):
        found, wanted = getattr(el, name).forward(a), ONE[name](a)
    exact = name in SIZES
    tolerance = 0 if exact else 4e-7 if kind is np.float32 else 1e-14
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=0 if exact else 1e-37)
    assert found.dtype == np.asarray(wanted).dtype


@pytest.mark.parametrize("name", TWO)
def test_of_two(name):
    a, b = np.meshgrid(ODD, ODD)
    prim = getattr(el, name)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(prim.forward(a, b), TWO[name](a, b), rtol=1e-14)
        wide = prim.forward(a[:, :1], b[:1])
    assert wide.shape == a.shape


def test_choices_and_limits():
    a, b = np.array([1.0, np.nan, -3.0]), np.array([2.0, 5.0, -4.0])
    assert el.where.forward(a > b, a, b).tolist() == [2.0, 5.0, -3.0]
    assert el.clip_below.forward(b, np.array(0.0)).tolist() == [2.0, 5.0, 0.0]
    assert el.clip_above.forward(b, np.array(0.0)).tolist() == [0.0, 0.0, -4.0]
    assert np.isnan(el.clip_below.forward(a, np.array(0.0))[1])


def test_types_are_cast_as_numpy_does():
    a = np.array([0.5, -1.5, 3.99])
    for kind in ("f4", "i8", "?", "c16"):
        found = el.cast.forward(a, dtype=np.dtype(kind))
        assert found.dtype == kind and (found == a.astype(kind)).all()


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "round_", "trunc"])
def test_what_has_no_slope_gives_zeros_whatever_came(name):
    a = dt.tensor([0.5, -1.5, 2.0], requires_grad=True)
    getattr(el, name)(a).backward(dt.tensor([float("nan"), float("inf"), 1.0]))
    assert a.grad.tolist() == [0, 0, 0]


def test_sums_of_infinite_complex_exponentials():
    inf, nan = math.inf, math.nan
    for a, b, want in (
        (complex(inf, 0), complex(inf, 0), complex(inf, 0)),
        (complex(inf, 0), complex(inf, 1), complex(inf, math.pi / 4)),
        (complex(-inf, 2), complex(-inf, 1), complex(-inf, 1)),
        (complex(nan, 0), 1 + 0j, complex(nan, nan)),
    ):
        found = dt.logaddexp(dt.tensor([a]), dt.tensor([b])).numpy()
        np.testing.assert_allclose(found, np.array([want], found.dtype), rtol=1e-6)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_both_sides_of_an_extreme_have_the_gradient_where_one_is_nan(name):
    a = dt.tensor([math.nan, 1.0, 2.0, 3.0], requires_grad=True)
    b = dt.tensor([0.0, math.nan, 2.0, 4.0], requires_grad=True)
    getattr(dt, name)(a, b).sum().backward()
    wins = [0.0, 1.0] if name == "maximum" else [1.0, 0.0]
    assert a.grad.tolist() == [1.0, 1.0, 0.5, wins[0]]
    assert b.grad.tolist() == [1.0, 1.0, 0.5, wins[1]]
