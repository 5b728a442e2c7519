"""Polynomials with integer coefficients in names of numbers, as dicts: the names of each product
(in order, as often as they are in it), with its factor.

Symbols stand for sizes that are at least ``LEAST``; other names (``atoms``) for any integers.
"""

from __future__ import annotations

import math

LEAST = 2  # sizes 0 and 1 decide on broadcasting: they are no symbols
Poly = dict[tuple[str, ...], int]


def scaled(poly: Poly, by: int) -> Poly:
    """``poly * by``."""
    return {k: v * by for k, v in poly.items() if v * by}


def added(a: Poly, b: Poly, sign: int = 1) -> Poly:
    """``a + sign * b``."""
    out = dict(a)
    for k, v in b.items():
        out[k] = out.get(k, 0) + sign * v
    return {k: v for k, v in out.items() if v}


def product(a: Poly, b: Poly) -> Poly:
    """``a * b``."""
    out: Poly = {}
    for k, v in a.items():
        for j, w in b.items():
            key = tuple(sorted(k + j))
            out[key] = out.get(key, 0) + v * w
    return {k: v for k, v in out.items() if v}


def quotient(a: Poly, b: Poly, atoms: set[str]) -> Poly | None:
    """The exact one by a single product of symbols, which are not zero."""
    if len(b) != 1:
        return None
    (names, factor) = next(iter(b.items()))
    if not factor or not atoms.isdisjoint(names):
        return None
    out: Poly = {}
    for k, v in a.items():
        left = list(k)
        for name in names:
            if name not in left:
                return None
            left.remove(name)
        if v % factor:
            return None
        out[tuple(left)] = v // factor
    return out


def text_of(poly: Poly) -> str:
    """As Python writes it."""
    parts: list[str] = []
    for names, factor in sorted(poly.items(), key=lambda item: (-len(item[0]), item[0])):
        shown = "*".join(([] if abs(factor) == 1 and names else [str(abs(factor))]) + list(names))
        sign = "-" if factor < 0 else "+"
        parts.append(f" {sign} {shown}" if parts else ("-" if factor < 0 else "") + shown)
    return "".join(parts) or "0"


_TURNED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def is_certain(difference: Poly, sign: str, atoms: set[str]) -> bool:
    """Whether the comparison of a difference with zero has one answer for all sizes."""
    difference = _without_factor(difference, atoms)
    if not difference or set(difference) == {()}:
        return True
    factors = [v for k, v in difference.items() if k]
    if any(not atoms.isdisjoint(k) for k in difference):
        return False
    nearest = sum(v * LEAST ** len(k) for k, v in difference.items())
    if all(v > 0 for v in factors):  # it is at least that
        return nearest > 0 or (nearest == 0 and sign in ("<", ">="))
    if all(v < 0 for v in factors):
        return nearest < 0 or (nearest == 0 and sign in (">", "<="))
    return False


def _without_factor(poly: Poly, atoms: set[str]) -> Poly:
    """Without the symbols that all its products have: these are greater than zero."""
    found = poly
    for name in next(iter(poly), ()):
        if name not in atoms and all(name in names for names in found):
            found = {_less(names, name): factor for names, factor in found.items()}
    return found


def _less(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = names.index(name)
    return names[:at] + names[at + 1 :]


def relation(difference: Poly, sign: str) -> str:
    """``difference sign 0``, with what is negative on the other side."""
    common = math.gcd(*difference.values())
    difference = {k: v // common for k, v in difference.items()}
    left = {k: v for k, v in difference.items() if v > 0}
    right = {k: -v for k, v in difference.items() if v < 0}
    if not [k for k in left if k]:  # a number alone stands right
        return f"{text_of(right)} {_TURNED[sign]} {text_of(left)}"
    return f"{text_of(left)} {sign} {text_of(right)}"
