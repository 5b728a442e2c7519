"""``dt.autograd.graph``: nodes and edges of the graph, and what nodes save for backward."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..context import thread
from ..core.hooks import HookHandle
from ..core.node import GradientEdge, GraphNode, Output
from ..core.saved import refusing, saving
from ..core.tensor import Tensor
from ..core.writes import touched
from ..errors import AutogradError, ConfigError

Node = GraphNode


class saved_tensors_hooks:  # noqa: N801
    """What operations save for backward while the block runs goes through these two functions.

    ``pack_hook(tensor)`` gets each tensor (cut off from the graph) and returns what is to be kept
    in its place; ``unpack_hook(kept)`` returns the tensor when backward needs it. The innermost
    pair counts.
    """

    def __init__(self, pack_hook: Callable, unpack_hook: Callable) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._open: list[AbstractContextManager] = []

    def __enter__(self) -> None:
        block = saving(self.pack_hook, self.unpack_hook)
        block.__enter__()
        self._open.append(block)

    def __exit__(self, *exc: Any) -> None:
        self._open.pop().__exit__(*exc)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Keep what is saved for backward in main memory, and bring it back to its device."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda kept: kept[1].to(kept[0]))


def disable_saved_tensors_hooks(error_message: str) -> AbstractContextManager:
    """Saved-tensor hooks are an error with this message while the block runs (also those that are
    active already)."""
    return refusing(error_message)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of ``tensor`` in the graph, which ``grad`` and ``backward`` take like a tensor."""
    place = tensor.graph_node()
    if place is None:
        raise AutogradError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            f"gradients (one of shape {list(tensor.shape)} was given); call requires_grad_() first"
        )
    if place.__class__ is Output:
        return GradientEdge(place.node, place.index)
    return GradientEdge(place, 0)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to ``tensor`` (or to each of several) that autograd could not see."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        touched(t)


class _Handles:
    """The handles of several hooks, as one."""

    def __init__(self, handles: list[HookHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all"
) -> _Handles:
    """Call ``fn`` once per backward pass that reaches ``tensors``.

    ``mode="all"``: when the gradients of all of them that the pass reaches are complete, with a
    list of the gradients (None for those it does not reach). ``mode="any"``: at the first, with
    that gradient.
    """
    if mode not in ("all", "any"):
        raise ConfigError(f"register_multi_grad_hook: mode={mode!r}; needed 'all' or 'any'")
    if mode == "any":  # the others never get a gradient
        tensors = [t for t in tensors if t.requires_grad]
    places = [t.graph_node() for t in tensors]
    nodes = [p.node if p.__class__ is Output else p for p in places]
    seen: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by backward pass

    def arrived(i: int, grad: Tensor) -> None:
        walk = thread.walking
        if mode == "any":
            if walk not in seen:
                seen[walk] = None
                fn(grad)
            return
        if walk not in seen:
            seen[walk] = ([None] * len(tensors), sum(walk.reaches(n) for n in nodes))
        grads, left = seen.pop(walk)
        grads[i] = grad
        if left == 1:
            fn(grads)
        else:
            seen[walk] = (grads, left - 1)

    hooks = [functools.partial(arrived, i) for i in range(len(tensors))]
    return _Handles([t.register_hook(hook) for hook, t in zip(hooks, tensors, strict=True)])


class _Mutable:
    """A saved tensor that may be written to: it is copied just before."""

    def __init__(self, t: Tensor, owner: _Saved) -> None:
        self.tensor, self.owner = t, owner


class _Saved:
    """What was saved inside one ``allow_mutation_on_saved_tensors`` block, by storage."""

    def __init__(self) -> None:
        self.by_storage: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.over = False

    def pack(self, t: Tensor) -> _Mutable:
        kept = _Mutable(t, self)
        self.by_storage.setdefault(t.storage_cell(), weakref.WeakSet()).add(kept)
        return kept

    @staticmethod
    def unpack(kept: _Mutable) -> Tensor:
        if kept.owner.over:
            raise AutogradError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in "
                "which the graph was originally recorded; run backward inside of it"
            )
        return kept.tensor

    def before_write(self, t: Tensor) -> None:
        for kept in list(self.by_storage.pop(t.storage_cell(), ())):
            kept.tensor = kept.tensor.clone()

    def clear(self) -> None:
        """Forget what was saved."""
        self.by_storage.clear()


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Saved]:
    """In-place operations inside the block copy, first, what was saved for backward inside it.

    Backward must run inside the block too."""
    saved = _Saved()
    before, thread.before_write = thread.before_write, saved.before_write
    try:
        with saving(saved.pack, saved.unpack):
            yield saved
    finally:
        thread.before_write = before
        saved.over = True
        saved.clear()


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
