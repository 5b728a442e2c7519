"""What the elements of a pipeline look like: shapes (a size of None may vary) and types.

A stage whose function the program wrote is asked with elements of zeros, and of ones of other sizes
where those may vary: what differs in the results may vary too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .elements import flatten, form, map_leaves

INFINITE, UNKNOWN = -1, -2  # cardinalities
TEXT = "string"


@dataclass(frozen=True)
class TensorSpec:
    """``shape``: sizes, None for one that varies; None in all: even the number of dimensions does.
    ``dtype``: a numpy type, or ``"string"``."""

    shape: tuple[int | None, ...] | None
    dtype: Any

    def merged(self, other: TensorSpec) -> TensorSpec:
        """The spec that both fit."""
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return TensorSpec(None, self.dtype)
        pairs = zip(self.shape, other.shape, strict=True)
        return TensorSpec(tuple(a if a == b else None for a, b in pairs), self.dtype)


@dataclass(frozen=True)
class PipelineSpec:
    """A leaf that is a pipeline of such elements."""

    element_spec: Any

    def merged(self, other: PipelineSpec) -> PipelineSpec:
        """The spec that both fit."""
        return PipelineSpec(merge(self.element_spec, other.element_spec))


def spec_of(element: Any) -> Any:
    """The spec of the one element."""
    return map_leaves(_leaf_spec, element)


def _leaf_spec(leaf: Any) -> Any:
    if hasattr(leaf, "element_spec"):
        return PipelineSpec(leaf.element_spec)
    if isinstance(leaf, np.ndarray):
        return TensorSpec(leaf.shape, TEXT if leaf.dtype == object else leaf.dtype)
    return TensorSpec(tuple(leaf.shape), leaf.dtype.np)


def merge(a: Any, b: Any) -> Any:
    """The spec of elements of either."""
    leaves, build = flatten(a)
    others, _ = flatten(b)
    if form(a) != form(b):
        raise ValueError(f"structures {form(a)} and {form(b)} differ")
    return build([x.merged(y) for x, y in zip(leaves, others, strict=True)])


def leading(spec: Any, size: int | None) -> Any:
    """With a new first dimension."""

    def more(leaf: Any) -> Any:
        if isinstance(leaf, PipelineSpec):
            return leaf
        return TensorSpec(None if leaf.shape is None else (size, *leaf.shape), leaf.dtype)

    return map_leaves(more, spec)


def trailing(spec: Any) -> Any:
    """Without the first dimension."""

    def less(leaf: TensorSpec) -> TensorSpec:
        return TensorSpec(None if leaf.shape is None else leaf.shape[1:], leaf.dtype)

    return map_leaves(less, spec)


def filled(spec: Any, size: int, number: int, nested: Callable[[list], Any]) -> Any:
    """An element of that spec, all ``number``; what may vary is ``size``."""

    def leaf(s: Any) -> Any:
        if isinstance(s, PipelineSpec):
            return nested([filled(s.element_spec, size, number, nested)] * size)
        if s.shape is None:
            raise ValueError("a number of dimensions that varies")
        shape = [size if n is None else n for n in s.shape]
        return np.full(
            shape, b"" if s.dtype == TEXT else number, object if s.dtype == TEXT else s.dtype
        )

    return map_leaves(leaf, spec)


def fits(spec: Any, element: Any) -> str | None:
    """What of ``element`` is not as ``spec`` says; None: all is."""
    if form(spec) != form(element):
        return f"its structure is {form(element)}, that of the signature {form(spec)}"
    for s, x in zip(flatten(spec)[0], flatten(element)[0], strict=True):
        if not isinstance(s, TensorSpec):
            continue
        shape = tuple(x.shape)
        same = s.shape is None or (
            len(s.shape) == len(shape)
            and all(n is None or n == m for n, m in zip(s.shape, shape, strict=True))
        )
        if not same:
            return f"its shape is {list(shape)}, that of the signature {_said(s.shape)}"
    return None


def _said(shape: Any) -> str:
    return "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
