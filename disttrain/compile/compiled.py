"""``compile``: capture once per kind of call, then replay."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from .. import tree
from ..context import thread
from ..core.tensor import Tensor
from ..errors import CaptureError
from .capture import capture
from .graph import Graph
from .passes import dead_code


class Compiled:
    """A function that is captured per guard (shapes, types, plain arguments), then replayed.

    What is replayed: calls whose results carry no graph, that is whole training steps (forward,
    backward, optimizer in one function) and inference under ``no_grad``. A call whose result the
    caller would differentiate runs eagerly. Numbers of optimizers (``lr`` ...) that the function
    refers to are part of the guard, so a schedule makes a new capture for every new value.
    """

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.graphs: dict[Any, tuple[Graph, Callable]] = {}
        self.eager: set[Any] = set()
        self.reasons: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.stack:
            return self.fn(*args, **kwargs)  # inside another transform: be part of it
        guard = self._guard(args, kwargs)
        found = self.graphs.get(guard)
        if found is not None:
            graph, rebuild = found
            given = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
            return rebuild(list(graph.run(*given)))
        if guard in self.eager:
            return self.fn(*args, **kwargs)
        return self._first(guard, args, kwargs)

    def _first(self, guard: Any, args: tuple, kwargs: dict) -> Any:
        """Run eagerly; capture on the way if the result allows it."""
        self.reasons.append(self._why(guard))
        try:
            result, graph = capture(self.fn)(*args, **kwargs)
        except CaptureError as error:
            warnings.warn(f"compile: {self._name()} runs eagerly: {error}", stacklevel=3)
            self.eager.add(guard)
            return self.fn(*args, **kwargs)
        leaves, rebuild = tree.flatten(result)
        if any(isinstance(x, Tensor) and x.requires_grad for x in leaves):
            self.eager.add(guard)
            self.reasons[-1] += "; runs eagerly, because its result takes part in a graph"
            return result
        self.graphs[guard] = (dead_code(graph), rebuild)
        return result

    def _name(self) -> str:
        return getattr(self.fn, "__qualname__", type(self.fn).__name__)

    def _guard(self, args: tuple, kwargs: dict) -> Any:
        parts: list[Any] = [thread.grad_enabled, tuple(kwargs)]
        for x in tree.leaves((args, kwargs)):
            parts.append(
                ("tensor", *x.meta(), x.requires_grad) if isinstance(x, Tensor) else _key(x)
            )
        for thing in _refers_to(self.fn):
            if hasattr(thing, "param_groups"):
                for group in thing.param_groups:
                    parts.append(tuple((k, _key(v)) for k, v in group.items() if k != "params"))
            elif hasattr(thing, "named_modules"):
                parts.append(tuple(m.training for m in thing.modules()))
        return tuple(parts)

    def _why(self, guard: Any) -> str:
        if not self.reasons:
            return "first call"
        last = [*self.graphs, *self.eager][-1]
        pairs = zip(last, guard, strict=False)
        changed = next(((a, b) for a, b in pairs if a != b), (len(last), len(guard)))
        return f"{changed[0]} became {changed[1]}"

    def explain(self) -> str:
        """How often it was captured, and why each time."""
        lines = [f"{self._name()}: {len(self.graphs)} captured, {len(self.eager)} eager"]
        return "\n".join([*lines, *(f"  {i}: {r}" for i, r in enumerate(self.reasons))])


def _key(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        return repr(x)
    return x


def _refers_to(fn: Any) -> list:
    """Objects that a function's closure and globals name."""
    if not hasattr(fn, "__code__"):
        return [fn]
    cells = [c.cell_contents for c in fn.__closure__ or () if _filled(c)]
    used = [fn.__globals__[n] for n in fn.__code__.co_names if n in fn.__globals__]
    return cells + used


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (an empty cell raises)
    except ValueError:
        return False
    return True


def compile(fn: Callable | None = None, **ignored: Any) -> Any:  # noqa: A001  (the field's name)
    """Capture ``fn`` and replay it. Usable as a decorator; ``mode``, ``fullgraph``, ``dynamic`` and
    ``backend`` are accepted and have no effect in this version. See ``Compiled``.

    A Module is returned as it is, with its calls run eagerly: its result is differentiated outside.
    """
    if fn is None:
        return lambda f: compile(f)
    if hasattr(fn, "named_parameters"):
        return fn
    return Compiled(fn)
