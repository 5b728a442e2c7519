"""Mathematical functions on vectors of float32, written out as LLVM instructions.

Each is within 2 ulp over its whole range and gives what C's function gives for nan, inf, zeros and
denormals (``tests/backends/llvm/test_vecmath.py`` measures this). Being instructions, not calls,
they inline, need no library, and give the same digits on every machine that has fused multiply-add.
The coefficients are minimax fits made for these intervals (Lawson's algorithm, 40-digit reference).

``e`` is the emitter of ``llvm.py``: ``e.op(text)`` adds an instruction, ``e.f(value)`` is a float32
constant, ``e.i(value)`` an int32 constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_EXP = (
    0.4999999341246958,
    0.1666652010762651,
    0.04166839421741897,
    0.008368780429081988,
    0.001381446674005089,
)
_TANH = (-0.33332939227424085, 0.13309697986955735, -0.04990423912263377)
_ERF_SMALL = (
    0.128379165913657,
    -0.37612627135766996,
    0.11283600175058726,
    -0.02685444456137777,
    0.005189535302660121,
    -0.0008020841079871148,
    7.889119157823852e-05,
)
_ERFC_LOG = (
    -0.002619166857939129,
    -1.1176212889270833,
    -0.6542400304685659,
    -0.08879973902200486,
    0.014831850315130096,
    -0.0011572215630064712,
)
_LOG = (
    0.3333333170406744,
    -0.2500082114704245,
    0.2000122733467149,
    -0.16623353413392564,
    0.14201743747641546,
    -0.13160208361259468,
    0.12761697902697622,
    -0.07634581477558822,
)
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4  # the high part has 10 bits
_SHIFTER = 12582912.0  # 1.5 * 2**23: adding it rounds to a whole number in the low bits
_MIN_NORMAL = 2.0**-126


def horner(e: Any, x: str, coefficients: Sequence[float]) -> str:
    """The polynomial with these coefficients (lowest first) at ``x``."""
    y = e.f(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y = e.fma(y, x, e.f(c))
    return y


def exp(e: Any, x: str) -> str:
    """2**n * e**r with r within ln(2)/2 of zero. Without an instruction for it, the power of two
    is applied in two halves, so that denormals and the largest numbers come out right too."""
    x = e.op(f"select {e.b} {e.cmp('olt', x, e.f(-104.0))}, {e.v} {e.f(-104.0)}, {e.v} {x}")
    x = e.op(f"select {e.b} {e.cmp('ogt', x, e.f(89.0))}, {e.v} {e.f(89.0)}, {e.v} {x}")
    shifted = e.fma(x, e.f(_LOG2E), e.f(_SHIFTER))
    n = e.op(f"fsub {e.v} {shifted}, {e.f(_SHIFTER)}")
    r = e.fma(n, e.f(-_LN2_HIGH), x)
    r = e.fma(n, e.f(-_LN2_LOW), r)
    q = horner(e, r, _EXP)
    y = e.fma(e.op(f"fmul {e.v} {r}, {r}"), q, r)
    y = e.op(f"fadd {e.v} {y}, {e.f(1.0)}")
    scaled = e.scale(y, n)
    if scaled:
        return scaled
    whole = e.op(f"sub {e.vi} {e.as_int(shifted)}, {e.i(0x4B400000)}")
    half = e.op(f"ashr {e.vi} {whole}, {e.i(1)}")
    rest = e.op(f"sub {e.vi} {whole}, {half}")
    y = e.op(f"fmul {e.v} {y}, {_power_of_two(e, half)}")
    return e.op(f"fmul {e.v} {y}, {_power_of_two(e, rest)}")


def _power_of_two(e: Any, n: str) -> str:
    biased = e.op(f"add {e.vi} {n}, {e.i(127)}")
    return e.as_float(e.op(f"shl {e.vi} {biased}, {e.i(23)}"))


def sigmoid(e: Any, x: str) -> str:
    """1 / (1 + exp(-x))."""
    below = e.op(f"fadd {e.v} {exp(e, e.op(f'fneg {e.v} {x}'))}, {e.f(1.0)}")
    return e.op(f"fdiv {e.v} {e.f(1.0)}, {below}")


def tanh(e: Any, x: str) -> str:
    """An odd polynomial below 0.32. Above, t / (t + 2) with t = exp(2|x|) - 1 =
    2**n * p + (2**n - 1), where p is exp(r) - 1 as ``exp`` has it."""
    size = e.call("fabs", x)
    a = e.op(f"select {e.b} {e.cmp('ogt', size, e.f(10.0))}, {e.v} {e.f(10.0)}, {e.v} {size}")
    shifted = e.fma(a, e.f(2 * _LOG2E), e.f(_SHIFTER))
    n = e.op(f"fsub {e.v} {shifted}, {e.f(_SHIFTER)}")
    r = e.fma(n, e.f(-_LN2_HIGH), e.op(f"fadd {e.v} {a}, {a}"))
    r = e.fma(n, e.f(-_LN2_LOW), r)
    p = e.fma(e.op(f"fmul {e.v} {r}, {r}"), horner(e, r, _EXP), r)
    # The low bits of ``shifted`` are n; those above them leave with the shift.
    power = e.op(f"shl {e.vi} {e.as_int(shifted)}, {e.i(23)}")
    power = e.as_float(e.op(f"add {e.vi} {power}, {e.i(127 << 23)}"))
    t = e.fma(power, p, e.op(f"fsub {e.v} {power}, {e.f(1.0)}"))
    big = e.op(f"fdiv {e.v} {t}, {e.op(f'fadd {e.v} {t}, {e.f(2.0)}')}")
    t = e.op(f"fmul {e.v} {x}, {x}")
    small = e.fma(e.op(f"fmul {e.v} {x}, {t}"), horner(e, t, _TANH), x)
    is_small = e.cmp("olt", size, e.f(0.32))
    return e.copysign(e.op(f"select {e.b} {is_small}, {e.v} {small}, {e.v} {big}"), x)


def erf(e: Any, x: str) -> str:
    """An odd polynomial below 1, 1 - exp(polynomial) above (erf is 1 in float32 from 3.93 on)."""
    size = e.call("fabs", x)
    t = e.op(f"fmul {e.v} {x}, {x}")
    small = e.fma(x, horner(e, t, _ERF_SMALL), x)
    far = e.cmp("ogt", size, e.f(4.0))
    near = e.op(f"select {e.b} {far}, {e.v} {e.f(4.0)}, {e.v} {size}")
    tail = exp(e, horner(e, near, _ERFC_LOG))
    big = e.op(f"fsub {e.v} {e.f(1.0)}, {tail}")
    is_small = e.cmp("olt", size, e.f(1.0))
    return e.copysign(e.op(f"select {e.b} {is_small}, {e.v} {small}, {e.v} {big}"), x)


def log(e: Any, x: str) -> str:
    """n * ln(2) + log(m) with m between sqrt(1/2) and sqrt(2)."""
    tiny = e.cmp("olt", x, e.f(_MIN_NORMAL))
    grown = e.op(f"fmul {e.v} {x}, {e.f(2.0**23)}")
    scaled = e.op(f"select {e.b} {tiny}, {e.v} {grown}, {e.v} {x}")
    bits = e.op(f"sub {e.vi} {e.as_int(scaled)}, {e.i(0x3F3504F3)}")
    exponent = e.op(f"ashr {e.vi} {bits}, {e.i(23)}")
    correction = e.op(f"select {e.b} {tiny}, {e.vi} {e.i(-23)}, {e.vi} {e.i(0)}")
    n = e.op(f"sitofp {e.vi} {e.op(f'add {e.vi} {exponent}, {correction}')} to {e.v}")
    mantissa = e.op(f"and {e.vi} {bits}, {e.i(0x007FFFFF)}")
    m = e.as_float(e.op(f"add {e.vi} {mantissa}, {e.i(0x3F3504F3)}"))
    f = e.op(f"fsub {e.v} {m}, {e.f(1.0)}")
    square = e.op(f"fmul {e.v} {f}, {f}")
    y = e.fma(square, e.f(-0.5), e.op(f"fmul {e.v} {n}, {e.f(_LN2_LOW)}"))
    y = e.fma(e.op(f"fmul {e.v} {square}, {f}"), horner(e, f, _LOG), y)
    y = e.fma(n, e.f(_LN2_HIGH), e.op(f"fadd {e.v} {f}, {y}"))
    inf, nan = float("inf"), float("nan")
    y = e.op(f"select {e.b} {e.cmp('olt', x, e.f(inf))}, {e.v} {y}, {e.v} {x}")
    y = e.op(f"select {e.b} {e.cmp('oge', x, e.f(0.0))}, {e.v} {y}, {e.v} {e.f(nan)}")
    return e.op(f"select {e.b} {e.cmp('oeq', x, e.f(0.0))}, {e.v} {e.f(-inf)}, {e.v} {y}")


FUNCTIONS = {"exp": exp, "sigmoid": sigmoid, "tanh": tanh, "erf": erf, "log": log}
