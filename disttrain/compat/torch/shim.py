"""Modules that stand under another library's names. Knows the import system, not the names."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from typing import Any

from ...errors import DisttrainError

ROOT = "torch"


class MissingName(DisttrainError, AttributeError):
    """A program named something that this stand-in lacks."""


class Shim(types.ModuleType):
    """A module made of other modules' public names; what it lacks it says plainly."""

    def __init__(self, name: str, doc: str = "") -> None:
        super().__init__(name, doc or f"disttrain under the name {name}")
        self.__path__: list[str] = []
        self.__file__ = __file__
        self.__spec__ = ModuleSpec(name, None, origin=__file__, is_package=True)

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if name.startswith("__"):
            raise AttributeError(full)
        raise MissingName(
            f"{full} is not part of disttrain's stand-in for {ROOT} in this version; what there is: "
            f"dir({self.__name__}). Use another function, or run the program with the real {ROOT}"
        )

    def take(self, source: Any, names: Iterable[str] | None = None) -> Shim:
        """Copy names (None: all public ones) from a module."""
        wanted = [n for n in vars(source) if not n.startswith("_")] if names is None else names
        for n in wanted:
            value = getattr(source, n)
            if not isinstance(value, types.ModuleType):
                setattr(self, n, value)
        return self

    def give(self, **values: Any) -> Shim:
        """Set names."""
        for n, value in values.items():
            setattr(self, n, value)
        return self


class Finder:
    """Says plainly that a submodule of the stand-in does not exist."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith(ROOT + "."):
            raise ModuleNotFoundError(
                f"No module named {name!r}: disttrain's stand-in for {ROOT} lacks it in this "
                f"version; run the program with the real {ROOT}, or without that import",
                name=name,
            )


def publish(modules: dict[str, Shim]) -> None:
    """Put the modules into ``sys.modules``, each also as an attribute of its parent."""
    for name, module in modules.items():
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent and child not in vars(modules[parent]):
            setattr(modules[parent], child, module)
    sys.meta_path.append(Finder())
