"""Saved-tensor hooks: what a node keeps for backward goes through the program's own functions.

While hooks are active (``thread.saving``) the gate takes its general way, and nodes are made
``PackedNode``s: ``pack(tensor)`` says what is kept in place of each saved tensor, ``unpack(kept)``
gives the tensor back when backward needs it. Versions are not checked then: the program is
responsible for what it gives back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..context import thread
from ..errors import AutogradError
from .grad_mode import no_grad
from .node import Node
from .tensor import Tensor


class Complete(BaseException):
    """Raised by a hook: everything that backward needs has been saved again (a checkpoint's second
    run). Operations that change state behind what they save finish that first."""


class Packed:
    """One saved tensor, as ``pack`` left it, and its place in the graph."""

    __slots__ = ("kept", "place", "unpack")

    def __init__(self, t: Tensor, place: Any, hooks: tuple[Callable, Callable]) -> None:
        pack, self.unpack = hooks
        self.place = place
        given = t.detach()
        version = given._version
        with no_grad():
            self.kept = pack(given)
        if given._version != version:
            raise AutogradError(
                "saved_tensors_hooks: a saved tensor pack hook is modifying its input in place; "
                "that tensor is the program's own: change a .clone() of it"
            )

    def tensor(self) -> Tensor:
        """The tensor, from ``unpack``, at its place."""
        t = self.unpack(self.kept)
        if not isinstance(t, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__}: return the tensor that pack_hook was given"
            )
        out = t.alias()
        out._node = self.place
        return out


class PackedNode(Node):
    """A node whose saved tensors are packed; ``unpacked`` is its class without that."""

    unpacked: type = Node

    def watch(self, storage: object, index: int = 0) -> None:
        """Writes to the result do not matter: what ``unpack`` gives counts."""

    def check(self) -> None:
        """Raise unless what was packed is there."""
        if self.saved is None:
            super().check()

    def run_without(self, tensors: bool) -> tuple:
        self._unpacked()
        return (None,) * len(self.edges)

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        return self._unpacked().run(g, tensors, wanted)

    def _unpacked(self) -> Node:
        """This node with what ``unpack`` gives."""
        if self.saved is None:
            self.check()
        node = copy.copy(self)
        node.__class__ = self.unpacked
        node.saved = tuple([_unpacked(v) for v in self.saved])  # type: ignore[union-attr]
        node.versions = tuple([getattr(v, "_version", 0) for v in node.saved])
        if self.out.__class__ is tuple:
            node.out = tuple([_unpacked(o) for o in self.out])
        else:
            node.out = _unpacked(self.out)
        return node


def unpacked(node: Any) -> Any:
    """``node`` with what its hooks give, where it is packed, and of the commonest class."""
    packed = node.__class__ is PackedNode and node.unpacked is Node
    return node._unpacked() if packed else node


def _unpacked(value: Packed | float | None) -> Any:
    return value.tensor() if value.__class__ is Packed else value


def pack_node(node: Node, result: Any) -> None:
    """Pack what ``node``, just made, has saved (its ``result``, where it keeps that)."""
    hooks = thread.saving[-1]
    node.saved = tuple(
        Packed(v, v.graph_node(), hooks) if isinstance(v, Tensor) else v for v in node.saved or ()
    )
    out = node.out
    if out.__class__ is tuple:
        node.out = tuple(
            None if o is None else Packed(r, None, hooks) for o, r in zip(out, result, strict=True)
        )
    elif out is not None:
        node.out = Packed(result, None, hooks)
    node.unpacked = node.__class__  # type: ignore[attr-defined]
    node.on_device = node.on_device  # what its class says
    node.__class__ = PackedNode


@contextmanager
def saving(pack: Callable, unpack: Callable) -> Iterator[None]:
    """Use these hooks for what this thread's operations save while the block runs."""
    if thread.saving_refused is not None:
        raise AutogradError(thread.saving_refused)
    before = thread.saving
    _set((*before, (pack, unpack)))
    try:
        yield
    finally:
        _set(before)


def _set(hooks: tuple) -> None:
    thread.saving = hooks
    thread.refresh()


@contextmanager
def refusing(message: str) -> Iterator[None]:
    """Hooks, also those that are active, are an error with this message while the block runs."""
    if thread.saving:
        raise AutogradError(message)
    before, thread.saving_refused = thread.saving_refused, message
    try:
        yield
    finally:
        thread.saving_refused = before
