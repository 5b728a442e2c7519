"""Interpreters that watch: what those do that only see operations, and who reads the arrays of
tensors past the gate, where captures cannot follow."""

from __future__ import annotations

import sys
import threading
from typing import Any

from .. import context
from .tensor import Tensor


class OperationObserver:
    """An interpreter that is shown every operation on plain tensors (``process``). Who reads, walks
    back or draws is seen by the operations that this takes."""

    dynamic, draws, level = True, False, -1
    by_nodes = False  # whether it is shown whole nodes of backward, instead of their operations

    def on_read(self, t: Tensor) -> None:
        """The host has read numbers of ``t``."""

    def on_array(self, t: Tensor, frame: object) -> None:
        """The code of ``frame`` has taken the array of ``t``."""

    def on_walk(self) -> None:
        """A backward begins."""

    def on_node(self, node: Any, g: Any, results: tuple) -> None:
        """``node``, given ``g``, gave ``results``; a leaf, which ``g`` has come to, gives none.
        Told to those that look ``by_nodes``, who may read what they see, and not keep it."""

    def on_stream(self) -> None:
        """Random numbers are drawn from no argument."""


def goes_by(t: Tensor) -> None:
    """Tell interpreters that what the program does now is right until something writes to ``t``."""
    for interp in context.thread.stack:
        tell = getattr(interp, "on_version", None)
        if tell is not None:
            tell(t)


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
