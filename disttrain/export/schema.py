"""What nodes of a file may hold: how many arguments an operation takes, which parameters, and of
which kinds. Forward functions trust their callers; what comes from a file is checked here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.gate import Primitive
from ..core.types.device import device
from ..ops.primitives.aliases import Layout
from . import bodies, vocabulary
from .sizes import Size
from .values import Graph, Name
from .vocabulary import Generator

_MOST = 4096  # entries of a tuple of numbers


# --- kinds ----------------------------------------------------------------------------------------
def _is_int(x: Any) -> bool:
    return type(x) is int or x.__class__ is Size


def _is_number(x: Any) -> bool:
    return type(x) in (int, float, bool, complex) or x.__class__ is Size


def _is_bool(x: Any) -> bool:
    return type(x) is bool


def _is_text(x: Any) -> bool:
    return type(x) is str and len(x) <= 64


def _ints(x: Any) -> bool:
    return type(x) is tuple and len(x) <= _MOST and all(map(_is_int, x))


def _pairs(x: Any) -> bool:
    return type(x) is tuple and all(map(_ints, x)) and all(len(y) == 2 for y in x)


def _index(x: Any) -> bool:
    return type(x) is tuple and len(x) <= 128 and all(
        y is None or y is Ellipsis or _is_int(y) or isinstance(y, slice) for y in x
    )  # fmt: skip


def _or_none(kind: Any) -> Any:
    return lambda x: x is None or kind(x)


def _graphs(x: Any) -> bool:
    return type(x) is tuple and len(x) > 0 and all(isinstance(y, Graph) for y in x)


def _chain(x: Any) -> bool:
    return type(x) is tuple and 0 < len(x) <= 64 and all(_link(y) for y in x)


def _link(x: Any) -> bool:
    if type(x) is not tuple or len(x) != 2 or type(x[0]) is not str or type(x[1]) is not dict:
        return False
    prim = vocabulary.find(x[0])
    return prim is not None and prim.view and not prim.multi and fault(prim, [Name("x")], x[1]) is (
        None)  # fmt: skip


_KINDS: dict[str, Any] = {
    **dict.fromkeys("accumulate backwards causal ceil_mode descending hermitian include_self "
                    "inverse keep keepdim largest unit upper include replacement negative "
                    "non_blocking log_space partitionable reverse".split(), _is_bool),
    **dict.fromkeys("check mode norm reduce reduction side what kind".split(), _or_none(_is_text)),
    **dict.fromkeys("dim1 dim2 groups k n offset rows step num_samples classes consts "
                    "carries of_cond of_body count ignore_index decimals times".split(), _is_int),
    **dict.fromkeys("dims dilation kernel padding stride shape shifts sizes".split(), _ints),
    **dict.fromkeys("eps max_norm smoothing p norm_type".split(), _is_number),
    "dim": lambda x: x is None or _is_int(x) or _ints(x),
    "size": lambda x: _is_int(x) or _ints(x),
    "high": _or_none(_is_number), "low": _or_none(_is_number),
    "least": _or_none(_is_number), "scale": _or_none(_is_number),
    "skip": _or_none(_is_int), "divisor": _or_none(_is_number), "ignore": _or_none(_is_number),
    "value": _is_number, "start": _is_number, "end": _is_number,
    "base": _or_none(_is_number), "order": _or_none(_ints), "length": _is_int,
    "dtype": lambda x: isinstance(x, np.dtype),
    "widths": _pairs, "index": _index, "chain": _chain,
    "generator": lambda x: x is None or isinstance(x, Generator),
    "layout": lambda x: isinstance(x, Layout),
    "to": lambda x: isinstance(x, device), "back": lambda x: isinstance(x, device),
    "branches": _graphs, "cond": lambda x: isinstance(x, Graph),
    "body": lambda x: isinstance(x, Graph),
}  # fmt: skip
_ODD = {
    ("arange", "step"): _is_number, ("reshape", "shape"): _ints,
    ("avg_pool", "kernel"): _ints,
}  # fmt: skip
_BODIES = {
    "cond": {"branches"}, "while": {"cond", "body", "of_cond", "of_body"},
    "scan": {"body", "consts", "carries", "length", "reverse"},
}  # fmt: skip


def _plain(x: Any, depth: int = 0) -> bool:
    """Of parameters that are in no table: numbers, texts, types, and tuples of these."""
    if type(x) is tuple:
        return depth < 4 and len(x) <= _MOST and all(_plain(y, depth + 1) for y in x)
    return x is None or _is_number(x) or _is_text(x) or isinstance(x, (np.dtype, slice, Generator))


# --- nodes ----------------------------------------------------------------------------------------
@lru_cache(1024)
def _taken(forward: Any, count: int) -> tuple[frozenset[str], frozenset[str]] | None:
    """Parameters that a forward function takes, and those of them that it must be given; None where
    nobody knows."""
    if isinstance(forward, np.ufunc):
        return frozenset(), frozenset()
    try:
        found = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(p.kind == p.VAR_KEYWORD for p in found):
        return None
    if any(p.kind == p.VAR_POSITIONAL for p in found):
        own = [p for p in found if p.kind == p.KEYWORD_ONLY]
    else:
        own = found[count:]
    names = frozenset(p.name for p in own)
    return names, frozenset(p.name for p in own if p.default is p.empty)


def fault(prim: Primitive, args: Sequence[Any], params: Mapping[str, Any]) -> str | None:
    """What is wrong with a node of this primitive, if anything is."""
    if prim.args and not 1 <= len(args) <= len(prim.args):
        return f"{len(args)} arguments given; {len(prim.args)} are taken"
    for a in args:
        if not (isinstance(a, Name) or a is None or _is_number(a)):
            return f"the argument {a!r:.60} is neither a value nor a number"
    if prim.args and not any(isinstance(a, Name) for a in args):
        return "none of its arguments is a value"
    if not prim.args and any(not isinstance(a, Name) for a in args):
        return "its arguments must be values"
    taken = _taken(prim.forward, len(prim.args))
    if taken is not None:
        odd, missing = set(params) - taken[0], taken[1] - set(params)
        if odd or missing:
            return f"parameter {min(odd or missing)!r:.40} is {'not known' if odd else 'missing'}"
    return _odd_params(prim.name, params)


def fault_of_bodies(op: str, args: Sequence[Any], params: Mapping[str, Any]) -> str | None:
    """The same of an operation with graphs in it."""
    if set(params) != _BODIES[op]:
        return f"parameters {sorted(params)} given; {sorted(_BODIES[op])} are needed"
    if not all(isinstance(a, Name) for a in args):
        return "its arguments must be values"
    why = _odd_params(op, params)
    return why or bodies.misfit(op, len(args), params)


def _odd_params(op: str, params: Mapping[str, Any]) -> str | None:
    for name, value in params.items():
        kind = _ODD.get((op, name)) or _KINDS.get(name, _plain)
        if not kind(value):
            return f"parameter {name!r:.40} is {value!r:.60}"
    return None


# --- memory ---------------------------------------------------------------------------------------
def reaches_beyond(params: Mapping[str, Any], shape: Sequence[int]) -> str | None:
    """Whether strides lead out of the memory that a layout tells; ``shape``: of what lies in it.
    (Sizes are numbers.)"""
    layout = params["layout"]
    size = params["size"] if type(params["size"]) is tuple else (params["size"],)
    given = ((size, params["stride"], params["offset"]), (shape, layout.stride, layout.first))
    for sizes, strides, first in given:
        if len(sizes) != len(strides) or first < 0 or min((*sizes, *strides), default=0) < 0:
            return "sizes, strides and offsets of 0 and more are needed"
        if 0 in sizes:
            continue
        last = first + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if last >= layout.total:
            return f"element {last} is asked for of {layout.total}"
    return None


__all__ = ["fault", "fault_of_bodies", "reaches_beyond"]
