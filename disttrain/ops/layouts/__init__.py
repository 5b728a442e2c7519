"""How operations may be cut in pieces: one rule per primitive, under the file names of primitives.

Rules are pure: shapes and parameters in, names of dimensions out (``layout.Layout``). They are
loaded when a sharded array is first computed with.
"""

from __future__ import annotations

from typing import Any

from . import along, factors, places, products, shape
from .layout import Cut, Layout, Rewrite, aligned, elementwise

RULES = {**along.RULES, **shape.RULES, **products.RULES, **factors.RULES, **places.RULES}


def layout_of(prim: Any, args: list, params: dict) -> Any:
    """What is said of ``prim`` for these arguments: a ``Layout``, a ``Rewrite``, or None."""
    rule = RULES.get(prim.name)
    if rule is not None:
        return rule(*args, **params)
    if prim.elementwise and not prim.random:
        return elementwise(prim.name, args)
    return None


__all__ = ["RULES", "Cut", "Layout", "Rewrite", "aligned", "elementwise", "layout_of"]
