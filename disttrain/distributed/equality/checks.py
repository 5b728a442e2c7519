"""``same`` and ``same_step``: what a program says must be equal on all ranks of a group."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from ...comm.calls.header import Site
from ...core.effects import captured
from ...core.tensor import Tensor
from ...errors import ConfigError
from ..groups.process_group import ProcessGroup
from ..groups.state import GroupMember, group_or_default, is_initialized
from ..tensor.placements import Replicate
from ..tensor.spread import Spread
from . import flow
from .exchange import explain
from .leaves import leaves
from .ledger import Ledger, entry, ledger_of
from .replays import repeated
from .sites import here

__outward__ = ()  # in a compiled function ``same`` is an effect
_RESULT = "result"
_FUNCTIONS = (
    types.FunctionType, types.MethodType, functools.partial, staticmethod, classmethod,
    functools._lru_cache_wrapper,
)  # fmt: skip


class Name(str):
    """A text that was checked, and may be called, too: ``@same("lr")`` names an argument."""

    _decorate: Callable[[Any], Any]

    def __call__(self, fn: Callable) -> Any:
        return self._decorate(fn)

    def __reduce__(self) -> tuple:
        return str, (str(self),)  # saved with other values it is a plain text


def same(x: Any = None, *names: str, group: Any = None, name: str | None = None,
         result: bool = False) -> Any:  # fmt: skip
    """``x``, which must be equal on all ranks of ``group``; or a decorator.

    ``same(x, name="lr")`` takes a tensor, an array, a number, a text, a container of them, a
    module, a generator (see ``leaves``) and returns it. It asks nobody: the next collective of the
    group compares a hash in its header, and where ranks have given other values, it raises
    ``ValuesDiffer`` on all of them, before data moves, with the first value that differs and where
    each rank got it.

    ``@same`` checks all arguments of a function whenever it is called, ``@same("lr", "batch")``
    those, with ``result=True`` also (without names: only) what it returns.
    """
    if isinstance(x, _FUNCTIONS) and not names:
        return _around(x, (), group, name, result)
    if x is None and not names and result:
        return lambda fn: _around(fn, (), group, name, result)
    if isinstance(x, str) and (names or result):
        wanted = (x, *names)
        if not all(isinstance(n, str) for n in wanted):
            raise ConfigError(f"same: {wanted} were given; needed are one value, or names")
        return lambda fn: _around(fn, wanted, group, name, result)
    if names:
        raise ConfigError(f"same: {1 + len(names)} values were given; give one, or a tuple of them")
    _check(x, group, name or "")
    if type(x) is str and name is None:
        made = Name(x)
        made._decorate = lambda fn: _around(fn, (str(x),), group, None, False)
        return made
    return x


def _group(given: Any) -> ProcessGroup | None:
    """The group to compare in; None where this rank compares nothing."""
    if given is GroupMember.NON_GROUP_MEMBER or (given is None and not is_initialized()):
        return None
    found = group_or_default(given)
    if not isinstance(found, ProcessGroup):
        raise ConfigError(f"same: group={given!r} was given; needed is a process group, or None")
    if found.transport.group_type is not None:
        raise ConfigError(
            f"same: the backend of group {found.name} is the program's own, which compares no "
            "headers; give a group of another backend"
        )
    return found


def _ledger(group: ProcessGroup) -> Ledger:
    return ledger_of(group, functools.partial(explain, group))


def _check(x: Any, given: Any, name: str) -> None:
    if captured():
        repeated(functools.partial(_add, given, name), x)
    else:
        _add(given, name, here(), x, {})


def _add(given: Any, name: str, site: Site, x: Any, now: Mapping[int, Tensor]) -> None:
    """``x`` is the next value of the group that was ``given``. ``now``: see ``leaves``."""
    group = _group(given)
    if group is None:
        leaves(x, (), now)  # refuses what it would refuse on several ranks
        return
    flow.passed(name, site)
    _ledger(group).add(entry(name, leaves(x, group.ranks, now), site.text))
    if given is None and isinstance(x, Tensor) and isinstance(x.array, Spread):
        _check_replicas(x, name, site.text)


def _check_replicas(x: Tensor, name: str, site: str) -> None:
    """Parts of a DTensor that other ranks hold, too, are compared among these."""
    array = x.array
    cut = [not isinstance(p, Replicate) for p in array.placements]
    if not any(cut) or all(cut):
        return
    for axis, is_cut in enumerate(cut):
        if not is_cut:
            group = array.mesh.get_group(axis)
            _ledger(group).add(entry(name, leaves(x, group.ranks), site))


def _around(
    fn: Any, wanted: Sequence[str], group: Any, name: str | None, result: bool
) -> Any:  # fmt: skip
    """``fn``, whose arguments (all, where none is named and the result is not asked for) and result
    are checked."""
    if isinstance(fn, (staticmethod, classmethod)):
        kind: Any = type(fn)
        return kind(_around(fn.__func__, wanted, group, name, result))
    signature = inspect.signature(fn)
    called = name or getattr(fn, "__qualname__", type(fn).__name__)
    unknown = [w for w in wanted if w not in signature.parameters]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        raise ConfigError(
            f"same: {called} has no argument {unknown[0]!r}; it has "
            f"{', '.join(signature.parameters) or 'none'}"
        )
    everything = not wanted and not result

    def enter(args: tuple, kwargs: dict) -> None:
        if wanted or everything:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            for p in signature.parameters.values():
                if p.kind is p.VAR_KEYWORD:
                    given.update(given.pop(p.name, {}))
            for key in wanted or [k for k in given if k not in ("self", "cls")]:
                if key in given:
                    _check(given[key], group, f"{called}({key})")

    def leave(out: Any) -> Any:
        if result:
            _check(out, group, f"{called}() {_RESULT}")
        return out

    if inspect.iscoroutinefunction(fn):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            enter(args, kwargs)
            return leave(await fn(*args, **kwargs))

        return functools.wraps(fn)(awaited)

    @functools.wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        enter(args, kwargs)
        return leave(fn(*args, **kwargs))

    return checked


class same_step:  # noqa: N801  (called as a function)
    """Ranks of ``group`` must have done the same since the last ``same_step`` of this thread.

    Compared is, in order: each collective that the thread called on any group (verb, type and
    number of elements, calling line), each module whose forward ran (its class, and the line of the
    program that led there), each line at which ``same`` was passed. Not compared: messages, other
    threads, what autograd does, operations on tensors, and values.

    ``with same_step():`` compares what the block did; a plain call compares what was done since the
    call before it, and goes on observing until ``close`` of what it returned. As with ``same``, the
    next collective compares a hash, and ``ValuesDiffer`` says what was the first to differ.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = _group(group)
        if self._group is not None:
            self._tell()
            flow.begin(self._group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *about: object) -> None:
        if self._group is not None and kind is None:
            self._tell()
        self.close()

    def close(self) -> None:
        """Observe no longer."""
        if self._group is not None:
            flow.end(self._group)

    def _tell(self) -> None:
        assert self._group is not None
        done = flow.events(self._group)
        if done is not None:
            site = here().text
            _ledger(self._group).add(entry("same_step", done, site, "step"))


__all__ = ["Name", "same", "same_step"]
