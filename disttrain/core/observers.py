"""Who reads the arrays of tensors past the gate: for captures, which cannot follow them there."""

from __future__ import annotations

import sys
import threading
from typing import Any

from .. import context
from .tensor import Tensor


class watched:  # noqa: N801  (used like a function)
    """Tell interpreters of the reading thread about every read of ``Tensor.array`` in the block.

    Whatever takes the array of a tensor past the gate may use its numbers. Costs nothing outside
    of the block. Blocks of several threads may overlap.
    """

    _lock = threading.Lock()
    _blocks: list[watched] = []

    def __enter__(self) -> watched:
        with watched._lock:
            watched._blocks.append(self)
            Tensor.__getattribute__ = _reading  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *exc: object) -> None:
        with watched._lock:
            watched._blocks.remove(self)
            if not watched._blocks:
                del Tensor.__getattribute__


def _reading(self: Tensor, name: str) -> Any:
    if name == "array":
        for interp in context.thread.stack:
            if interp.dynamic:
                interp.on_array(self, sys._getframe(1))
    return object.__getattribute__(self, name)
