"""Expressions of sizes: what they are worth, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest

from disttrain.export.sizes import Size, SizeError, evaluated, renamed, sizes_in


@pytest.mark.parametrize("text", [
    "b", "2*b + 1", "-(b // 2) + b", "b*t", "(b + t)**2 % 7", "-b**2", "2**-1 * b",
    "b << 1 | t & 3", "b ^ t >> 1", "math.floor(b * 1.5)", "float(b) / t", "round(b / 3)",
    "abs(b - t)",
    "math.ceil(b / t)",
    "b - t - 1", "2**3**1", "b // t * 2", "1e-05 * b", "-(-b)", "math.trunc(-b / 2)",
    "b == 7", "not (b < t)", "b + 1 <= t * 2", "b != t",
])  # fmt: skip
def test_as_python_computes(text):
    import math

    for b, t in ((7, 3), (1, 1), (12, 5)):
        want = eval(text, {"math": math}, {"b": b, "t": t})  # noqa: S307
        got = Size(text).evaluate({"b": b, "t": t})
        assert got == want and type(got) is type(want)


@pytest.mark.parametrize("text", [
    "", "b +", "b b", "(b", "b)", "__import__('os')", "b.__class__", "open(b)", "lambda: b", "b[0]",
    "b if b else b", "1,2", "'b'", "b;b", "()", "not", "b not", "f(b)", "math.pi()", "b @ b",
    "b = 1",
    "((" * 40 + "b" + "))" * 40, "-" * 100 + "b", "+".join("b" * 200), "b" * 3000,
    "\x00", "b#c", "²",
])  # fmt: skip
def test_nothing_else_is_read(text):
    with pytest.raises(SizeError, match=r"^size"):
        Size(text).evaluate({"b": 2})


@pytest.mark.parametrize("text", [
    "9**9**9", "b**100", "1 << 99", "b // 0", "b % 0", "(-b)**0.5", "10**15 * 10**15", "c",
    "math.floor(inf)", "round(nan)", "b**-1 // 0", "1.5 & b",
])  # fmt: skip
def test_numbers_are_bounded(text):
    with pytest.raises(SizeError, match=r"^size"):
        Size(text).evaluate({"b": 3})


def test_inside_of_values():
    x = (1, Size("b"), [slice(None, Size("b // 2"), 2)], {"k": Size("3*b")})
    assert evaluated(x, {"b": 4}) == (1, 4, [slice(None, 2, 2)], {"k": 12})
    assert [str(s) for s in sizes_in(x)] == ["b", "b // 2", "3*b"]
    assert evaluated(Size("b"), {"b": 2}) == 2 and sizes_in("b") == []
    assert Size("b").alone and not Size("b + 0").alone and Size("b*t").names == {"b", "t"}


def test_texts():
    assert renamed("(s0 // 2)", {"s0": "b"}) == "b // 2"
    assert renamed("(s1 + 1)*(s10 + 2)", {"s1": "x", "s10": "y"}) == "(x + 1)*(y + 2)"
    size = Size("2*b")
    assert copy.deepcopy(size) == size == pickle.loads(pickle.dumps(size))
    assert {size: 1}[Size("2*b")] == 1
    assert repr(size) == str(size) == "2*b" and size != "2*b"


def test_long_expressions_that_are_not_deep():
    """(Sizes of a whole network are sums and quotients one after the other.)"""
    size = Size(" + ".join(f"(b // {n})" for n in range(1, 40)))
    assert size.evaluate({"b": 60}) == sum(60 // n for n in range(1, 40))
    for text in ("(" * 70 + "b" + ")" * 70, "-" * 70 + "b", "2**" * 70 + "b", "b+" * 300 + "b"):
        with pytest.raises(SizeError, match="too deeply"):
            Size(text)
    assert Size("(" * 55 + "b" + ")" * 55).evaluate({"b": 3}) == 3
