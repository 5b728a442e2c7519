"""The overloads that are written by hand (``overloads.txt``), by name, as lines of a stub."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import disttrain.core.annotations as shared
from disttrain.core.random import Generator
from disttrain.core.tensor import Size, Tensor
from disttrain.core.types.dtypes import dtype
from disttrain.ops.functions.sort import ValuesIndices

from .names import Names

_FILE = Path(__file__).with_name("overloads.txt")
_SCOPE = {**vars(shared), "dtype": dtype, "Generator": Generator, "Size": Size, "Tensor": Tensor,
          "ValuesIndices": ValuesIndices}  # fmt: skip
_IGNORED = ("__eq__", "__ne__")  # object's give a bool


@cache
def _parsed() -> tuple[dict[str, list], dict[str, list]]:
    functions: dict[str, list] = defaultdict(list)
    methods: dict[str, list] = defaultdict(list)
    for node in ast.parse(_FILE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name].append(node)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                assert isinstance(inner, ast.FunctionDef)
                methods[inner.name].append(inner)
    return functions, methods


def functions(name: str, names: Names) -> list[str]:
    """The written overloads of a public function; none if it has none."""
    return [_line(node, names) for node in _parsed()[0].get(name, ())]


def methods(name: str, names: Names) -> list[str]:
    """Those of a method: its own, or those of the function of its name."""
    own = _parsed()[1].get(name)
    if own is not None:
        return [_line(node, names) for node in own]
    return [_line(_as_method(node), names) for node in _parsed()[0].get(name, ())]


def _as_method(node: ast.FunctionDef) -> ast.FunctionDef:
    copied = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(copied, ast.FunctionDef)
    first = (copied.args.posonlyargs or copied.args.args)[0]
    first.arg, first.annotation = "self", None
    return copied


def _line(node: ast.FunctionDef, names: Names) -> str:
    made = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(made, ast.FunctionDef)
    for arg in ast.walk(made):
        if isinstance(arg, ast.arg) and arg.annotation is not None:
            arg.annotation = _expression(names.spell(arg.annotation, _SCOPE))
    assert made.returns is not None, f"overloads.txt: {made.name} says not what it gives"
    made.returns = _expression(names.spell(made.returns, _SCOPE))
    marks = [f"@{ast.unparse(d)}" for d in made.decorator_list]
    if "@overload" in marks:
        names.found["typing"].add("overload")
    made.decorator_list = []
    ignored = "  # type: ignore[override]" if node.name in _IGNORED else ""
    text = ast.unparse(made).replace("\n", " ").replace(":     ...", ": ...")
    return "\n".join([*marks, text + ignored])


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
