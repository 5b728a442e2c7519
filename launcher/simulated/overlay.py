"""Attributes of shared modules that a simulated rank sets: ``sys.stdout = log``, ``builtins.print =
quiet``, ``time.sleep = ...``. Each rank finds its own, as in a process of its own.

Modules become instances of a subclass that notes who sets what. What is set while a shared module
is being imported, or fills itself when it is first asked for a name, belongs to all, since that
happens once. Knows modules and ranks by number; not when ranks change places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

_ABSENT = object()
_Place = tuple[ModuleType, str]
_MAKES = ("<module>", "__getattr__")  # code by which a module gets its names


class Overlay:
    """What one rank has set, as it was when it last left the process. ``own(name)``: is that a
    module of the rank's program?"""

    def __init__(self, own: Callable[[str], bool]) -> None:
        self.own = own
        self.values: dict[_Place, Any] = {}

    def give(self, module: ModuleType, name: str, value: object) -> None:
        """Let the rank find ``value`` there from the beginning."""
        self.values[module, name] = value


class Overlays:
    """``mine()``: the overlay of the calling rank, None for a thread of the process itself."""

    def __init__(self, mine: Callable[[], Overlay | None]) -> None:
        self._mine = mine
        self._base: dict[_Place, Any] = {}  # what who has set nothing finds
        self._classes: dict[type, type] = {}

    def adopt(self, modules: Collection[ModuleType]) -> None:
        """From now on ranks have attributes of their own in these."""
        for module in modules:
            if isinstance(module, ModuleType):
                try:
                    module.__class__ = self._class_of(type(module))
                except TypeError:  # of a form of its own: it stays as it is
                    continue

    def adopt_when_made(self, spec: ModuleSpec) -> None:
        """The same for a module that is about to be imported."""
        loader: Any = spec.loader
        if loader is not None and getattr(loader, "create_module", None) is not None:
            loader.create_module = self._make_module

    def _make_module(self, spec: ModuleSpec) -> ModuleType:
        return self._class_of(ModuleType)(spec.name)

    def _class_of(self, base: Any) -> Any:
        if base in self._classes.values():
            return base
        if base not in self._classes:
            overlays = self

            def set_attribute(module: Any, name: str, value: object) -> None:
                overlays._note(module, name, value, sys._getframe(1))
                base.__setattr__(module, name, value)

            def delete_attribute(module: Any, name: str) -> None:
                overlays._note(module, name, None, sys._getframe(1))
                base.__delattr__(module, name)

            body = {
                "__slots__": (),
                "__setattr__": set_attribute,
                "__delattr__": delete_attribute,
                "__doc__": base.__doc__,
                "__module__": base.__module__,
            }
            self._classes[base] = type(base.__name__, (base,), body)
        return self._classes[base]

    def _note(self, module: ModuleType, name: str, value: Any, frame: FrameType | None) -> None:
        """Somebody is about to change an attribute."""
        mine = self._mine()
        if mine is None or (name.startswith("__") and name.endswith("__")):
            return
        place = (module, name)
        if place in mine.values or _is_import(module, name, value, frame, mine.own):
            return
        self._base.setdefault(place, module.__dict__.get(name, _ABSENT))
        mine.values[place] = value

    def leave(self, mine: Overlay) -> None:
        """Its rank leaves the process to another one."""
        for place in mine.values:
            module, name = place
            mine.values[place] = module.__dict__.get(name, _ABSENT)
            _put(module, name, self._base[place])

    def enter(self, mine: Overlay) -> None:
        """Its rank comes back."""
        for place, value in mine.values.items():
            module, name = place
            self._base.setdefault(place, module.__dict__.get(name, _ABSENT))
            _put(module, name, value)


def _put(module: ModuleType, name: str, value: Any) -> None:
    if value is _ABSENT:
        module.__dict__.pop(name, None)
    else:
        module.__dict__[name] = value


def _is_import(
    module: ModuleType,
    name: str,
    value: object,
    frame: FrameType | None,
    own: Callable[[str], bool],
) -> bool:
    """Is it a submodule that an import sets, or part of making what all ranks share?"""
    if isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}":
        return True
    while frame is not None:
        if own(frame.f_globals.get("__name__", "")):
            return False
        if frame.f_code.co_name in _MAKES:
            return True
        frame = frame.f_back
    return False
