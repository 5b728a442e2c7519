"""Objects of classes as data: the name of the class, what it was made with, and its state.

A file names classes and functions (``module:name``) and holds no code. Which names a file may use
decides who loads it: ``Known`` finds those that are allowed, and refuses all others before anything
is made. An object is taken apart as ``copy`` and ``pickle`` do it, by ``__reduce_ex__``; what says
there that a *function* makes it is refused, since a call with arguments of a file is code.
"""

from __future__ import annotations

import contextlib
import copyreg
import enum
import importlib
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from .. import context
from ..errors import SerializationError
from .homes import present, public

_SLOT = "serialize.allowed"
NEW, MAKE = "new", "make"
# What tensors are; a file can make nothing else of them.
_ALWAYS = (
    "disttrain.core.tensor:Tensor",
    "disttrain.nn.parameter:Parameter",
    "disttrain.nn.parameter:Buffer",
)


class ClassRefused(SerializationError, pickle.UnpicklingError):
    """A file names classes that whoever loads it has not allowed."""


def parameter() -> Any:
    """The class of parameters, which lies above this package."""
    return _import(_ALWAYS[1])


# --- names ---------------------------------------------------------------------------------------


def name_of(thing: Any) -> str:
    """``module:name`` of a class or function; ``SerializationError`` where that finds another."""
    return _checked(f"{thing.__module__}:{thing.__qualname__}", thing)


def _checked(name: str, thing: object) -> str:
    try:
        found = _import(name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is not thing:
        raise SerializationError(
            f"{name.replace(':', '.')}, which cannot be found again by its name. Code is not "
            "saved: define it at the top of a module, or leave it out"
        )
    return name


def _import(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _names(name: str) -> Iterator[str]:
    """What files may call it, and what it is called now; public names are looked up last."""
    yield name
    yield present(name)
    yield offered(name)


def offered(name: str) -> str:
    """``module:name`` of what users find by that name now; any other name as it is."""
    path = name.partition(":")[2]
    for place in public(name):
        with contextlib.suppress(AttributeError):
            found = _import(place)
            module = str(getattr(found, "__module__", ""))
            if getattr(found, "__qualname__", None) == path and module.startswith("disttrain."):
                return f"{module}:{path}"
    return name


class Known:
    """The names that a file may use: those of ``classes``, or with ``trust`` any."""

    def __init__(self, classes: Iterable[Any], trust: bool) -> None:
        self.trust, self.allowed = trust, {}
        for given in (*classes, *get_safe_globals()):
            thing, name = given if isinstance(given, tuple) else (given, None)
            if name is None and not hasattr(thing, "__qualname__"):
                raise TypeError(
                    f"load: {thing!r:.60} allowed; a class or function, or a pair of one and the "
                    "name that files call it by, is needed"
                )
            self.allowed[_colon(name or f"{thing.__module__}:{thing.__qualname__}")] = thing

    def __contains__(self, name: str) -> bool:
        return self.trust or any(n in self.allowed or n in _ALWAYS for n in _names(name))

    def find(self, name: object) -> Any:
        """The class or function of that name."""
        if type(name) is not str or name not in self:
            raise ClassRefused(f"{name!r:.120} is not allowed")
        for known in _names(name):
            if known in self.allowed:
                return self.allowed[known]
            if known in _ALWAYS:
                return _import(known)
        try:
            return _import(present(name))
        except (ImportError, AttributeError, ValueError) as error:
            if (other := offered(name)) != name:
                return _import(other)
            raise SerializationError(
                f"it needs {name.replace(':', '.')}, which cannot be imported: {error}"
            ) from None

    def check(self, tree: object) -> None:
        """Refuse a description that names what is not allowed; all such names in one message."""
        refused = sorted({name for name in names_in(tree) if name not in self})
        if refused:
            told = ", ".join(name.replace(":", ".") for name in refused)
            raise ClassRefused(
                f"Weights only load failed: it holds objects, of {told[:1500]}. If you trust these "
                "classes, allow them: load(f, classes=[...]), or torch.serialization."
                "add_safe_globals([...]). If you trust whoever wrote the file, "
                "load(f, weights_only=False) imports what it names"
            )


def names_in(tree: object) -> Iterator[str]:
    """The names of classes and functions in a description."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            stack.extend(node.values())
        elif type(node) is list and node[:1] == ["global"]:
            yield str(node[1:2][0]) if len(node) > 1 else ""
        elif type(node) is list:
            stack.extend(node)


def _colon(name: str) -> str:
    """``module:name``, also of a name with dots alone."""
    return name if ":" in name else ":".join(name.rsplit(".", 1))


# --- the rank's own list -------------------------------------------------------------------------


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions in all files that this rank loads from now on. One may be given
    as ``(class, "module.name")``, with the name that files have for it."""
    context.current().slot(_SLOT, list).extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """What ``add_safe_globals`` has allowed."""
    return list(context.current().slot(_SLOT, list))


def clear_safe_globals() -> None:
    """Allow nothing any more."""
    context.current().slot(_SLOT, list).clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Allow classes and functions while the block runs."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        clear_safe_globals()
        add_safe_globals(before)


# --- taking apart and putting together -----------------------------------------------------------


@dataclass
class Parts:
    """What an object is made of. ``how``: ``cls.__new__(cls, *args, **kwargs)``, or
    ``cls(*args)``."""

    how: str
    cls: type
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    state: Any = None
    items: list | None = None
    pairs: list | None = None


def take_apart(obj: object) -> Parts | str:
    """The parts of ``obj``, or a name that finds it. ``SerializationError`` says why it has no
    parts that are data."""
    try:
        made = obj.__reduce_ex__(2)
    except Exception as error:  # any class can refuse in its own way
        raise SerializationError(f"{_said(obj)} ({error})") from None
    if type(made) is str:
        return _checked(f"{obj.__module__}:{made}", obj)
    if type(made) is not tuple or len(made) > 5:
        raise SerializationError(_said(obj))
    make, args, state, items, pairs = (*made, None, None, None)[:5]
    items = None if items is None else list(items)
    pairs = None if pairs is None else [list(pair) for pair in pairs]
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        return Parts(NEW, args[0], args[1:], {}, state, items, pairs)
    if make is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        return Parts(NEW, args[0], args[1], args[2], state, items, pairs)
    if isinstance(make, type):
        return Parts(MAKE, make, args, {}, state, items, pairs)
    raise SerializationError(_said(obj))


def begin(how: str, cls: Any, args: list, kwargs: dict) -> Any:
    """The object, before it has its state."""
    if not isinstance(cls, type) or how not in (NEW, MAKE):
        raise SerializationError(f"a class is needed, {cls!r:.60} found")
    return cls(*args) if how == MAKE else cls.__new__(cls, *args, **kwargs)


def finish(obj: Any, state: dict | tuple | None, items: list | None, pairs: list | None) -> None:
    """Give it its state and contents."""
    if state is not None and hasattr(obj, "__setstate__"):
        obj.__setstate__(state)
    elif state is not None:
        own, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
        if own:
            obj.__dict__.update(own)
        for name, value in (slots or {}).items():
            setattr(obj, name, value)
    for item in items or ():
        obj.append(item)
    for key, value in pairs or ():
        obj[key] = value


def _said(obj: object) -> str:
    """What ``obj`` is, and what to save in its place."""
    article = f"a {type(obj).__qualname__}; it cannot be taken apart into data. "
    if hasattr(obj, "state_dict"):
        return article + "Save its .state_dict(), and give that to .load_state_dict() later"
    if is_dataclass(obj):
        return article + "Save dataclasses.asdict(it)"
    if isinstance(obj, enum.Enum):
        return article + "Save its .value or its .name"
    if hasattr(obj, "__dict__"):
        return article + "Save vars(it), or the values you need"
    return article + "Save the values it is made of"
