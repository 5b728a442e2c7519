"""JAX's arrays: immutable views of Tensors, with JAX's types and their weakness.

An Array is a thin cover: its value is a Tensor, plain or of a transform's level, so that the gate,
the transforms and the compiler know nothing of it. ``wrap`` and ``unwrap`` are the border.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...core.tensor import Tensor
from ...core.types import dtypes
from .errors import TracerArrayConversionError
from .key_types import KEY, shown
from .tracing import concrete, tracer_text
from .types import Kind, canonical, of_number, result_kind

_new = object.__new__


class Array:
    """An immutable array; ``weak_type``: whether its type gives way to others'.

    ``_value`` is the Tensor.
    """

    __slots__ = ("_value", "weak_type")

    __array_priority__ = 100

    _value: Tensor
    weak_type: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._value.meta()[0])

    @property
    def dtype(self) -> np.dtype:
        return shown(self._value.meta()[1])

    @property
    def ndim(self) -> int:
        return len(self._value.meta()[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = concrete(self, TracerArrayConversionError).numpy()
        if found.dtype == KEY:
            raise TypeError(
                "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                "jax.random.key_data(arr) if you wish to extract the underlying integer array."
            )
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        text = tracer_text(self, wrap)
        if text is not None:
            return text
        if self._value.meta()[1] == KEY:
            words = concrete(self, TracerArrayConversionError).numpy()[..., None].view(np.uint32)
            return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{words}"
        width = np.get_printoptions()["linewidth"]
        body = np.array2string(
            np.asarray(self), prefix="Array(", suffix=",", separator=", ", max_line_width=width
        )
        end = f"dtype={self.dtype}{', weak_type=True' if self.weak_type else ''})"
        last = len(body) - body.rfind("\n") - 1
        between = " " if last + len(end) + 2 <= width else f"\n{' ' * 6}"
        return f"Array({body},{between}{end}"


def wrap(value: Tensor, weak: bool = False) -> Array:
    """The Array over ``value``."""
    out = _new(Array)
    out._value, out.weak_type = value, weak
    return out


def kind_of(value: Any) -> Kind:
    """(type, weak) of an array or a Python number."""
    if isinstance(value, Array):
        return value._value.meta()[1], value.weak_type
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return of_number(value)
    return canonical(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype), False


def unwrap(value: Any, kind: np.dtype | None = None) -> Tensor:
    """The Tensor of an Array, a number, a numpy array or nested sequences of these, in the type
    ``kind`` (None: its own)."""
    if isinstance(value, Array):
        found = value._value
        if kind is None or found.meta()[1] == kind:
            return found
        return found.to(dtypes.of(kind))
    if hasattr(value, "__jax_array__"):
        return unwrap(value.__jax_array__(), kind)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Array) for v in tree.leaves(value)):
        return dt.stack([unwrap(v, kind or _common(value)) for v in value])
    kind = kind_of(value)[0] if kind is None else kind
    return dt.tensor(np.asarray(value).astype(kind))


def _common(values: Any) -> np.dtype:
    return result_kind(*(kind_of(v) for v in tree.leaves(values)))[0]
