"""Generated functions against double precision: ulps over the whole range, and special values."""

import numpy as np
import pytest

from disttrain.backends.lang import expr as E
from disttrain.backends.lang.interpret import FUNCTIONS, interpret
from disttrain.backends.lang.kernel import Array, elementwise
from disttrain.backends.program import Program

RANGES = {
    "exp": (-110.0, 95.0),
    "log": (0.0, 1e4),
    "tanh": (-12.0, 12.0),
    "erf": (-5.0, 5.0),
    "sigmoid": (-87.0, 40.0),
    "sin": (-100.0, 100.0),
    "cos": (-100.0, 100.0),
    "log1p": (-0.999, 1e3),
    "expm1": (-20.0, 80.0),
    "sqrt": (0.0, 1e30),
    "rsqrt": (1e-20, 1e20),
}
# exp, log, tanh and erf are our own. The division adds to sigmoid; the C library promises 4.
BOUND = {"exp": 1.1, "log": 1.5, "tanh": 1.7, "erf": 2.0, "sigmoid": 2.5, "sqrt": 0.5, "rsqrt": 1.5}


def program(name, dtype):
    p = Program(elementwise(name, getattr(E, name), (Array("x", dtype),), dtype))
    if not p.native:
        pytest.skip(p.why_not)
    return p


def apply(name, x):
    out = np.empty_like(x)
    program(name, x.dtype.name)(x, out)
    return out


def points(name):
    """Evenly spread, and dense towards zero on both sides where the function is defined there."""
    low, high = RANGES[name]
    x = np.linspace(low, high, 200_001)
    near = np.geomspace(1e-42, min(high, 8.0), 50_000)
    x = np.concatenate([x, near, -near]) if low < 0 else np.concatenate([x, near])
    x = x[(x >= low) & (x <= high)]
    return x.astype(np.float32)


def reference(name, x):
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](x.astype(np.float64))


def ulps(got, want):
    """The distance in units of the last place of the float32 nearest to ``want``."""
    with np.errstate(all="ignore"):
        near = want.astype(np.float32)
        finite = np.isfinite(near)
        np.testing.assert_array_equal(got[~finite], near[~finite])
        step = np.spacing(np.abs(near[finite])).astype(np.float64)
        return np.abs(got[finite] - want[finite]) / step


@pytest.mark.parametrize("name", RANGES)
def test_float32_is_right_to_a_few_ulp(name):
    x = points(name)
    error = ulps(apply(name, x).astype(np.float64), reference(name, x))
    worst = int(error.argmax())
    assert error.max() <= BOUND.get(name, 4.0), (name, float(x[worst]), float(error.max()))


@pytest.mark.parametrize("name", RANGES)
def test_special_values_are_those_of_c(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0, 1e-45, -1e-45, 3e38], np.float32)
    want = reference(name, x).astype(np.float32)
    if name in ("sin", "cos"):
        x, want = x[:5], want[:5]
    got = apply(name, x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=0)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "expm1"])
def test_float64_is_right_to_a_few_ulp(name):
    low, high = RANGES[name]
    x = np.linspace(max(low, 1e-3) if name == "log" else low, high, 20_011)
    np.testing.assert_allclose(apply(name, x), FUNCTIONS[name](x), rtol=1.5e-15, atol=1e-300)


def test_pow_matches_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.01, 20, 1001), rng.uniform(-5, 5, 1001)
    for dtype, tolerance in (("float32", 5e-7), ("float64", 2e-15)):
        inputs = (Array("a", dtype), Array("b", dtype))
        p = Program(elementwise("power", E.pow, inputs, dtype))
        x, y = a.astype(dtype), b.astype(dtype)
        out = np.empty_like(x)
        p(x, y, out)
        np.testing.assert_allclose(out, np.power(x.astype("f8"), y), rtol=tolerance)


def test_functions_without_vector_form_are_called_per_lane():
    """The code for a processor without libmvec gives the same values."""
    from disttrain.backends.llvm.emit import Target
    from disttrain.backends.llvm.ir import default_access, module

    kernel = elementwise("wave", lambda x: E.sin(x) + E.exp(x), (Array("x", "float64"),), "float64")
    text = module(kernel, default_access(kernel), Target(128, ()))
    assert text.count("call double %v") == 32  # two functions, eight lanes, main loop and tail
    x = np.linspace(-3, 3, 100)
    out = np.empty_like(x)
    Program(kernel)(x, out)
    np.testing.assert_allclose(out, np.sin(x) + np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(interpret(E.sin(E.var("x")), {"x": x}), np.sin(x))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_digits_do_not_depend_on_the_width_of_registers(name):
    """Code for a processor without AVX-512 gives the same bits."""
    from disttrain.backends.llvm.emit import Target
    from disttrain.backends.llvm.ir import default_access
    from disttrain.backends.llvm.native import build

    best = program(name, "float32")
    plain = build(best.kernel, default_access(best.kernel), Target(128, ()))
    x = points(name)
    x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf, 1e-45], np.float32)])
    one, other = np.empty_like(x), np.empty_like(x)
    best(x, one)
    assert plain.fast(x, other) is other
    np.testing.assert_array_equal(one, other)


def test_functions_of_the_c_library_are_found():
    from disttrain.backends.llvm.emit import Target
    from disttrain.backends.llvm.ir import default_access
    from disttrain.backends.llvm.native import build

    for dtype in ("float32", "float64"):
        kernel = elementwise(
            "waves", lambda x: E.sin(x) * E.pow(x, 1.5), (Array("x", dtype),), dtype
        )
        if Program(kernel).native:
            x = np.linspace(0, 9, 77).astype(dtype)
            out = np.empty_like(x)
            build(kernel, default_access(kernel), Target(128, ())).fast(x, out)
            np.testing.assert_allclose(out, np.sin(x) * x**1.5, rtol=1e-5, atol=1e-5)
