"""Plain Tensors among DTensors: which are the program's, and which were made on the way.

A program that gives an operation both has to say what the plain one is: each rank may hold another.
What the library itself made (places, masks, constants) is the same on every rank. Only when both
kinds meet, the call is looked at: what entered the library with it is the program's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...nn.module import Module

_OURS = __name__.partition(".")[0] + "."


def given_by_program(kind: type) -> bool:
    """Whether the call that the program made has plain Tensors with dimensions (``kind`` is the
    class of those that are not plain)."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_back):
        frame = frame.f_back
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    found = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(t.ndim and not isinstance(t, kind) and _is_many(t) for t in _tensors(found))


def _is_many(t: Tensor) -> bool:
    """Whether ``t`` holds more than one number, spread out or not."""
    array = t.__dict__.get("array")
    return array is None or any(
        step for step, n in zip(array.strides, array.shape, strict=True) if n > 1
    )


def _is_ours(frame: Any) -> bool:
    return f"{frame.f_globals.get('__name__', '')}.".startswith(_OURS)


def _tensors(value: object) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)) and not isinstance(value, np.ndarray):
        for v in value:
            yield from _tensors(v)
