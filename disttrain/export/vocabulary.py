"""What nodes of a program may be: the primitives that a file can name, each once and by its name.

Of these are the declared ones (``ops.declare.REGISTRY``), some that are declared apart from them,
and *makers*, which stand for what a program makes of sizes (``zeros``, ``arange``). A package that
declares more primitives adds its module to ``HOMES``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.gate import Primitive
from ..nn.functional import filters, pooling, vision
from ..ops.declare import REGISTRY
from ..ops.functions import repeating
from ..ops.functions.creation import create, data
from ..ops.functions.index_arrays import numbered
from ..ops.functions.nn import padding
from ..ops.primitives import attention

# Modules that declare primitives when they are loaded, besides those of ``ops``.
HOMES: list[str] = ["disttrain.nn.hooks", "disttrain.nn.utils.clip"]
# Primitives outside of the registry, and where they are.
APART: dict[str, tuple[str, str]] = {
    "batch_norm_known": ("disttrain.ops.primitives.norm", "batch_norm_known"),
    "check_classes": ("disttrain.ops.functions.nn.loss", "_check_classes"),
    "check_index": ("disttrain.ops.functions.index_arrays", "_check_index"),
    "check_labels": ("disttrain.nn.functional.margins", "_check_labels"),
    "check_probabilities": ("disttrain.nn.functional.loss", "_check_probabilities"),
    "held": ("disttrain.core.bodies", "held"),
    "integer_recurrence": ("disttrain.nn.integer_recurrence", "integer_recurrence"),
    "recurrence": ("disttrain.nn.recurrence", "_recurrence"),
    "searchsorted": ("disttrain.ops.functions.gathering", "_search"),
}
# Never in a program: they write to what they are given, or are of no use in one.
_NEVER = frozenset({"constant", "window", "total_norm"})


class Generator:
    """In parameters: the generator of the process that runs the program."""

    def __repr__(self) -> str:
        return "default_generator"

    def __reduce__(self) -> str:
        return "GENERATOR"


GENERATOR = Generator()


# --- makers ---------------------------------------------------------------------------------------
def _maker(name: str, make: Callable[..., Any], shape: Callable[..., tuple]) -> Primitive:
    prim = Primitive(name, make, ())
    prim.shape = lambda **params: (tuple(shape(**params)), np.dtype(params["dtype"]))
    return prim


def _arange(*, start: Any, count: int, step: Any, dtype: Any) -> np.ndarray:
    return create._steps(start, count, step, dtype)


def _even_numbers(*, start: Any, end: Any, count: int, dtype: Any, base: Any) -> np.ndarray:
    return create._even_numbers(np, start, end, count, dtype, base)


def _full(*, shape: tuple, value: Any, dtype: Any, order: Any) -> np.ndarray:
    if order is None:
        return np.full(shape, value, dtype)
    back = [order.index(d) for d in range(len(order))]
    return np.full([shape[d] for d in order], value, dtype).transpose(back)


def _numbers(*, shape: tuple, items: tuple, dtype: Any) -> np.ndarray:
    return data.numbers_of_sizes(dtype, shape, *items)


def _numbers_of(kind: Any, shape: tuple, *items: Any) -> tuple[str, dict]:
    return "numbers", {"shape": tuple(shape), "items": items, "dtype": np.dtype(kind)}


def _seen(*, shape: tuple, dtype: Any) -> np.ndarray:
    return attention.seen_places(*shape).astype(dtype, copy=False)


def _eye(*, shape: tuple, dtype: Any) -> np.ndarray:
    return create._eye(shape, dtype)


def _numbered(*, shape: tuple, dtype: Any) -> np.ndarray:
    return numbered(shape).astype(dtype, copy=False)


# Functions that make the matrices of what resizes a dimension.
_WEIGHTS: dict[str, Callable[..., Any]] = {
    "area": filters.area, "resizing": vision._resizing, "sampled": filters.sampled,
    "smooth": filters.smooth,
}  # fmt: skip
_WEIGHT_NAMES = {make: name for name, make in _WEIGHTS.items()}
_MOST = 1 << 26  # elements of such a matrix


def _weights(*, of: str, given: tuple, dtype: Any) -> np.ndarray:
    sizes = [abs(n) for n in given if type(n) in (int, float)]
    if not math.prod(n for n in sizes if not n <= 1) <= _MOST:
        raise ValueError(f"weights of {given} are too large")
    numbers = [_WEIGHTS[n] if type(n) is str and n in _WEIGHTS else n for n in given]
    return pooling._kept_weights.__wrapped__(_WEIGHTS[of], tuple(numbers), dtype)


def _weights_of(make: Any, given: tuple, kind: Any) -> tuple[str, dict] | None:
    if make not in _WEIGHT_NAMES:
        return None
    numbers = tuple(_WEIGHT_NAMES.get(n, n) if callable(n) else n for n in given)
    return "weights", {"of": _WEIGHT_NAMES[make], "given": numbers, "dtype": np.dtype(kind)}


# Functions that make the places from which a dimension is taken.
_PLACES: dict[str, Callable[..., Any]] = {
    "nearest": vision.nearest_places, "padding": padding.sources,
    "repeated": repeating.repeated_places,
}  # fmt: skip


# How many these are.
_COUNTS: dict[str, Callable[..., int]] = {
    "nearest": lambda size, out, f, shift, plain: out,
    "padding": lambda mode, size, low, high: low + size + high,
    "repeated": lambda n, times: n * times,
}


def _count(of: str, given: tuple) -> int:
    count = _COUNTS[of](*given)
    if not (type(count) is int and 0 <= count <= _MOST):
        raise ValueError(f"{count} places are asked for; at most {_MOST} are made")
    return count


def _places(*, of: str, given: tuple, dtype: Any) -> np.ndarray:
    _count(of, given)
    return _PLACES[of](*given).astype(dtype, copy=False)  # type: ignore[no-any-return]


def _places_of(of: str) -> Callable[..., tuple[str, dict]]:
    return lambda *given: ("places", {"of": of, "given": given, "dtype": np.dtype(np.int64)})


MAKERS: dict[str, Primitive] = {
    "numbers": _maker("numbers", _numbers, lambda shape, **_: shape),
    "seen": _maker("seen", _seen, lambda shape, **_: shape),
    "eye": _maker("eye", _eye, lambda shape, **_: shape),
    "places": _maker("places", _places, lambda of, given, **_: (_count(of, given),)),
    "weights": _maker("weights", _weights, lambda **how: _weights(**how).shape),
    "arange": _maker("arange", _arange, lambda count, **_: (count,)),
    "even_numbers": _maker("even_numbers", _even_numbers, lambda count, **_: (count,)),
    "numbered": _maker("numbered", _numbered, lambda shape, **_: shape),
    "full": _maker("full", _full, lambda shape, **_: shape),
}


def _of_shape(value: Any) -> Callable[..., tuple[str, dict]]:
    return lambda shape, kind: _full_of(shape, value, kind)


def _full_of(shape: Any, value: Any, kind: Any, order: Any = None) -> tuple[str, dict]:
    value = value.item() if isinstance(value, np.generic) else value
    return "full", {"shape": tuple(shape), "value": value, "dtype": np.dtype(kind), "order": order}


def _in_order(make: Any, shape: Any, kind: Any, order: Any) -> tuple[str, dict] | None:
    found = recipe(make, (shape, kind))
    if found is None or found[0] != "full":
        return None
    return "full", {**found[1], "order": tuple(order)}


_RECIPES: dict[Any, Callable[..., Any]] = {
    np.zeros: _of_shape(0),
    np.empty: _of_shape(0),
    np.ones: _of_shape(1),
    np.full: _full_of,
    np.asarray: lambda value, kind: _full_of((), value, kind),
    np.arange: lambda count: (
        "arange", {"start": 0, "count": count, "step": 1, "dtype": np.dtype(np.int64)}
    ),
    create._steps: lambda low, n, by, kind: (
        "arange", {"start": low, "count": n, "step": by, "dtype": np.dtype(kind)}
    ),
    create._even_numbers: lambda xp, start, end, steps, kind, base: (
        "even_numbers",
        {"start": start, "end": end, "count": steps, "dtype": np.dtype(kind), "base": base},
    ),
    create._eye: lambda shape, kind: ("eye", {"shape": tuple(shape), "dtype": np.dtype(kind)}),
    data.numbers_of_sizes: _numbers_of,
    attention.seen_places: lambda *shape: ("seen", {"shape": shape, "dtype": np.dtype(bool)}),
    create._made_in_order: _in_order,
    numbered: lambda shape: ("numbered", {"shape": tuple(shape), "dtype": np.dtype(np.int64)}),
    pooling._weights: _weights_of,
    **{make: _places_of(name) for name, make in _PLACES.items()},
}  # fmt: skip


def recipe(make: Any, given: tuple) -> tuple[str, dict] | None:
    """The maker, and its parameters, of what ``make(*given)`` gives; None where there is none."""
    if isinstance(make, create._Full):
        return _full_of(given[0], make.value, given[1])
    try:
        known = _RECIPES.get(make)
    except TypeError:
        known = None
    return None if known is None else known(*given)


# --- names ----------------------------------------------------------------------------------------
def name_of(prim: Primitive) -> str | None:
    """The name by which files call a primitive; None for one that none can name."""
    name = prim.name
    if name in _NEVER or prim.mutates or prim.outward:
        return None
    return name if find(name) is prim else None


def is_random(name: str) -> bool:
    """Whether the primitive of a name draws random numbers."""
    found = find(name)
    return found is not None and found.random


def find(name: str) -> Primitive | None:
    """The primitive of a name."""
    if name in _NEVER:
        return None
    found = MAKERS.get(name) or REGISTRY.get(name)
    if found is None and name in APART:
        home, attribute = APART[name]
        found = getattr(importlib.import_module(home), attribute)
    if found is None:
        for home in HOMES:
            importlib.import_module(home)
        found = REGISTRY.get(name)
    if found is not None and (found.mutates or found.outward):
        return None
    return found


__all__ = [
    "APART",
    "GENERATOR",
    "HOMES",
    "Generator",
    "MAKERS",
    "find",
    "is_random",
    "name_of",
    "recipe",
]
