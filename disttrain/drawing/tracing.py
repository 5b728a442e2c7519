"""The operations of a call, seen by an interpreter at the gate, by the modules that they belong to.

Values are known by the memory that they lie in, so that views and detached ones are what they are
views of. Knows modules by what they offer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from .. import context, tree
from ..core.grad_mode import no_grad
from ..core.observers import OperationObserver
from ..core.random import get_rng_state, set_rng_state
from ..core.tensor import Tensor
from .graph import BUFFER, CONSTANT, INPUT, OUTPUT, PARAMETER, Graph

_HIDDEN = frozenset(("assign",))  # writes of what in-place operations have computed


def traced(fn: Callable, *args: Any, **kwargs: Any) -> Graph:
    """What ``fn(*args, **kwargs)`` does, as a graph. It runs once, without gradients; buffers of a
    module, and the streams of random numbers, are then as they were."""
    seen = _Operations(getattr(fn, "__name__", None) or type(fn).__name__)
    leaves = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
    for i, x in enumerate(leaves):
        seen.know(x, seen.add(f"input_{i}", INPUT, (), x))
    with ExitStack() as stack:
        stack.enter_context(no_grad())
        stack.callback(set_rng_state, get_rng_state())
        seen.watch(fn, stack)
        stack.enter_context(context.interpreter(seen))
        result = fn(*args, **kwargs)
    for i, x in enumerate(y for y in tree.leaves(result) if isinstance(y, Tensor)):
        seen.add(f"output_{i}", OUTPUT, (seen.number(x),), x)
    return seen.graph


def _place(t: Tensor) -> Any:
    """What tells the memory of ``t``; None of what has none."""
    array = t.__dict__.get("array")
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0], array.shape, array.strides
    return None


class _Operations(OperationObserver):
    """The interpreter: lets every operation pass, and notes what it took and gave."""

    def __init__(self, title: str) -> None:
        self.graph = Graph(title)
        self.scopes: list[str] = []
        self.labels: dict[int, tuple[str, str]] = {}  # parameters and buffers
        self.known: dict[Any, int] = {}
        self.kept: list[Tensor] = []  # so that no memory is used again meanwhile

    def __str__(self) -> str:
        return "drawing"

    def watch(self, fn: Any, stack: ExitStack) -> None:
        """Follow the modules that ``fn`` is made of, if it is one."""
        if not hasattr(fn, "named_modules"):
            return
        for name, module in fn.named_modules():
            scope = f"{self.graph.title}/{name.replace('.', '/')}" if name else self.graph.title
            before = module.register_forward_pre_hook(
                lambda *_, scope=scope: self.scopes.append(scope)
            )
            after = module.register_forward_hook(lambda *_: self._leave(), always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        for buffer in fn.buffers():
            stack.callback(buffer.copy_, buffer.clone())
        named = ((fn.named_parameters(), PARAMETER), (fn.named_buffers(), BUFFER))
        for pairs, kind in named:
            for name, t in pairs:
                self.labels[id(t)] = f"{self.graph.title}/{name.replace('.', '/')}", kind

    def _leave(self) -> None:
        self.scopes.pop()

    def add(self, name: str, kind: str, sources: tuple, *outs: Tensor, details: str = "") -> int:
        """A new node for ``outs``."""
        shapes = tuple(tuple(o.shape) for o in outs)
        dtype = outs[0].dtype.name if outs else ""
        return self.graph.add(
            name, kind, sources=sources, shapes=shapes, dtype=dtype, details=details
        )

    def know(self, t: Tensor, number: int) -> None:
        """``t`` is what node ``number`` gives."""
        self.kept.append(t)
        self.known[id(t)] = number
        place = _place(t)
        if place is not None:
            self.known[place] = number

    def number(self, t: Tensor) -> int:
        """The node that gives ``t``: a new one, if it comes from outside."""
        found = self.known.get(id(t))
        if found is None:
            found = self.known.get(_place(t) or id(t))
        if found is None:
            here = self.scopes[-1] if self.scopes else self.graph.title
            name, kind = self.labels.get(id(t), (f"{here}/constant", CONSTANT))
            found = self.add(name, kind, (), t)
            self.know(t, found)
        return found

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        out = forward(prim, args, params)
        if prim.name in _HIDDEN:
            if isinstance(args[1], Tensor):
                self.know(args[0], self.number(args[1]))
            return out
        sources = tuple(dict.fromkeys(self.number(a) for a in args if isinstance(a, Tensor)))
        outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, Tensor)]
        scope = self.scopes[-1] if self.scopes else self.graph.title
        given = [f"{k}={v!r}" for k, v in params.items() if _is_short(v)]
        number = self.add(
            f"{scope}/{prim.name}", prim.name, sources, *outs, details=", ".join(given)
        )
        for o in outs:
            self.know(o, number)
        return out


def _is_short(value: object) -> bool:
    return isinstance(value, (bool, int, float, str, tuple)) and len(repr(value)) < 80
