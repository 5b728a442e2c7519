"""Functions that say their gradients themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.backward.function import Function
from ..core.tensor import Tensor

Pull = Callable[..., Sequence[Tensor | None]]


def pulled(fn: Callable[..., tuple[tuple, Pull]], *values: Tensor) -> Any:
    """The results that ``fn(*values)`` gives, with a function of their gradients."""

    class Pulled(Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            outs, ctx.pull = fn(*given)
            return outs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return tuple(ctx.pull(*gradients))

    return Pulled.apply(*values)
