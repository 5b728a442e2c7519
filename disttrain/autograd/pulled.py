"""Functions that say their gradients themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.backward.function import Function
from ..core.tensor import Tensor
from .tape import GradientTape

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


def _same(value: Any) -> Any:
    return value


def explained(
    fn: Callable[..., tuple[Any, Callable]], values: Sequence[Tensor],
    shown: Callable[[Tensor], Any] = _same, plain: Callable[[Any], Any] = _same,
) -> tuple[list[Tensor], Callable]:  # fmt: skip
    """The results of a program's ``fn(*values)``, which gives (nested results, the function of
    their gradients), and how they are put together again.

    Cells that it reads while tapes record are given to that function, too, as ``variables`` (by
    their owners, where they have some); it gives a pair then: the gradients of the values, and of
    these. ``shown`` makes what the program sees of a Tensor, ``plain`` a Tensor of what it gives.
    """
    found, grad, cells, reads = _watched(lambda: fn(*map(shown, values)))
    leaves, rebuild = tree.flatten(found)
    outs = tuple(plain(leaf) for leaf in leaves)
    words = {"variables": [getattr(c, "owner", c) for c in cells]} if cells else {}

    def pull(*gs: Tensor) -> list:
        rows = _rows(grad(*map(shown, gs), **words), len(values), bool(cells))
        return [None if g is None else plain(g) for g in rows]

    given = pulled(lambda *_: (tuple(o.detach() for o in outs), pull), *values, *reads)
    return list(given), rebuild


def _watched(body: Callable[[], tuple]) -> tuple:
    """What ``body`` gives, the cells that it reads under tapes, and their leaves."""
    if not thread.tapes:
        return *body(), [], []
    with GradientTape() as tape:
        found, grad = body()
    cells = tape.notes.cells()
    told = inspect.getfullargspec(grad)
    if cells and "variables" not in told.args + told.kwonlyargs and told.varkw is None:
        raise TypeError("If using @custom_gradient with a function that uses variables, then "
                        "grad_fn must accept a 'variables' keyword argument.")  # fmt: skip
    leaves = [tape.notes.of(cell)[0] for cell in cells]
    reads = [own[-1] if own else cell.read() for own, cell in zip(leaves, cells, strict=True)]
    return found, grad, cells, reads


def _rows(found: Any, count: int, paired: bool) -> list:
    """A row for each value, and for each cell."""
    found, more = found if paired else (found, [])
    rows = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(rows) != count:
        raise ValueError(f"custom_gradient function expected to return {count} gradients, but "
                         f"returned {len(rows)} instead.")  # fmt: skip
    return [*rows, *more]
