"""Covers: what a program with conventions of its own has in place of tensors. They are immutable,
and answer Python's questions (its length, its rows, its number) from what they cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import tree
from ..core.tensor import Tensor, wrap


class Reference:
    """An object as a key: equal to another reference of the same object."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def deref(self) -> Any:
        """The object."""
        return self._held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._held is other._held

    def __hash__(self) -> int:
        return id(self._held)


class Cover:
    """Over ``_value``: a Tensor, or a numpy array of texts (bytes). A subclass has subscripts."""

    __slots__ = ()
    _value: Any

    @classmethod
    def over(cls, value: Any) -> Any:
        """The cover over ``value``."""
        out = cls()
        out._value = value
        return out

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._value.shape)

    def numpy(self) -> Any:
        """Its numbers: a copy."""
        value = self._value
        array = value if value.__class__ is np.ndarray else value.detach().numpy()
        return array[()] if not array.ndim else array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.asarray(self.numpy())
        return found if dtype is None else found.astype(dtype)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("Scalar tensor has no `len()`")
        return len(self._value)

    def __iter__(self) -> Iterator:
        if not self.ndim:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))  # type: ignore[index]

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        found: int = self.numpy().__index__()
        return found

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        value = self._value
        copied = wrap(np.array(self.numpy())) if isinstance(value, Tensor) else value.copy()
        return type(self).over(copied)


def lined(text: str) -> str:
    """A text of several lines on lines of its own."""
    return "\n" + text if "\n" in text else text


def told(found: Any) -> str:
    """An array or a number of numpy's as Python's ``repr`` shows it."""
    if isinstance(found, np.ndarray):
        return lined(repr(found))
    return repr(found.item() if isinstance(found, np.generic) else found)


def uncovered(
    fn: Callable, args: tuple, kwargs: dict | None, plain: Callable[[Any], Any],
    over: Callable[[Tensor], Any],
) -> Any:  # fmt: skip
    """``fn`` of what ``plain`` makes of the arguments' leaves; its Tensors ``over`` covers."""
    given, words = tree.map(plain, (args, kwargs or {}))
    return tree.map(lambda v: over(v) if isinstance(v, Tensor) else v, fn(*given, **words))
