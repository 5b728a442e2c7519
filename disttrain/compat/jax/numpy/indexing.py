"""``x[...]`` and ``x.at[...]``: what JAX takes as an index, its modes and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import indexing
from ....ops import api as ops
from ....trace import warn
from .. import types
from ..array import Array, wrap
from ..errors import NonConcreteBooleanIndexError
from ..tracing import is_traced
from . import making
from .lifting import cast, kind_of, one, plain, to_tensor

_MODES = {
    None: "", "fill": "fill", "drop": "fill", "clip": "clip", "promise_in_bounds": "clip",
    "wrap": "wrap", "fill_or_drop": "fill",
}  # fmt: skip


def _read(item: Any) -> Any:
    """An index that is neither a number of Python's nor a slice, as a tensor (or a number)."""
    if isinstance(item, str):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    item = plain(item)
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, (list, tuple)):
        item = np.asarray(item) if len(item) else np.zeros(0, np.int32)
    found = one("indexing", item)
    if found.meta()[1].kind == "b" and found.ndim and is_traced(found):
        raise NonConcreteBooleanIndexError(wrap(found))
    return found


def items(key: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of JAX's as one of ``disttrain.arrays.indexing``."""
    if isinstance(key, list):
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
            "`arr[array(seq)]` instead of `arr[seq]`. See https://github.com/jax-ml/jax/issues/4564"
        )
    return indexing.items(key, shape, _read)


def getitem(self: Array, key: Any) -> Array:
    """``self[key]``; places that are not there are brought to the nearest, without gradients."""
    if indexing.is_inside(key, self._value.meta()[0]):
        return wrap(self._value[key], self.weak_type)
    value = indexing.get(self._value, items(key, self.shape), "inside")
    return wrap(value, self.weak_type)


def _mode(mode: Any) -> str:
    name = getattr(mode, "name", mode)
    name = name.lower() if isinstance(name, str) else name
    if name not in _MODES:
        raise ValueError(f"Unknown gather mode: {mode}")
    return _MODES[name]


class At:
    """``x.at``, of which ``[index]`` gives the functions that update a copy."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> At_:
        return At_(self._array, key)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self._array!r})"


class At_:  # noqa: N801
    """``x.at[index]``."""

    __slots__ = ("_array", "_key")

    def __init__(self, array: Array, key: Any) -> None:
        self._array, self._key = array, key

    def get(
        self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
        fill_value: Any = None, out_sharding: Any = None, wrap_negative_indices: bool = True,
    ) -> Array:  # fmt: skip
        """``x[index]``."""
        x, how = self._array, _mode(mode)
        if not how and fill_value is not None:
            how = "fill"
        fill = indexing.missing(x._value) if fill_value is None else fill_value
        key = items(self._key, x.shape)
        value = indexing.get(x._value, key, how or "clip", fill, wrap_negative_indices)
        return wrap(value, x.weak_type)

    def _put(self, how: str, values: Any, options: dict[str, Any]) -> Array:
        x = self._array
        given = making.asarray(values) if isinstance(values, (list, tuple)) else plain(values)
        kind, weak = kind_of(given, "scatter")
        meet = types.result_kind((x.dtype, x.weak_type), (kind, weak))[0]
        if meet != x.dtype:
            warn(
                "scatter inputs have incompatible types: cannot safely cast value from "
                f"dtype={kind} to dtype={x.dtype} with jax_numpy_dtype_promotion=standard. In "
                "future JAX releases this will result in an error.",
                FutureWarning,
            )
        mode = "clip" if _mode(options.get("mode")) == "clip" else "drop"
        negative = options.get("wrap_negative_indices", True)
        found = to_tensor(given, x.dtype)
        if how == "add" and x.dtype.kind == "b":
            found = cast(found, x.dtype)
        value = indexing.put(x._value, items(self._key, x.shape), found, how, mode, negative)
        return wrap(value, x.weak_type)

    def apply(self, func: Callable, **options: Any) -> Array:
        """``func`` of what is at ``index`` in its place."""
        return self._put("set", func(self.get()), options)

    def power(self, values: Any, **options: Any) -> Array:
        """To the power of ``values``."""
        return self._put("set", self.get() ** values, options)

    def divide(self, values: Any, **options: Any) -> Array:
        """Over ``values``."""
        changed: Any = self._array
        ones = wrap(ops.ones_like(changed._value), changed.weak_type)
        return changed / At_(ones, self._key)._put("multiply", values, options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """Less ``values``."""
        return self._put("add", -values, options)


def _updates(how: str) -> Callable:
    def update(self: At_, values: Any, **options: Any) -> Array:
        return self._put(how, values, options)

    update.__name__, update.__doc__ = how, f"A copy of x with x[index] {how} values."
    return update


for _how in ("set", "add", "multiply", "min", "max"):
    setattr(At_, _how, _updates(_how))
At_.mul = At_.multiply  # type: ignore[attr-defined]
At_.__name__ = "At"
