"""The names by which public functions are found again: by ``pickle``, by ``save``, by whoever reads
``__module__``. Many are made by factories far from the place that publishes them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from ..core import Primitive
from . import api
from .functions import outs


def settle(module: Any) -> None:
    """Give every function and primitive that ``module`` publishes, and that cannot be found by the
    name it has, the name that it has there."""
    for name, thing in vars(module).items():
        if isinstance(thing, (Primitive, types.FunctionType)) and not _is_found(thing):
            given: Any = thing
            given.__module__, given.__qualname__ = module.__name__, name
            own = getattr(thing, "__name__", name)
            given.__name__ = own if getattr(module, own, None) is thing else name


def _is_found(thing: Callable[..., Any] | Primitive) -> bool:
    home = sys.modules.get(thing.__module__)
    return getattr(home, getattr(thing, "__qualname__", ""), None) is thing


def _reduce(self: object) -> str | tuple:
    """Public primitives are pickled and copied as what they are: the one of that name."""
    return vars(self).get("__qualname__") or object.__reduce_ex__(self, 2)


setattr(Primitive, "__reduce__", _reduce)  # noqa: B010
outs.publish(api)
settle(api)
