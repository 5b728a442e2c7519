"""What a function refers to: the modules, optimizers and plain numbers that its run depends on.

A replay repeats tensor operations, not Python. So what Python decided must still hold: this file
finds the things that can decide, by following closures, named globals, bound objects, attributes
and containers. It cannot see what only runs of code reach (files, clocks, attributes of attributes
behind ``__slots__``). Modules and optimizers, which are built above this package, are known by
what they offer.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from ..core.random import Generator
from ..core.tensor import Tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEPTH = 4  # objects behind objects; modules inside modules do not count


def is_module(x: Any) -> bool:
    """Whether ``x`` has parameters and submodules."""
    return hasattr(type(x), "named_modules") and hasattr(type(x), "named_parameters")


def is_optimizer(x: Any) -> bool:
    """Whether ``x`` updates groups of parameters by planned rules."""
    return hasattr(type(x), "plan") and hasattr(type(x), "add_param_group")


class Reach:
    """One look around ``fn`` and its arguments."""

    def __init__(self, fn: Callable, args: Any = ()) -> None:
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        self.plain: dict[str, Any] = {}  # where it was found -> value
        self._seen: set[int] = set()
        self._visit(fn, "", 0)
        for a in args:
            self._visit(a, "argument", 0)

    def _visit(self, x: Any, where: str, depth: int) -> None:
        if type(x) in PLAIN:
            self.plain[where] = x
            return
        if depth > _DEPTH or id(x) in self._seen:
            return
        if isinstance(x, (type, types.ModuleType, Tensor, Generator)):
            return
        self._seen.add(id(x))
        for name, value in self._inside(x):
            self._visit(value, f"{where}{name}" if where else name.lstrip("."), depth + 1)

    def _inside(self, x: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(x, types.MethodType):
            yield "", x.__self__
            yield "", x.__func__
        elif isinstance(x, types.FunctionType):
            yield from _of_function(x)
        elif is_module(x):
            for path, m in x.named_modules():
                self._module(m, path)
        elif is_optimizer(x):
            self.optimizers.append(x)
        elif hasattr(x, "__wrapped__"):  # what stands around a function refers to it
            yield "", x.__wrapped__
        elif isinstance(x, dict):
            yield from ((f"[{k!r}]", v) for k, v in x.items() if type(k) in PLAIN)
        elif isinstance(x, (list, tuple)):
            yield from ((f"[{i}]", v) for i, v in enumerate(x))
        elif _followed(type(x)):
            yield from ((f".{k}", v) for k, v in getattr(x, "__dict__", {}).items())

    def _module(self, m: Any, path: str) -> None:
        if any(m is known for known in self.modules):
            return
        self.modules.append(m)
        here = f"{type(m).__name__} {path}".strip()
        for name, value in m.__dict__.items():
            if type(value) in PLAIN:
                self.plain[f"{here}[{len(self.modules)}].{name}"] = value

    def parameters(self) -> list[Tensor]:
        """The parameters of all modules and optimizers, each once."""
        found = {id(p): p for m in self.modules for p in m._parameters.values() if p is not None}
        for o in self.optimizers:
            found.update((id(p), p) for group in o.param_groups for p in group["params"])
        return list(found.values())

    def names(self) -> dict[int, str]:
        """What tensors are called (by id): parameters, buffers, optimizer state."""
        found: dict[int, str] = {}
        for o in self.optimizers:
            for i, state in enumerate(list(o.state.values())):
                for k, t in state.items():
                    found[id(t)] = f"{type(o).__name__} state {i}.{k}"
        for m in self.modules:
            for name, t in (*m.named_parameters(), *m.named_buffers()):
                found.setdefault(id(t), name)
        return found

    def places(self) -> list[dict]:
        """The dicts that say which tensors and modules play which role."""
        found: list[dict] = []
        for m in self.modules:
            found += [m._parameters, m._buffers, m._modules]
        for o in self.optimizers:
            found += [o.state, *o.state.values()]
        return found


_FOREIGN = ("builtins", "numpy", "_thread", "threading", "functools", "types", "disttrain")


def _of_function(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    if fn.__module__ and fn.__module__.partition(".")[0] in _FOREIGN:
        return
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield f".{name}", fn.__globals__[name]
    yield from ((f".{name}", v) for name, v in (fn.__kwdefaults__ or {}).items())
    yield from ((f".default{i}", v) for i, v in enumerate(fn.__defaults__ or ()))


def _followed(kind: type) -> bool:
    """Whether attributes of such objects are looked at: the program's own, and schedulers."""
    if kind.__module__.startswith("disttrain.optim"):
        return True
    return kind.__module__.partition(".")[0] not in _FOREIGN
