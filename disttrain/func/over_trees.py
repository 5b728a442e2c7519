"""Functions of tensors as functions of trees of what a ``Border`` makes of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .structured_bodies import Border, built, leaves_of


def of_leaves(border: Border, fn: Callable) -> Callable:
    """``fn`` of one tensor, and of what else there is, as a function of each leaf of a tree."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        given = leaves_of(border, x)
        out = [fn(t, *args, **kwargs) for t in given.tensors]
        return built(border, given.form, out, given.avals)

    return run


def reducing(border: Border, fn: Callable) -> Callable:
    """``fn(operands, init_values, computation, ...)`` of lists of tensors, as one of trees."""

    def run(operands: Any, init_values: Any, computation: Callable, *args: Any, **kw: Any) -> Any:
        given, begin = leaves_of(border, operands), leaves_of(border, init_values)
        if given.form != begin.form:
            raise ValueError(
                "Operands must have the same tree structure as init_values: "
                f"{given.form} vs. {begin.form}"
            )
        strong = [a._replace(weak=False) for a in given.avals]

        def combine(a: list, b: list) -> list:
            one, two = (built(border, given.form, part, strong) for part in (a, b))
            return leaves_of(border, computation(one, two)).tensors

        outs = fn(given.tensors, begin.tensors, combine, *args, **kw)
        pairs = zip(given.avals, begin.avals, strict=True)
        kept = [a._replace(weak=a.weak and s.weak) for a, s in pairs]
        return built(border, given.form, outs, kept)

    return run
