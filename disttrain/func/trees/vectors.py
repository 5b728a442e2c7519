"""All leaves of a tree as one vector, and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...core.types import dtypes
from ...ops.functions.creation import create
from ...ops.functions.views.join import cat
from ..structured_bodies import Border, aval


def raveled(border: Border, tree: Any) -> tuple[Any, Callable]:
    """All leaves as one vector, and how such a vector becomes a tree again."""
    leaves, form = border.registry.flatten(tree)
    taken = [border.take(x) for x in leaves]
    if not taken:
        return border.give(create.zeros(0), False), lambda flat: form.unflatten([])
    kind = dtypes.of(border.meet(*[(t.meta()[1], weak) for t, weak in taken]))
    like = [aval(t) for t, _ in taken]
    places = [0, *itertools.accumulate(t.numel() for t, _ in taken)]
    total = places[-1]

    def unravel(flat: Any) -> Any:
        vector = border.take(flat)[0]
        shape, given = vector.meta()
        if tuple(shape) != (total,):
            raise TypeError(
                f"unravel function given array of shape {tuple(shape)}, expected shape {(total,)}"
            )
        if given != kind.np:
            raise TypeError(
                f"unravel function given array of dtype {given.name}, but expected dtype "
                f"{kind.name}"
            )
        rows = zip(like, places[:-1], places[1:], strict=True)
        parts = [vector[i:j].reshape(a.shape).to(dtypes.of(a.dtype)) for a, i, j in rows]
        return form.build(iter([border.give(x, False) for x in parts]))

    return border.give(cat([t.reshape(-1).to(kind) for t, _ in taken]), False), unravel


__all__ = ["raveled"]
