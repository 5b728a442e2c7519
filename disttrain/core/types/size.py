"""Shapes."""

from __future__ import annotations

from typing import Any, SupportsIndex, overload


class Size(tuple[int, ...]):
    """A shape. A tuple with PyTorch's ``numel`` and spelling."""

    __slots__ = ()
    namespace = "disttrain"  # how sizes print

    def numel(self) -> int:
        n = 1
        for d in self:
            n *= d
        return n

    def __repr__(self) -> str:
        return f"{Size.namespace}.Size({list(self)})"

    def __add__(self, other: Any) -> Any:
        return Size._checked(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size._checked(tuple(other) + tuple(self))

    def __mul__(self, times: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    @staticmethod
    def _checked(found: tuple) -> Size:
        for i, n in enumerate(found):
            if not hasattr(n, "__index__"):
                raise TypeError(
                    f"Size() takes an iterable of 'int' (item {i} is '{type(n).__name__}')"
                )
        return Size(found)

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __getitem__(self, key: Any) -> Any:
        got = tuple.__getitem__(self, key)
        return Size(got) if isinstance(key, slice) else got
