"""Tensors in what modules take and give: nested lists, tuples, dicts and dataclasses.

Whatever is changed keeps its class: named tuples, kinds of dict, dataclasses (frozen ones, too).
Knows containers and Tensors; no strategy.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ...core.tensor import Tensor
from ...core.types import dtypes

__outward__ = ()


def find_tensors(value: Any) -> Iterator[Tensor]:
    """The Tensors in ``value``, in its order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from find_tensors(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from find_tensors(v)
    elif _is_record(value):
        for f in dataclasses.fields(value):
            yield from find_tensors(getattr(value, f.name, None))


def map_tensors(fn: Callable[[Tensor], Any], value: Any) -> Any:
    """``value`` with ``fn(t)`` in place of every Tensor ``t``. Containers in which nothing changes
    are those that were given; the others are copies."""
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, dict):
        return _with_entries(value, {k: map_tensors(fn, v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        new = [map_tensors(fn, v) for v in value]
        if all(a is b for a, b in zip(new, value, strict=True)):
            return value
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    if _is_record(value):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return _with_fields(value, {n: map_tensors(fn, getattr(value, n)) for n in names})
    return value


def cast(value: object, kind: Any) -> Any:
    """``value`` with its floating Tensors in the numpy type ``kind``."""

    def one(t: Tensor) -> Any:
        return t.to(dtypes.of(kind)) if _differs(t, kind) else t

    return map_tensors(one, value)


def moved(value: object, where: Any) -> Any:
    """``value`` with its Tensors on the device ``where``."""

    def one(t: Tensor) -> Any:
        return t if t.is_meta or t.device == where else t.to(where)

    return map_tensors(one, value)


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _with_entries(value: dict, new: dict) -> Any:
    if all(new[k] is v for k, v in value.items()):
        return value
    out = copy.copy(value)
    for k, v in new.items():
        out[k] = v
    return out


def _with_fields(value: object, new: dict[str, Any]) -> Any:
    changed = {n: v for n, v in new.items() if v is not getattr(value, n)}
    if not changed:
        return value
    out = copy.copy(value)
    for name, v in changed.items():
        object.__setattr__(out, name, v)  # of frozen ones, too
    return out


def _differs(t: Tensor, kind: object) -> bool:
    have = t.meta()[1]
    return have is not kind and have != kind and have.kind in "fV"
