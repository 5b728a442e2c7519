"""Polynomials of sizes: arithmetic, texts, and what holds for all sizes."""

from __future__ import annotations

import pytest

from disttrain import polynomials as p

A, B, ONE = {("a",): 1}, {("b",): 1}, {(): 1}


def test_arithmetic():
    total = p.added(p.scaled(A, 3), B, -1)
    assert total == {("a",): 3, ("b",): -1}
    assert p.added(total, total, -1) == {}
    assert p.product(p.added(A, B), p.added(A, B, -1)) == {("a", "a"): 1, ("b", "b"): -1}
    assert p.product(A, {}) == {}


def test_exact_quotients():
    both = p.scaled(p.product(A, B), 6)
    assert p.quotient(both, p.scaled(A, 2), set()) == {("b",): 3}
    assert p.quotient(both, p.scaled(A, 4), set()) is None
    assert p.quotient(p.added(both, ONE), A, set()) is None
    assert p.quotient(both, A, {"a"}) is None  # which may be zero
    assert p.quotient(both, p.added(A, B), set()) is None


@pytest.mark.parametrize(
    ("poly", "text"),
    [({}, "0"), (ONE, "1"), (A, "a"), ({("a",): -1, (): 2}, "-a + 2"),
     ({("a", "b"): 2, ("a",): 1, (): -3}, "2*a*b + a - 3")],
)  # fmt: skip
def test_texts(poly, text):
    assert p.text_of(poly) == text


def test_what_is_certain_for_sizes_of_at_least_two():
    for sign in ("<", "==", ">=", "!="):
        assert p.is_certain({("a",): 1, (): -1}, sign, set())
        assert not p.is_certain({("a",): 1, (): -3}, sign, set())
        assert not p.is_certain({("a",): 1, ("b",): -1}, sign, set())
        assert not p.is_certain({("x",): 1}, sign, {"x"})
        assert p.is_certain({("a", "b"): 1, ("b",): -1}, sign, set())
        assert not p.is_certain({("a", "b"): 1, ("b",): -2}, "!=", set())
        assert not p.is_certain({("x", "x"): 1, ("x",): -1}, sign, {"x"})
    assert p.is_certain({("a",): 1, (): -2}, ">=", set())
    assert not p.is_certain({("a",): 1, (): -2}, ">", set())


def test_relations_are_told_without_common_factors():
    assert p.relation({("a",): 4, ("b",): -4}, "==") == "a == b"
    assert p.relation({("a",): -2, (): 10}, ">") == "a < 5"
