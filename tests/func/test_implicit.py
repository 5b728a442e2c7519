"""Solutions of equations have the derivatives of what they solve, however they were found."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import OperandError
from disttrain.func.implicit import Implicit
from disttrain.func.structured_bodies import Border
from disttrain.tree import Registry

OF_TENSORS = Implicit(Border(Registry(), lambda t: (t, False), lambda t, _: t, None))
A = dt.tensor([[3.0, 1.0], [0.5, 2.0]], dtype=dt.float64)
B = dt.tensor([1.0, 2.0], dtype=dt.float64)


def root(a):
    def newton(f, x):
        with dt.no_grad():
            for _ in range(20):
                x = x - f(x) / (2 * x)
        return {"x": x}["x"]

    return OF_TENSORS.custom_root(lambda x: x * x - a, dt.ones_like(a), newton,
                                  lambda g, y: y / g(dt.ones_like(y)))  # fmt: skip


def test_the_derivative_of_a_root():
    a = dt.tensor(3.0, dtype=dt.float64)
    assert root(a).item() == pytest.approx(3**0.5)
    assert func.grad(root)(a).item() == pytest.approx(0.5 * 3**-0.5)
    assert func.jvp(root, (a,), (dt.ones_like(a),))[1].item() == pytest.approx(0.5 * 3**-0.5)


def solved(a, b, back=True):
    def solve(of, right):
        x = right["x"] * 0
        for _ in range(100):
            x = x + 0.25 * (right["x"] - of({"x": x})["x"])
        return {"x": x}

    return OF_TENSORS.custom_linear_solve(
        lambda v: {"x": a @ v["x"]}, {"x": b}, solve, solve if back else None
    )["x"]


def test_the_derivatives_of_a_solution():
    want = lambda a, b: dt.linalg.solve(a, b)
    assert dt.allclose(solved(A, B), want(A, B))
    for at in (0, 1):
        f, g = (lambda a, b, s=s: dt.sin(s(a, b)).sum() for s in (solved, want))
        assert dt.allclose(func.grad(f, argnums=at)(A, B), func.grad(g, argnums=at)(A, B))
    moved = func.jvp(solved, (A, B), (A, B))[1]
    assert dt.allclose(moved, func.jvp(want, (A, B), (A, B))[1])
    rows = func.vmap(solved, (None, 0))(A, dt.stack([B, 2 * B]))
    assert dt.allclose(rows, dt.stack([want(A, B), want(A, 2 * B)]))


def test_without_a_way_back():
    with pytest.raises(OperandError, match="transpose_solve required"):
        func.grad(lambda b: solved(A, b, back=False).sum())(B)
