"""What a function can see: the state behind its code, found by following names.

A replay repeats tensor operations, not Python. So all that Python looked at must still be what it
was. This file finds it: globals that the code names, closures, defaults, and, from object to
object, every attribute whose name occurs in the code that runs. Containers are followed whole.
Each thing that can change becomes a ``Holder``: what it holds is compared by identity, and since
the holders of what it holds are compared too, equal holders mean equal state.

What cannot be looked into (iterators, files, objects written in C) is ``opaque``: a function that
reaches one is not captured. Modules and optimizers, which are built above this package, are known
by what they offer.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...context import thread
from ...core.node import AccumulateGrad
from ...core.random import Generator
from ...core.tensor import Tensor
from ..originals import original_code
from .code import Codes, facts, modules, named_modules, unfollowed
from .holders import ABSENT, CELL, DICT, FACT, NAMES, OBJECT, SEQUENCE, Holder
from .kinds import (
    OURS,
    USER,
    file_kind,
    is_constant,
    is_library,
    is_module,
    is_open,
    is_operator,
    is_optimizer,
    is_ours,
    is_outward,
    meant,
    own_modules,
    slots_of,
    space_of,
)
from .readers import ArrayParts, Classes, Tried, cached, calls, function_parts, members, values

_MOST, _LARGE = 20_000, 2000  # objects of one look; entries of a container, which calls compare
_BYTES = 1 << 14  # of one numpy array
_STREAMS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_MODULE_STORES = ("_parameters", "_buffers", "_modules")
_MODULE_OWN = ("training", "_hooks", "forward", *_MODULE_STORES)
_BOOKKEEPING = ("_non_persistent_buffers_set", "_state_hooks")
# What a rank keeps for all optimizers and modules: hooks, and parameters computed from others.
_EVERYWHERE = ("optim.state.hooks", "nn.hooks", "nn.utils.parametrize")
_GROUP_NAMES = ("param_groups", "defaults", "state_dict")
_GETTERS, _ALWAYS = {"attrgetter", "methodcaller"}, ("forward", "__call__", "step", "__getattr__")


class Reach:
    """One look around ``roots``, by the names that ``codes`` contain.

    ``expand``: functions that are found count as code too (before a run, when nobody knows yet what
    will run). ``everything``: attributes are looked up by computed names, so all are followed.
    """

    def __init__(
        self, roots: Iterable[Any], codes: Codes | None = None, *, expand: bool = True,
        everything: bool = False,
    ) -> None:  # fmt: skip
        self.codes: Codes = dict(codes or {})
        self.expand, self.everything = expand, everything
        self.names: set[str] = set(_ALWAYS)
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        self.objects: list[Any] = []  # whose class could be replaced
        self.tensors: dict[int, Tensor] = {}
        self.labels: dict[int, str] = {}
        self.gradients: dict[int, Tensor] = {}  # by id: those that are nothing but a ``.grad``
        self.arrays: list[np.ndarray] = []
        self.streams: list[Any] = []
        self.opaque: list[str] = []
        self.holders: list[Holder] = []
        self._seen: dict[int, Any] = {}
        self._by_name: list[tuple[Any, str]] = []
        self._strange = Tried()
        self._late: list[tuple[Any, str]] = []
        self._globals: dict[int, tuple[dict, set[str]]] = {}
        for code, space in list(self.codes.values()):
            self._learn(code, space)
        everywhere = [(thread.rank.slots.get(name, ()), name) for name in _EVERYWHERE]
        self._walk([*((r, "") for r in roots), *everywhere])

    # --- the walk ---------------------------------------------------------------------------
    def _walk(self, todo: list) -> None:
        self._todo, known = todo, -1
        while self._todo or known != self._knowledge() or self._late:
            if not self._todo and known != self._knowledge():
                known = self._knowledge()
                self._follow_names()
            elif not self._todo:  # gradients last, so that those with other names are known by them
                self._take_gradient(*self._late.pop())
            while self._todo and not self.lost:
                self._visit(*self._todo.pop())
            if self.lost:
                return
        self._finish()

    @property
    def lost(self) -> bool:
        """Whether there is too much in reach to be compared by every call."""
        return len(self._seen) > _MOST

    def _knowledge(self) -> int:
        return len(self.names) + len(self._by_name) + sum(len(n) for _, n in self._globals.values())

    def _follow_names(self) -> None:
        """Look up all names known by now, on all that has names."""
        self._strange.learn(self.names)
        for space, names in self._globals.values():
            for name in names:
                if name in space:
                    self._push(space[name], name)
        for x, where in self._by_name:
            for name, value in self._named(x):
                self._push(value, f"{where}.{name}" if where else name)

    def _finish(self) -> None:
        """Holders of what is looked up by name, now that all names are known."""
        self._settle(thread.rank.slots, "kept for all", _EVERYWHERE)
        kinds = {type(m): None for m in self.modules if is_ours(type(m))}
        for kind in kinds:
            self.holders.append(
                Holder(FACT, kind, kind.__name__, reader=functools.partial(calls, kind))
            )
        self.holders.append(
            Holder(FACT, self.objects, "the class of an object", reader=Classes(self.objects))
        )
        for space, names in self._globals.values():
            self._settle(space, "global", names)
        for x, where in self._by_name:
            wanted = tuple(name for name, _ in self._named(x))
            if isinstance(x, types.ModuleType):
                if wanted:
                    self.holders.append(Holder(NAMES, vars(x), where, wanted))
                continue
            if isinstance(x, Tensor):
                self._facts(x, where, wanted)
                continue
            if (space := space_of(x)) is not None:
                self.holders.append(Holder(OBJECT, space, where, wanted))
            taken = tuple(n for n in slots_of(type(x)) if self._wanted(n))
            self._facts(x, where, taken)

    def _settle(self, space: dict, where: str, names: Iterable[str]) -> None:
        """What is under ``names``, and that under some there is nothing."""
        there = tuple(sorted(n for n in names if n in space))
        self.holders.append(Holder(NAMES, space, where, there))
        gone = frozenset(names).difference(there)
        self.holders.append(Holder(ABSENT, space, f"{where}s", tuple(gone)))

    def _facts(self, x: Callable[..., Any] | Tensor, where: str, names: tuple) -> None:
        if names:
            reader = functools.partial(values, x, names)
            self.holders.append(Holder(FACT, x, where, names, reader))

    def _named(self, x: object) -> list[tuple[str, Any]]:
        """The attributes of ``x`` itself that the code may look up."""
        if isinstance(x, Tensor):
            return self._strange.on(x)
        space = space_of(x) or {}
        every = self.everything or isinstance(x, type)  # (operators of types need no name)
        names = list(space) if every else sorted(self.names.intersection(space))
        found = [(n, space[n]) for n in names if self._wanted(n) or is_operator(n, x)]
        for name in () if isinstance(x, (type, types.ModuleType)) else slots_of(type(x)):
            if self._wanted(name) and hasattr(x, name):
                found.append((name, getattr(x, name)))
        return found

    def _wanted(self, name: str) -> bool:
        return name in self.names or (self.everything and not name.startswith("__"))

    def _push(self, x: object, where: str) -> None:
        if id(x) not in self._seen and not is_constant(x):
            self._todo.append((meant(x), where))

    def _visit(self, x: object, where: str) -> None:
        if id(x) in self._seen or is_constant(x):
            return
        self._seen[id(x)] = x
        for kinds, visit in _VISITORS:
            if isinstance(x, kinds):
                visit(self, x, where)
                return
        self._object(x, where)

    # --- one method per kind ----------------------------------------------------------------
    def _function(self, f: types.FunctionType, where: str) -> None:
        if hasattr(f, "__wrapped__"):  # what stands around a function refers to it
            self._push(f.__wrapped__, where)
        kind = file_kind((code := original_code(f.__code__)).co_filename)
        if (id(code), id(f.__globals__)) not in self.codes:
            if not self.expand or kind != USER or is_outward(code.co_filename):
                return
            self._learn(code, f.__globals__)
        elif kind == OURS:
            return
        name, parts = where or f.__name__, functools.partial(function_parts, f)
        self.holders.append(Holder(FACT, f, name, reader=parts))
        self._push(f.__defaults__ or (), f"{name}.__defaults__")
        self._push(f.__kwdefaults__ or (), f"{name}.__kwdefaults__")
        self._by_name.append((f, name))
        for free, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            if id(cell) not in self._seen:
                self._seen[id(cell)] = cell
                self.holders.append(Holder(CELL, cell, free))
                for value in self.holders[-1].read():
                    self._push(value, free)

    def _learn(self, code: types.CodeType, space: dict) -> None:
        """Take up the names in ``code`` and in all code inside it."""
        found = facts(code)
        for inner in (code, *found.nested):
            self.codes[id(inner), id(space)] = inner, space
        self.names |= found.attributes
        if code.co_name.isidentifier():
            self.names.add(code.co_name)
        self._globals.setdefault(id(space), (space, set()))[1].update(found.globals)
        if file_kind(code.co_filename) == USER:
            if found.imports:
                imported = self._globals.setdefault(id(sys.modules), (sys.modules, set()))[1]
                imported.update(modules(code, space))
            spelled = found.globals | found.attributes
            self.everything |= not spelled.isdisjoint(_GETTERS)
            self.opaque += unfollowed(spelled)

    def _bound(self, x: Any, where: str) -> None:
        self._push(x.__self__, where)
        self._push(x.__func__, where)

    def _builtin(self, x: Any, where: str) -> None:
        if not isinstance(x.__self__, (types.ModuleType, type, type(None))):
            self._push(x.__self__, where)

    def _partial(self, x: functools.partial, where: str) -> None:
        self._push(x.func, where)
        self._push(x.args, where)
        self._push(x.keywords, where)
        self._by_name.append((x, where))

    def _memo(self, x: functools._lru_cache_wrapper, where: str) -> None:
        """A function whose results are kept: what it reads counts, whether it ran or not."""
        f = x.__wrapped__
        kept = functools.partial(cached, x)
        self.holders.append(Holder(FACT, x, where, reader=kept))
        for part in kept():
            if isinstance(part, (Tensor, list, tuple, np.ndarray)):
                self._push(part, where)
        if isinstance(f, types.FunctionType) and file_kind(f.__code__.co_filename) == USER:
            self._learn(original_code(f.__code__), f.__globals__)
        self._push(f, where)

    def _wrapper(self, x: classmethod | property | staticmethod, where: str) -> None:
        for name in ("__func__", "__wrapped__", "fget", "fset", "func"):
            if getattr(x, name, None) is not None:
                self._push(getattr(x, name), where)

    def _dict(self, x: dict, where: str) -> None:
        if x is sys.modules and where:  # when all code is known
            return self._late.append((x, ""))
        self._contents(x, where, DICT, [(f"{where}[{k!r}]", v) for k, v in x.items()][: _LARGE + 1])
        for k in x:
            self._push(k, where)

    def _mapping_view(self, x: Any, where: str) -> None:
        self._push(dict(x), where)
        self.holders.append(Holder(FACT, x, where, reader=lambda: (*x.keys(), *x.values())))

    def _sequence(self, x: collections.deque | list, where: str) -> None:
        self._contents(x, where, SEQUENCE, [(f"{where}[{i}]", v) for i, v in enumerate(x)])

    def _set(self, x: set, where: str) -> None:
        self._contents(x, where, FACT, [(where, v) for v in x])

    def _tuple(self, x: tuple, where: str) -> None:
        for i, v in enumerate(x):
            self._push(v, f"{where}[{i}]")
        if type(x) is not tuple:
            self._class(type(x), where)

    def _contents(self, x: Any, where: str, kind: int, parts: list) -> None:
        if len(x) > _LARGE:
            return self.opaque.append(f"{where}, a {type(x).__name__} of {len(x)} entries")
        reader = functools.partial(members, x) if kind == FACT else None
        self.holders.append(Holder(kind, x, where, reader=reader))
        for at, v in parts:
            self._push(v, at)
        if not is_library(type(x)):
            self._by_name.append((x, where))
            self._class(type(x), where)

    def _tensor(self, x: Any, where: str) -> None:
        if not getattr(x, "is_there", True):
            return self.opaque.append(f"{where}, a weight that is whole for a while only")
        if x._composes is not None:  # sparse: its values are the tensor
            self.holders.append(Holder(NAMES, vars(x), where, x.names_of_parts()))
            return self._push(x._held, where)
        self.tensors[id(x)] = x
        self.labels.setdefault(id(x), where)
        self._by_name.append((x, where))
        if x._view is not None:
            self._push(x._view[0], where)
        if x._grad is not None:
            self._late.append((x._grad, f"{where}.grad"))
        if type(x._node) is AccumulateGrad:
            for hooks in (x._node.accumulate_hooks, *(x._node.tensor_hooks or {}).values()):
                self._push(hooks or (), f"{where}'s hooks")

    def _take_modules(self, space: dict) -> None:
        """Of ``sys.modules`` what code names and the program's own; all where it names none."""
        if not (named := named_modules(self.codes)):
            return self._dict(space, "")
        self._globals.setdefault(id(space), (space, set()))[1].update(named | own_modules())

    def _take_gradient(self, grad: Any, where: str) -> None:
        if grad is sys.modules:
            return self._take_modules(grad)
        if id(grad) in self._seen:  # it has another name, or another leaf has it, too
            self.gradients.pop(id(grad), None)
        else:
            self.gradients[id(grad)] = grad
            self._push(grad, where)

    def _array(self, x: np.ndarray, where: str) -> None:
        if type(x) is not np.ndarray:
            self.opaque.append(f"{where}, a {type(x).__name__}")
        elif x.dtype.hasobject or x.nbytes > _BYTES:
            self.opaque.append(f"{where}, a numpy array of {x.nbytes} bytes")
        else:
            self.arrays.append(x)
            self.holders.append(Holder(FACT, x, where, reader=ArrayParts(x)))

    def _reference(self, x: weakref.ref, where: str) -> None:
        self.holders.append(Holder(FACT, x, where, reader=lambda: (x(),)))
        self._push(x(), where)

    def _stream(self, x: object, where: str) -> None:
        self.streams.append(x)

    def _nothing(self, x: Generator, where: str) -> None:
        """A generator of our own: what is drawn from it is drawn anew."""

    def _module_of_code(self, x: types.ModuleType, where: str) -> None:
        self._by_name.append((x, where or x.__name__))

    def _class(self, x: type, where: str) -> None:
        if type(x) is not type:  # a metaclass has attributes for its classes
            self._push(type(x), where)
        if is_open(x) and not (is_library(x) or is_ours(x)):  # whose bases can be replaced
            self._facts(x, x.__name__, ("__mro__",))
        for base in x.__mro__:
            if id(base) in self._seen and base is not x:
                continue
            self._seen[id(base)] = base
            if not is_ours(base) and is_open(base) and base.__module__ != "builtins":
                self._by_name.append((base, base.__name__))

    def _object(self, x: object, where: str) -> None:
        kind = type(x)
        self.objects.append(x)
        if is_module(x):
            self._network(x, where)
        elif is_optimizer(x):
            self._optimizer(x, where)
        elif (is_ours(kind) or not is_open(kind)) and hasattr(x, "__wrapped__"):
            self._push(x.__wrapped__, where)
        elif not is_open(kind):
            self.opaque.append(f"{where}, a {kind.__name__}")
        elif is_ours(kind):
            self._whole(x, where)
        else:
            self._by_name.append((x, where))
            self._class(kind, where)

    def _whole(self, x: object, where: str) -> None:
        """Every attribute of an object of this package, whose code looks at what it likes."""
        space = space_of(x) or {}
        moving = getattr(type(x), "__moving__", ())  # what its effects look at, as it is then
        names = tuple(name for name in space if name not in moving)
        self.holders.append(Holder(OBJECT, space, where, names))
        for name in names:
            if name not in _BOOKKEEPING:
                self._push(space[name], f"{where}.{name}")
        for name in slots_of(type(x)):
            self._push(getattr(x, name, None), f"{where}.{name}")

    def _network(self, m: object, where: str) -> None:
        """A module: what its base class keeps, what the code names, and, below classes of this
        package, everything."""
        self.modules.append(m)
        where = where or type(m).__name__
        inside = any(
            is_ours(c) and "forward" in vars(c) and "register_module" not in vars(c)
            for c in type(m).__mro__
        )
        if inside or self.everything:
            self._whole(m, where)
        else:
            names, space = (*_MODULE_OWN, *getattr(type(m), "__steering__", ())), m.__dict__
            own = tuple(n for n in names if n in space)
            for name in own:
                self._push(space[name], f"{where}.{name}")
            self.holders.append(Holder(NAMES, space, where, own))
            self._by_name.append((m, where))
        for store in _MODULE_STORES:
            prefix = "" if where == type(m).__name__ else f"{where}."
            for name, value in m.__dict__.get(store, {}).items():
                self._push(value, f"{prefix}{name}")
        self._class(type(m), where)

    def _optimizer(self, o: Any, where: str) -> None:
        self.optimizers.append(o)
        where = where or type(o).__name__
        self._push(o._hooks, f"{where}'s hooks")
        self.holders.append(Holder(NAMES, o.__dict__, where, ("param_groups", "state", "_hooks")))
        self.holders.append(Holder(SEQUENCE, o.param_groups, f"{where}.param_groups"))
        for i, group in enumerate(o.param_groups):
            self._push(group["params"], f"{where}.param_groups[{i}].params")
            if self.reads_groups(o):
                self._push(group, f"{where}.param_groups[{i}]")
        if not is_ours(type(o)):
            self._by_name.append((o, where))
            self._class(type(o), where)
        for i, state in enumerate(o.state.values()):
            for name, t in state.items() if isinstance(state, dict) else ():
                self._push(t, f"{type(o).__name__} state {i}.{name}")

    def reads_groups(self, optimizer: Any) -> bool:
        """Whether the program may look at hyperparameters, other than by the planned update."""
        kind = type(optimizer)
        own = {c for c in kind.__mro__ for name in ("step", "_update") if name in vars(c)}
        planned = is_ours(kind) and len(own) == 1 and not optimizer.defaults.get("differentiable")
        numbers = [v for group in optimizer.param_groups for v in group.values()]
        arrays = any(isinstance(v, np.ndarray) for v in numbers)  # can be written to
        return not planned or arrays or any(n in self.names for n in _GROUP_NAMES)

    def own_names(self, t: Tensor) -> list[str]:
        """Attributes that the user gave to a tensor, and that the code may look up."""
        return [] if id(t) in self.tensors else [name for name, _ in self._named(t)]

    # --- questions --------------------------------------------------------------------------
    def parameters(self) -> list[Tensor]:
        """The parameters of all modules and optimizers, each once."""
        found = {id(p): p for m in self.modules for p in m._parameters.values() if p is not None}
        for o in self.optimizers:
            found.update((id(p), p) for group in o.param_groups for p in group["params"])
        return list(found.values())

    def names_of_tensors(self) -> dict[int, str]:
        """What tensors are called (by id): parameters, buffers, optimizer state; else the place."""
        found = dict(self.labels)
        for o in self.optimizers:
            for i, state in enumerate(list(o.state.values())):
                for k, t in state.items() if isinstance(state, dict) else ():
                    found[id(t)] = f"{type(o).__name__} state {i}.{k}"
        for m in reversed(self.modules):
            for name, t in (*m.named_parameters(), *m.named_buffers()):
                found[id(t)] = name
        return found

    def knows(self, x: object) -> bool:
        """Whether ``x`` was found."""
        return id(x) in self._seen


_VISITORS: tuple[tuple[Any, Callable], ...] = (
    (Tensor, Reach._tensor),
    (types.FunctionType, Reach._function),
    (types.MethodType, Reach._bound),
    (functools.partial, Reach._partial),
    ((staticmethod, classmethod, property, functools.cached_property), Reach._wrapper),
    (type(functools.lru_cache(len)), Reach._memo),
    (types.ModuleType, Reach._module_of_code),
    (type, Reach._class),
    (types.BuiltinFunctionType, Reach._builtin),
    (dict, Reach._dict),
    (types.MappingProxyType, Reach._mapping_view),
    ((list, collections.deque), Reach._sequence),
    (set, Reach._set),
    ((tuple, frozenset), Reach._tuple),
    (np.ndarray, Reach._array),
    (weakref.ref, Reach._reference),
    (Generator, Reach._nothing),
    (_STREAMS, Reach._stream),
)  # fmt: skip
