"""Element types under the names of another library: one object each, equal to what means it.

A subclass is a vocabulary: ``known`` its types by name, ``declare`` what there are, ``of`` the one
that a value means. Texts are a type, too ("string"), which has no type here.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, TypeVar

import ml_dtypes
import numpy as np

from . import dtypes

Self = TypeVar("Self", bound="NamedType")


class NamedType:
    """A type: ``number`` stands for it in files, ``word`` in messages."""

    known: ClassVar[dict[str, Any]]
    refusal: ClassVar[str] = "{!r} given; a type is needed"
    alias: ClassVar[dict[Any, str]] = {}  # names, and Python's types, that numpy means otherwise

    def __init__(self, name: str, number: int, word: str) -> None:
        self.name, self.as_datatype_enum, self.word = name, number, word
        text = name == "string"
        kind = object if text else np.dtype(getattr(ml_dtypes, name, name)).type
        self.as_numpy_dtype: Any = kind
        self.inner = None if text else dtypes.of(np.dtype(kind))  # the type here

    @classmethod
    def declare(cls: type[Self], table: dict[str, tuple[int, str]]) -> dict[str, Any]:
        """The types of a table: name -> (number, word)."""
        cls.known = {name: cls(name, *about) for name, about in table.items()}
        return cls.known

    @classmethod
    def of(cls: type[Self], value: Any) -> Any:
        """The type that ``value`` means: one itself, its name or number, numpy's, Python's or the
        type here."""
        if isinstance(value, cls):
            return value
        try:
            return _found(cls, value)  # type: ignore[arg-type]
        except (TypeError, KeyError):
            raise TypeError(cls.refusal.format(value)) from None

    base_dtype = property(lambda self: self)
    is_floating = property(lambda self: "float" in self.name)
    is_complex = property(lambda self: "complex" in self.name)
    is_integer = property(lambda self: "int" in self.name)
    is_unsigned = property(lambda self: self.name.startswith("uint"))
    is_bool = property(lambda self: self.name == "bool")
    size = property(lambda self: 1 if self.inner is None else self.inner.itemsize)
    max = property(lambda self: self._limit("max"))
    min = property(lambda self: self._limit("min"))
    limits = property(lambda self: (0 if self.is_unsigned else self.min, self.max))

    @property
    def real_dtype(self) -> Any:
        """The type of the parts of complex numbers."""
        return self.known[
            {"complex64": "float32", "complex128": "float64"}.get(self.name, self.name)
        ]

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        if not (self.is_floating or self.is_integer):
            raise TypeError(f"Cannot find {which}imum value of {self}.")
        about = ml_dtypes.finfo if self.is_floating else np.iinfo
        return getattr(about(self.as_numpy_dtype), which)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether ``other`` means this type."""
        return self is self.of(other)

    def __eq__(self, other: object) -> bool:
        try:
            return other is not None and self is self.of(other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __reduce__(self) -> tuple:
        return type(self).of, (self.name,)


@functools.cache
def _found(cls: type[NamedType], value: Any) -> Any:
    if isinstance(value, (str, type)):
        for name, meant in cls.alias.items():
            if value is name or (isinstance(value, str) and value == name):
                return cls.known[meant]
        if isinstance(value, str) and value in cls.known:
            return cls.known[value]
    if isinstance(value, int):
        return {d.as_datatype_enum: d for d in cls.known.values()}[value]
    kind = np.dtype(getattr(value, "numpy_dtype", getattr(value, "np", value)))
    return cls.known["string" if kind.kind in "SUO" else kind.name]
