"""``compile``: capture once per kind of call, then replay while the capture still holds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import tree
from ..context import thread
from ..core.tensor import Tensor
from .capture import record
from .graph import Graph
from .passes import dead_code
from .reach import Reach, is_module

_LIMIT = 32  # captures of one function; one more, and it runs eagerly


@dataclass
class Entry:
    """A capture for one guard, and what must hold for it to be replayed."""

    graph: Graph
    rebuild: Callable[[list], Any]
    places: list[dict]  # which tensors and modules play which role
    groups: list[dict[str, Any]]  # hyperparameters of all optimizers

    def stale(self, around: Reach) -> str | None:
        """Why the capture no longer stands for the function."""
        if not self.graph.current():
            return "a number that it read was written to"
        if not _same(self.places, around.places()):
            return "a parameter, buffer, module or optimizer state was replaced"
        groups = _groups(around)
        if groups != self.groups and not self._renumber(around):
            return "an optimizer's update rule changed"
        self.groups = groups
        return None

    def _renumber(self, around: Reach) -> bool:
        """Give the update instructions the numbers that their optimizers plan now."""
        plans: dict[int, tuple] = {}
        for optimizer in around.optimizers:
            for group in optimizer.param_groups:
                rule, _, numbers = optimizer.plan(group)
                plans.update((id(p), (rule, numbers)) for p in group["params"])
        out, done = [], set()
        for ins in self.graph.instructions:
            target = ins.args[0] if ins.prim.mutates else None
            if target is not None and target.kind == "c":
                key = id(self.graph.captured[target.number])
                rule, numbers = plans.get(key, (None, None))
                if rule is ins.prim:
                    ins = replace(ins, params=numbers)  # noqa: PLW2901  (the same one, renewed)
                    done.add(key)
            out.append(ins)
        if not done:
            return False
        self.graph = self.graph.with_instructions(out)
        return all(rule.name in {i.prim.name for i in out} for rule, _ in plans.values())


class Compiled:
    """A function that is captured per guard, then replayed.

    What is replayed: calls whose results carry no graph, that is whole training steps (forward,
    backward, optimizer in one function) and inference under ``no_grad``. A call whose result the
    caller would differentiate runs eagerly, and so does a function that reads numbers of tensors
    it makes, or changes Python numbers that it depends on.

    The guard: shapes, types and ``requires_grad`` of tensor arguments; other arguments; plain
    numbers and texts that the function, its modules and objects refer to (``training`` among them);
    which gradients exist. Hyperparameters of optimizers (a scheduled ``lr``) are no part of it:
    new values are put into the graph, so they must reach the program by ``optimizer.step()`` only.
    """

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.graphs: dict[Any, Entry] = {}
        self.eager: set[Any] = set()
        self.reasons: list[str] = []
        self._last: Any = None
        self._warned = False

    def __reduce__(self) -> tuple:
        return (Compiled, (self.fn,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.stack or len(self.reasons) > _LIMIT:
            return self.fn(*args, **kwargs)  # inside another transform: be part of it
        around = Reach(self.fn, (args, kwargs))
        guard = _guard(around, args, kwargs)
        if guard in self.eager:
            return self.fn(*args, **kwargs)
        entry = self.graphs.get(guard)
        why = self._why(guard) if entry is None else entry.stale(around)
        if entry is None or why is not None:
            return self._first(why, guard, around, args, kwargs)
        given = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
        return entry.rebuild(list(entry.graph.run(*given)))

    def _first(self, why: str | None, guard: Any, around: Reach, args: tuple, kwargs: dict) -> Any:
        """Run eagerly, and capture on the way if the program allows it."""
        self.reasons.append(why or "")
        if len(self.reasons) > _LIMIT:
            self._give_up(None, f"it was captured {_LIMIT} times, the last because {why}")
            return self.fn(*args, **kwargs)
        self._last = guard
        before = dict(around.plain), _groups(around)
        result, graph, refused = record(self.fn, args, kwargs, around, strict=False)
        after = Reach(self.fn, (args, kwargs))
        refused = refused or _changed(before, (after.plain, _groups(after)))
        leaves, rebuild = tree.flatten(result)
        if refused is not None or graph is None:
            self._give_up(guard, refused or "there is no graph")
        elif any(isinstance(x, Tensor) and x.requires_grad for x in leaves):
            self.graphs.pop(guard, None)
            self.eager.add(guard)
            self.reasons[-1] += "; runs eagerly, because its result takes part in a graph"
        else:
            places = [dict(place) for place in after.places()]
            self.graphs[guard] = Entry(dead_code(graph), rebuild, places, _groups(after))
        return result

    def _give_up(self, guard: Any, why: str) -> None:
        if not self._warned:
            warnings.warn(f"compile: {self._name()} runs eagerly: {why}", stacklevel=4)
        self._warned = True
        self.reasons[-1] += f"; runs eagerly: {why}"
        self.graphs.pop(guard, None)
        self.eager.add(guard)

    def _name(self) -> str:
        return getattr(self.fn, "__qualname__", type(self.fn).__name__)

    def _why(self, guard: Any) -> str:
        if self._last is None:
            return "first call"
        old, new = dict(self._last), dict(guard)
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                return f"{name}: {_shown(old.get(name))} became {_shown(new.get(name))}"
        return "the order of arguments changed"

    def explain(self) -> str:
        """How often it was captured, and why each time."""
        lines = [f"{self._name()}: {len(self.graphs)} captured, {len(self.eager)} eager"]
        return "\n".join([*lines, *(f"  {i}: {r}" for i, r in enumerate(self.reasons))])


def _same(then: list[dict], now: list[dict]) -> bool:
    """Whether the same objects are in the same places. (What one optimizer keeps per parameter are
    dicts of their own in the list, so a dict among the values only has to be there.)"""
    return len(then) == len(now) and all(
        len(a) == len(b) and all(b.get(k) is v or isinstance(v, dict) for k, v in a.items())
        for a, b in zip(then, now, strict=True)
    )


def _guard(around: Reach, args: tuple, kwargs: dict) -> tuple:
    """What a capture depends on, as pairs (what, value)."""
    parts: list[tuple[str, Any]] = [
        ("grad mode", thread.grad_enabled),
        ("keywords", tuple(kwargs)),
    ]
    for i, x in enumerate(tree.leaves((args, kwargs))):
        if isinstance(x, Tensor):
            parts.append((f"argument {i}", (*x.meta(), x.device.type, x.requires_grad)))
        else:
            parts.append((f"argument {i}", _key(x)))
    parts += [(where, _key(value)) for where, value in around.plain.items()]
    parts.append(("gradients present", tuple(p._grad is not None for p in around.parameters())))
    return tuple(parts)


def _key(x: Any) -> Any:
    """A value as part of a guard: 1, 1.0 and True differ, nan equals itself."""
    if isinstance(x, (bool, int, float, complex)):
        return type(x).__name__, repr(x)
    try:
        hash(x)
    except TypeError:
        return repr(x)
    return x


def _shown(x: Any) -> str:
    text = str(x[1]) if isinstance(x, tuple) and len(x) == 2 else str(x)
    return text if len(text) < 60 else f"{text[:56]} ..."


def _groups(around: Reach) -> list[dict[str, Any]]:
    """The hyperparameters of all groups of all optimizers."""
    return [
        {k: v for k, v in group.items() if k != "params"}
        for o in around.optimizers
        for group in o.param_groups
    ]


def _changed(before: tuple, after: tuple) -> str | None:
    """Which Python value the run itself changed, if any: a replay would not change it."""
    for where, value in after[0].items():
        if where in before[0] and _key(before[0][where]) != _key(value):
            return f"it changes {where}, which a replay would not"
    if before[1] != after[1]:
        return "it changes hyperparameters of an optimizer, which a replay would not"
    return None


class _Forward:
    """A module's own forward, as something that can be copied and pickled with the module."""

    def __init__(self, module: Any) -> None:
        self.module = self.__wrapped__ = module
        self.__qualname__ = type(module).__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.module).forward(self.module, *args, **kwargs)


def compile(fn: Callable | None = None, **ignored: Any) -> Any:  # noqa: A001  (the field's name)
    """Capture ``fn`` and replay it. Usable as a decorator; ``mode``, ``fullgraph``, ``dynamic`` and
    ``backend`` are accepted and have no effect in this version. See ``Compiled``.

    A Module is returned itself; from then on its forward is replayed under ``no_grad``, and runs
    eagerly where gradients are recorded.
    """
    if fn is None:
        return lambda f: compile(f)
    if is_module(fn):
        if "forward" not in fn.__dict__:
            fn.__dict__["forward"] = Compiled(_Forward(fn))
        return fn
    return fn if isinstance(fn, Compiled) else Compiled(fn)
