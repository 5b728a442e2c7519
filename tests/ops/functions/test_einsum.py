"""einsum against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import ops  # noqa: F401  (attaches the operators)
from disttrain.core import wrap
from disttrain.errors import ShapeError
from disttrain.ops.functions.einsum import einsum
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
SIZES = dict(zip("abcdeij", (2, 3, 4, 5, 2, 3, 3), strict=True))

EQUATIONS = [
    "ab,bc->ac", "ab,bc", "ab->ba", "ba", "ab->", "ab->a", "ab,ab->ab", "ab,ab->", "a,b->ab",
    "eab,ebc->eac", "abc,cd->abd", "abcd,aecd->aebc", "ij->", "ab,bc,cd->ad", "ab,cb,db->acd",
    "a,a,a->a", "ab,c->c", "abc->cab", "a,ab,b->",
]  # fmt: skip


def _operands(equation):
    return [
        RNG.normal(size=[SIZES[c] for c in term])
        for term in equation.split("->")[0].replace(" ", "").split(",")
    ]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_like_numpy(equation):
    given = _operands(equation)
    got = einsum(equation, *map(wrap, given))
    np.testing.assert_allclose(got.array, np.einsum(equation, *given), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("ii,ij->j", [(3, 3), (3, 2)]),
        ("...ab,...bc->...ac", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...a->...", [(2, 3)]),
        ("b...,b...", [(2, 3), (2, 3)]),
        ("ij,jk", [(2, 3), (3, 2)]),
        (" i j , j k -> i k ", [(2, 3), (3, 2)]),
    ],
)
def test_diagonals_and_ellipses(equation, shapes):
    given = [RNG.normal(size=s) for s in shapes]
    got = einsum(equation, [wrap(a) for a in given])
    np.testing.assert_allclose(got.array, np.einsum(equation, *given), rtol=1e-10)


def test_gradients():
    a, b, c = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))
    check_gradients(lambda a, b: einsum("ab,bc->ca", a, b), a, b)
    check_gradients(lambda a, b, c: einsum("ab,bc,ac->c", a, b, c), a, b, c)
    check_gradients(lambda a: einsum("ii->i", a) ** 2, RNG.normal(size=(3, 3)))


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("ab,bc", [(2, 3)], "2 operands"),
        ("ab,bc", [(2, 3), (4, 5)], "'b' is 3"),
        ("abc", [(2, 3)], "has not 3 dimensions"),
        ("ab->c", [(2, 3)], "no operand has"),
        ("ab->aa", [(2, 3)], "twice"),
        ("a1", [(2, 3)], "letters"),
        ("abc...", [(2, 3)], "fewer"),
    ],
)
def test_errors(equation, shapes, words):
    with pytest.raises(ShapeError, match=words):
        einsum(equation, *(wrap(np.zeros(s)) for s in shapes))


def test_products_of_elements_are_of_any_types():
    a, b = dt.tensor([[1, 2], [3, 4]]), dt.tensor([[0.5, 1.0], [2.0, 4.0]])
    assert dt.equal(dt.einsum("ij,ij->ij", a, b), a * b)
    assert dt.equal(dt.einsum("ij,k->kij", a, b[0]), a * b[0].reshape(2, 1, 1))
    x = b.clone().requires_grad_()
    dt.einsum("ij,ij->ji", x, x).sum().backward()
    assert dt.equal(x.grad, 2 * b)
