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

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __getitem__(self, key: Any) -> Any:
        got = tuple.__getitem__(self, key)
        return Size(got) if isinstance(key, slice) else got
