"""Annotations as a stub spells them: builtins by their full name where the stub has something of
that name (methods called ``float`` and ``int``), the rest imported from where it is defined."""

from __future__ import annotations

import ast
import builtins
import copy
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from disttrain.core import annotations as shared

_TYPING = frozenset(("Any", "Literal", "NamedTuple", "Self", "overload"))
_ALIASES = frozenset(n for n in vars(shared) if n in shared.__annotations__)
_BUILTINS = frozenset(n for n, v in vars(builtins).items() if isinstance(v, type))
_TABLES = {"np": "numpy"}  # modules that annotations name by an alias


class Names:
    """The imports that a stub needs; grows as annotations are spelled. ``taken``: names that the
    stub itself gives a meaning."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.found: dict[str, set[str]] = defaultdict(set)
        self.modules: set[str] = set()
        self.taken = frozenset(taken)

    def spell(self, annotation: ast.expr, scope: Mapping[str, Any]) -> str:
        """``annotation``, as it stands in a module whose names are ``scope``."""
        return ast.unparse(_Spelling(self, scope).visit(copy.deepcopy(annotation)))

    def name(self, name: str, scope: Mapping[str, Any]) -> str:
        """``name`` of ``scope`` as the stub spells it, imported there."""
        if name in _ALIASES:
            self.found[shared.__name__].add(name)
        elif name in _TYPING:
            self.found["typing"].add(name)
        elif isinstance(scope.get(name), type):
            return self.of(scope[name])
        elif name in _BUILTINS:
            return self.builtin(name)
        elif name in scope:
            return self.elsewhere(name, scope[name])
        return name

    def of(self, kind: type) -> str:
        """A class by its name."""
        if kind.__module__ == "builtins":
            return self.builtin(kind.__name__)
        self.found[kind.__module__].add(kind.__name__)
        return kind.__name__

    def builtin(self, name: str) -> str:
        """One of Python's own, by its full name where the short one is taken."""
        if name not in self.taken:
            return name
        self.modules.add("import builtins")
        return f"builtins.{name}"

    def elsewhere(self, name: str, thing: Any) -> str:
        """What is no class: a module, an alias, something of ``typing``'s."""
        if isinstance(thing, types.ModuleType):
            short = _TABLES.get(name)
            self.modules.add(f"import {short} as {name}" if short else f"import {thing.__name__}")
            return name if short else thing.__name__
        home = typing if hasattr(typing, name) else sys.modules[shared.__name__]
        assert hasattr(home, name), f"stubs: no class and no shared type: {name}"
        self.found[home.__name__].add(name)
        return name

    def lines(self) -> list[str]:
        """The import statements."""
        rows = [f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(self.found.items())]
        return [*sorted(self.modules), *rows]


class _Spelling(ast.NodeTransformer):
    def __init__(self, names: Names, scope: Mapping[str, Any]) -> None:
        self.names, self.scope = names, scope

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.names.name(node.id, self.scope), mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """``module.Class`` as the class; what numpy has as it is."""
        home = self.scope.get(node.value.id) if isinstance(node.value, ast.Name) else None
        found = getattr(home, node.attr, None)
        if isinstance(found, type) and home is not np:
            return ast.parse(self.names.of(found), mode="eval").body
        return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
