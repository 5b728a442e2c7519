"""einsum: sums of products named by letters, as permutations, reshapes and matrix products.

Everything is composed of primitives, so every derivative and transform follows. More than two
operands are contracted from left to right.
"""

from __future__ import annotations

import math
from typing import Any

from ...core.tensor import Tensor
from ...errors import ShapeError
from ..primitives.aliases import diagonal
from ..primitives.elementwise import mul
from ..primitives.linalg import matmul
from ..primitives.reduce import sum_
from ..primitives.views import expand, permute, reshape
from .args import tensor as as_input

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _fail(equation: str, what: str) -> ShapeError:
    return ShapeError(f"einsum({equation!r}): {what}")


def _split(equation: str, count: int) -> tuple[list[str], str | None]:
    """The letters of each operand, and of the result where they are given."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if not count:
        raise _fail(equation, "einsum(): must provide at least one operand")
    terms = inputs.split(",")
    if len(terms) != count:
        raise _fail(equation, f"{len(terms)} operands are named, {count} given")
    for term in (*terms, output):
        letters = term.replace("...", "")
        if not set(letters) <= set(_LETTERS) or term.count("...") > 1:
            raise _fail(equation, f"{term!r}: needed letters, and '...' at most once")
    return terms, output if arrow else None


def _spell_ellipsis(
    equation: str, terms: list[str], output: str | None, ndims: list[int]
) -> tuple[list[str], str]:
    """Letters in place of '...' (aligned from behind), and a result in any case."""
    free = [c for c in _LETTERS if c not in equation]
    extra = [
        n - len(t.replace("...", "")) if "..." in t else 0
        for t, n in zip(terms, ndims, strict=True)
    ]
    most = max(extra, default=0)
    if min(extra, default=0) < 0 or most > len(free):
        raise _fail(equation, "an operand has fewer dimensions than letters")
    dots = "".join(free[:most])
    spelled = [t.replace("...", dots[most - e :]) for t, e in zip(terms, extra, strict=True)]
    if output is None:
        letters = "".join(terms).replace(".", "")
        output = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    else:
        output = output.replace("...", dots)
    return spelled, output


def _sizes(equation: str, terms: list[str], operands: tuple[Tensor, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, t in zip(terms, operands, strict=True):
        shape = tuple(t.shape)
        if len(term) != len(shape):
            raise _fail(
                equation, f"operand of shape {list(shape)} has not {len(term)} dimensions ({term})"
            )
        for c, n in zip(term, shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise _fail(equation, f"{c!r} is {sizes[c]} in one operand and {n} in another")
            sizes[c] = n if n != 1 else sizes.get(c, 1)
    return sizes


def _without_repeats(t: Tensor, term: str) -> tuple[Tensor, str]:
    """Diagonals where a letter stands twice in one operand."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            if t.shape[i] != t.shape[j]:
                raise ShapeError(
                    f"einsum: subscript {c} is repeated for an operand but the sizes don't match, "
                    f"{t.shape[i]} != {t.shape[j]}"
                )
            t = diagonal(t, offset=0, dim1=i, dim2=j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return t, term


def _sum_away(t: Tensor, term: str, keep: set[str]) -> tuple[Tensor, str]:
    """Sum over the letters that nobody else names."""
    dims = tuple(i for i, c in enumerate(term) if c not in keep)
    if not dims:
        return t, term
    return sum_(t, dims=dims, keepdim=False), "".join(c for c in term if c in keep)


def _arranged(t: Tensor, term: str, order: str, sizes: dict[str, int]) -> Tensor:
    """Dimensions in ``order``; where a size of 1 stands for a larger one, expanded."""
    dims = tuple(term.index(c) for c in order)
    if dims != tuple(range(len(dims))):
        t = permute(t, dims=dims)
    shape = tuple(sizes[c] for c in order)
    return t if tuple(t.shape) == shape else expand(t, shape=shape)


def _contract(
    a: Tensor, s: str, b: Tensor, t: str, keep: set[str], sizes: dict[str, int]
) -> tuple[Tensor, str]:
    """One product of (batches of) matrices; sums over letters of both that ``keep`` lacks. Where
    that sums nothing, of elements, of any types."""
    both = [c for c in s if c in t]
    batch = "".join(c for c in both if c in keep)
    inner = "".join(c for c in both if c not in keep)
    left = "".join(c for c in s if c not in t)
    right = "".join(c for c in t if c not in s)

    def size(letters: str) -> int:
        return math.prod(sizes[c] for c in letters)

    lead = tuple(sizes[c] for c in batch)
    x = _arranged(a, s, batch + left + inner, sizes)
    y = _arranged(b, t, batch + inner + right, sizes)
    x = reshape(x, shape=(*lead, size(left), size(inner)))
    y = reshape(y, shape=(*lead, size(inner), size(right)))
    out = mul(x, y) if size(inner) == 1 else matmul(x, y)
    letters = batch + left + right
    return reshape(out, shape=tuple(sizes[c] for c in letters)), letters


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products of ``operands``, whose dimensions ``equation`` names: "ij,jk->ik".

    A letter that the result lacks is summed over; '...' stands for any number of dimensions.
    Without '->' the result has the letters that stand once, in alphabetical order.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    for t in operands:
        as_input(t, "einsum", "operand")
    terms, output = _split(equation, len(operands))
    terms, output = _spell_ellipsis(equation, terms, output, [t.ndim for t in operands])
    unknown = set(output) - set("".join(terms))
    if unknown or len(set(output)) != len(output):
        raise _fail(equation, "the result names a letter twice, or one that no operand has")
    sizes = _sizes(equation, terms, operands)
    t, term = _without_repeats(operands[0], terms[0])
    for i in range(1, len(operands)):
        other, letters = _without_repeats(operands[i], terms[i])
        keep = set(output).union(*terms[i + 1 :])
        t, term = _sum_away(t, term, keep | set(letters))
        other, letters = _sum_away(other, letters, keep | set(term))
        t, term = _contract(t, term, other, letters, keep, sizes)
    t, term = _sum_away(t, term, set(output))
    out = _arranged(t, term, output, dict(zip(term, t.shape, strict=True)))
    return reshape(out, shape=tuple(out.shape)) if out is operands[0] else out


__all__ = ["einsum"]
