"""Stubs of packages that load names when they are asked for (a ``__getattr__`` of the module):
what they import, and what they would load, as imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

from .names import Names


def stub(package: types.ModuleType) -> str:
    """The text of the ``__init__.pyi`` of ``package``."""
    shown = {*dir(package), *getattr(package, "__all__", ())}
    names = Names(shown)
    eager = list(_eager(package, names))
    known = {name for _, given in eager for name in given}
    late = [_late(package, n) for n in sorted(shown) if n not in known and n[:2] != "__"]
    rows = [row for row in (*(row for row, _ in eager), *late) if row]
    title = f'"""Names of {package.__name__}. Made by scripts/stubs; not to be edited."""'
    return "\n".join([title, "", *names.lines(), *rows, ""])


def is_lazy(tree: ast.Module) -> bool:
    """Whether a module loads names when they are asked for."""
    return any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in tree.body)


def _eager(package: types.ModuleType, names: Names) -> Iterator[tuple[str, list[str]]]:
    """(line, the names it defines) for what stands in the source itself."""
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            yield from _import(package, node)
        elif isinstance(node, ast.Import):
            yield "", [(a.asname or a.name).partition(".")[0] for a in node.names]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from _assigned(package, node, names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[:2] != "__":
            raise TypeError(f"stubs: {package.__name__} defines {node.name}; move it to a module")


def _import(package: types.ModuleType, node: ast.ImportFrom) -> Iterator[tuple[str, list[str]]]:
    home = f"{'.' * node.level}{node.module or ''}"
    if not node.level and not home.startswith("disttrain"):
        yield "", [a.asname or a.name for a in node.names]
        return
    if node.names[0].name == "*":
        given = importlib.import_module(home, package.__name__)
        every = getattr(given, "__all__", [n for n in vars(given) if n[0] != "_"])
        yield f"from {home} import *", list(every)
        return
    for a in node.names:
        shown = a.asname or a.name
        line = f"from {home} import {a.name} as {shown}"
        if shown != a.name and shown[0] != "_":  # another name: no re-export by the rules of stubs
            line = f"from {home} import {a.name} as _{shown}\n{shown} = _{shown}"
        yield line, [shown]


def _assigned(
    package: types.ModuleType, node: ast.Assign | ast.AnnAssign, names: Names
) -> Iterator[tuple[str, list[str]]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, ast.Name):
                yield _value(package, part.id, names), [part.id]


def _value(package: types.ModuleType, name: str, names: Names) -> str:
    """A name that is assigned: another name of a class, or a value by its type."""
    value = getattr(package, name)
    if name == "__all__":
        return f"__all__ = {list(value)!r}"
    if isinstance(value, type):
        same = (n for n, v in vars(package).items() if v is value and n == value.__name__)
        return f"{name} = {next(same, None) or names.of(value)}"
    return "" if name[0] == "_" and name[:2] != "__" else f"{name}: {names.of(type(value))}"


def _late(package: types.ModuleType, name: str) -> str:
    """An import of what is loaded when ``name`` is asked for."""
    value = getattr(package, name, None)
    if isinstance(value, types.ModuleType):
        own = value.__name__ == f"{package.__name__}.{name}" and not _is_private(package, name)
        return _module(name, value) if own else ""
    home = _table(package, name) or str(getattr(value, "__module__", ""))
    if not home.startswith("disttrain"):
        return ""
    return f"from {home} import {name} as {name}"


def _is_private(package: types.ModuleType, name: str) -> bool:
    """Whether ``name`` is a module that was loaded by somebody else, not by this package."""
    return name not in {n for table in _tables(package) for n in table}


def _tables(package: types.ModuleType) -> list[Any]:
    """The lists and tables that a package finds its late names in."""
    return [v for n, v in vars(package).items() if n[0] == "_" and n[:2] != "__"
            and isinstance(v, (dict, tuple, list, frozenset, set))]  # fmt: skip


def _table(package: types.ModuleType, name: str) -> str | None:
    found = next((t[name] for t in _tables(package) if isinstance(t, dict) and name in t), None)
    if not isinstance(found, str):
        return None
    if found.startswith("disttrain"):
        return found
    return importlib.util.resolve_name(f".{found}" if found[0] != "." else found, package.__name__)


def _module(name: str, value: types.ModuleType) -> str:
    """A package of ours. One that can be called is shown as its main function, ``_name`` there."""
    if type(value) is types.ModuleType:
        return f"from . import {name} as {name}"
    main = getattr(value, f"_{name}")
    return f"from {main.__module__} import {main.__name__} as {name}"
