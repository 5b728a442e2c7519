"""What modules of a project import of each other, also where only a string says so.

``loads`` finds calls that import by name (``importlib.import_module``, ``runpy.run_module`` ...)
and reads what may be asked of them: constants, parts of f-strings, values of a table, what a loop
goes over. What cannot be read is ``*``, and stands for any one segment of a name. Besides, each
constant that is the name of a module is taken for a load by the file that it stands in, whatever is
done with it; so a name that is handed to another file is counted once, where it is written.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ANY = "*"
BY_NAME = {"import_module", "__import__", "run_module", "find_spec", "resolve_name"}
BY_PATH = {"spec_from_file_location", "run_path", "SourceFileLoader"}
Pair = tuple[str, str]


@dataclass
class Module:
    """One file. ``is_package``: it is an ``__init__``."""

    name: str
    path: Path
    is_package: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @cached_property
    def values(self) -> dict[str, list[ast.expr]]:
        """What names are given anywhere in the file: assigned, or gone over by a loop."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    targets = [target]
                case (
                    ast.For(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    targets = [target]
                case _:
                    continue
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, []).append(value)
        return found

    @cached_property
    def origins(self) -> dict[str, str]:
        """Names that this imports: the module, or the module and the name in it, with a dot."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                base = self.base(node)
                found |= {a.asname or a.name: f"{base}.{a.name}" for a in node.names}
        return found

    def base(self, node: ast.ImportFrom) -> str:
        """The module that ``from ... import`` names."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])


@dataclass
class Project:
    """The modules below ``tops``, (folder, name) pairs."""

    tops: list[tuple[Path, str]]
    unread: set[str] = field(default_factory=set)  # modules with a load that cannot be read

    @cached_property
    def modules(self) -> dict[str, Module]:
        found = {}
        for folder, top in self.tops:
            for path in folder.rglob("*.py"):
                parts = [top, *path.relative_to(folder).with_suffix("").parts]
                is_package = parts[-1] == "__init__"
                name = ".".join(parts[:-1] if is_package else parts)
                found[name] = Module(name, path, is_package)
        return found

    def imports(self) -> set[Pair]:
        """(importer, imported) of statements."""
        found = set()
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.Import):
                    found |= {(module.name, self._module_of(a.name)) for a in node.names}
                elif isinstance(node, ast.ImportFrom):
                    base = module.base(node)
                    names = [f"{base}.{a.name}" for a in node.names]
                    found |= {(module.name, self._module_of(name)) for name in names}
        return {(a, b) for a, b in found if b and a != b}

    def loads(self) -> set[Pair]:
        """(importer, imported) of strings."""
        found = set()
        for module in self.modules.values():
            asked = set(self._constants(module))
            for call in module.nodes:
                if isinstance(call, ast.Call) and call.args and _called(call) in BY_NAME | BY_PATH:
                    asked |= self._asked(module, call)
            found |= {(module.name, b) for name in asked for b in self._matching(name)}
        return {(a, b) for a, b in found if a != b}

    def _module_of(self, name: str) -> str:
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name

    def _matching(self, name: str) -> list[str]:
        name = name.partition(":")[0]
        if ANY not in name:
            return [name] if name in self.modules else []
        dots = name.count(".")
        return [m for m in fnmatch.filter(self.modules, name) if m.count(".") == dots]

    def _constants(self, module: Module) -> Iterator[str]:
        """Constants that name modules of a package, which are no docstrings."""
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.partition(":")[0]
                if "." in name and name in self.modules:
                    yield name

    def _asked(self, module: Module, call: ast.Call) -> set[str]:
        given = {text for text in self._read(module, call.args[0]) if isinstance(text, str)}
        if _called(call) in BY_PATH:
            given = {ANY}
        if ANY in given:
            self.unread.add(module.name)
        package = {module.package}
        if len(call.args) > 1 and _called(call) == "import_module":
            package = self._read(module, call.args[1])
        named = set()
        for text, within in itertools.product(given - {ANY}, package):
            named.add(importlib.util.resolve_name(text, within) if text[:1] == "." else text)
        return named

    def _read(self, module: Module, node: ast.expr, seen: frozenset[str] = frozenset()) -> set[str]:
        """All texts that ``node`` may be."""
        match node:
            case ast.Constant(value=str() as text):
                return {text}
            case ast.Constant():
                return set()
            case ast.JoinedStr(values=values):
                parts = [self._read(module, value, seen) for value in values]
                return {"".join(texts) for texts in itertools.product(*parts)}
            case ast.FormattedValue(value=value) | ast.Starred(value=value):
                return self._read(module, value, seen)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return self._union(module, parts, seen)
            case ast.Dict(keys=keys, values=values):
                return self._union(module, [key for key in keys if key] + values, seen)
            case ast.IfExp(body=a, orelse=b):
                return self._union(module, [a, b], seen)
            case ast.Subscript(value=ast.Name() as value):
                return self._read(module, value, seen)
            case ast.Name(id="__package__"):
                return {module.package}
            case ast.Name(id="__name__"):
                return {module.name}
            case ast.Name(id=name):
                return self._named(module, name, seen)
            case ast.Attribute(value=ast.Name(id=name)) if module.origins.get(name) in self.modules:
                return set()
        return {ANY}

    def _union(self, module: Module, parts: Iterable[ast.expr], seen: frozenset[str]) -> set[str]:
        return set().union(*(self._read(module, part, seen) for part in parts))

    def _named(self, module: Module, name: str, seen: frozenset[str]) -> set[str]:
        key = f"{module.name}.{name}"
        if key in seen:
            return set()
        if name in module.values:
            return self._union(module, module.values[name], seen | {key})
        home = module.origins.get(name, "").rpartition(".")[0]
        return set() if home in self.modules else {ANY}


def _called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", None) or getattr(function, "id", "")
