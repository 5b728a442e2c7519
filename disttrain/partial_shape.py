"""Shapes of which sizes, or the number of dimensions, may be unknown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any


class PartialShape:
    """Sizes, None for one that is unknown; ``PartialShape(None)``: even their number is."""

    __slots__ = ("_dims",)

    def __init__(self, dims: Any) -> None:
        if isinstance(dims, PartialShape):
            dims = dims._dims
        if hasattr(dims, "__index__"):
            dims = (dims,)
        if dims is not None:
            dims = tuple([None if d is None else int(d) for d in dims])
            for d in dims:
                if d is not None and d < 0:
                    raise ValueError(f"Dimension {d} must be >= 0")
        self._dims: tuple | None = dims

    @property
    def rank(self) -> int | None:
        """The number of dimensions, where it is known."""
        return None if self._dims is None else len(self._dims)

    ndims = rank
    dims = property(lambda self: None if self._dims is None else list(self._dims))

    def as_list(self) -> list:
        """The sizes."""
        if self._dims is None:
            raise ValueError(f"as_list() is not defined on an unknown {type(self).__name__}.")
        return list(self._dims)

    def is_fully_defined(self) -> bool:
        """Whether all is known."""
        return self._dims is not None and None not in self._dims

    def num_elements(self) -> int | None:
        """How many elements there are, where all is known."""
        return math.prod(self._dims or ()) if self.is_fully_defined() else None

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a shape may be both."""
        mine, theirs = self._dims, PartialShape(other)._dims
        if mine is None or theirs is None:
            return True
        pairs = zip(mine, theirs, strict=False)
        return len(mine) == len(theirs) and all(
            a is None or b is None or a == b for a, b in pairs
        )  # fmt: skip

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise unless a shape may be both."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {type(self)(other)} are incompatible")

    def merge_with(self, other: Any) -> PartialShape:
        """What is known by either."""
        self.assert_is_compatible_with(other)
        theirs = PartialShape(other)._dims
        if self._dims is None or theirs is None:
            return type(self)(theirs if self._dims is None else self)
        pairs = zip(self._dims, theirs, strict=True)
        return type(self)([b if a is None else a for a, b in pairs])

    def widened(self, other: Any) -> PartialShape:
        """What is known of a shape that is this or ``other``."""
        theirs = PartialShape(other)._dims
        if self._dims is None or theirs is None or len(self._dims) != len(theirs):
            return type(self)(None)
        pairs = zip(self._dims, theirs, strict=True)
        return type(self)([a if a == b else None for a, b in pairs])

    def concatenate(self, other: Any) -> PartialShape:
        """The sizes of ``other`` after these."""
        theirs = PartialShape(other)._dims
        if self._dims is None or theirs is None:
            return type(self)(None)
        return type(self)(self._dims + theirs)

    def with_rank(self, rank: int) -> PartialShape:
        """The same, where it may have so many dimensions."""
        self.assert_has_rank(rank)
        return type(self)([None] * rank) if self._dims is None else self

    def assert_has_rank(self, rank: int) -> None:
        """Raise unless it may have so many dimensions."""
        if self.rank not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_is_fully_defined(self) -> None:
        """Raise unless all is known."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def _known(self) -> tuple:
        if self._dims is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return self._dims

    def __len__(self) -> int:
        return len(self._known())

    def __iter__(self) -> Iterator:
        return iter(self._known())

    def __bool__(self) -> bool:
        return self._dims is not None

    def __getitem__(self, key: Any) -> Any:
        if self._dims is None:
            return type(self)(None) if isinstance(key, slice) else None
        return type(self)(self._dims[key]) if isinstance(key, slice) else self._dims[key]

    def __add__(self, other: Any) -> PartialShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> PartialShape:
        return type(self)(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        try:
            return self._dims == PartialShape(other)._dims
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._dims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({None if self._dims is None else list(self._dims)})"

    def __str__(self) -> str:
        return "<unknown>" if self._dims is None else str(self._dims)

    def __reduce__(self) -> tuple:
        return type(self), (self._dims,)


def fits(sizes: Sequence[int | None], wanted: Sequence[Any], known: dict[Any, int]) -> bool:
    """Whether ``sizes`` are those wanted: numbers, None for any, or letters of which each stands
    for one number, which ``known`` keeps."""
    return len(sizes) == len(wanted) and all(
        n is None or s is None or (n == s if isinstance(s, int) else known.setdefault(s, n) == n)
        for n, s in zip(sizes, wanted, strict=True)
    )
