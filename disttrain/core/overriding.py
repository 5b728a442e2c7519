"""Operands that are no Tensors and bring an operation's meaning for themselves, by PyTorch's
protocol ``__torch_function__(func, types, args, kwargs)``: other libraries' variables, such as
Keras'. They are asked after an operation has refused them, so that Tensors pay nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tensor import Tensor


def overridden(fn: Callable[..., Any], args: tuple, params: dict) -> Any:
    """What the first of the operands that brings a meaning makes of ``fn(*args, **params)``;
    ``NotImplemented`` where none does."""
    given = [v for v in (*args, *params.values()) if not isinstance(v, Tensor)]
    found = [v for v in given if hasattr(type(v), "__torch_function__")]
    types = tuple(dict.fromkeys(map(type, found)))
    for value in found:
        result = type(value).__torch_function__(fn, types, args, params)
        if result is not NotImplemented:
            return result
    return NotImplemented


def refused(fn: Callable[..., Any], args: tuple, message: str) -> Any:
    """The same, or a TypeError with ``message``."""
    result = overridden(fn, args, {})
    if result is NotImplemented:
        raise TypeError(f"{message}; convert it with dt.tensor(...) or dt.as_tensor(...)")
    return result
