"""Staged functions of arrays with layouts: results lie as it follows from arguments, and what lies
on several ranks is captured by the compiler, which sees how it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...context import package
from ...core.tensor import Tensor
from ...func.trees.programs import Call, Programs
from .arrays import over_ranks, summed, with_layouts


class Captured:
    """A function of a call's values, captured for calls of that kind."""

    def __init__(self, programs: Programs, call: Call) -> None:
        self.border, self.fun, self.avals = programs.border, programs.of(call), call.avals
        self.weak: list[bool] = []
        self.run = package("compile").jit(self._of)

    def _of(self, *tensors: Tensor) -> list[Tensor]:
        border = self.border
        given = [border.give(t, a.weak) for t, a in zip(tensors, self.avals, strict=True)]
        leaves, self.form = border.registry.flatten(self.fun(given))
        outs = [border.take(x) for x in leaves]
        self.weak = [weak for _, weak in outs]
        return [summed(t) for t, _ in outs]

    def __call__(self, values: Sequence[Tensor]) -> Any:
        """The result for these values."""
        pairs = zip(self.run(*values), self.weak, strict=True)
        return self.form.build(iter([self.border.give(o, w) for o, w in pairs]))


class PlacedPrograms(Programs):
    """A function, and its programs by kinds of calls, for arrays with layouts."""

    laid = staticmethod(with_layouts)

    def run(self, call: Call, values: list[Tensor]) -> Any:
        if not over_ranks(values):
            return super().run(call, values)
        found = self.own.get(call.key)
        if found is None:
            found = self.own[call.key] = Captured(self, call)
        return found(values)


__all__ = ["Captured", "PlacedPrograms"]
