"""The stubs say what is there, and lines that users write do what the checkers see in them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from stubs import faces, files, tensor

import disttrain as dt
from support import user_code

ROOT = Path(__file__).parents[2]
MADE = files.texts()


def defined(source: str) -> set[str]:
    """The names that a module's text gives a meaning."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {a.asname or a.name for a in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


@pytest.mark.parametrize("path", MADE, ids=lambda p: "/".join(p.parts[-2:]))
def test_a_stub_is_what_the_tables_make(path: Path) -> None:
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    assert there == MADE[path], "out of date; run: PYTHONPATH=scripts python -m stubs"


def test_every_method_of_a_tensor_is_known() -> None:
    (stub,) = (n for n in ast.parse(tensor.stub()).body if isinstance(n, ast.ClassDef))
    known = {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
    assert known >= set(tensor.attached())
    own = ROOT / "disttrain/core/tensor.py"
    (kind,) = (n for n in ast.parse(own.read_text(encoding="utf-8")).body
               if isinstance(n, ast.ClassDef) and n.name == "Tensor")  # fmt: skip
    names = {getattr(n, "name", None) or ast.unparse(getattr(n, "target", n)).partition(" ")[0]
             for n in kind.body}  # fmt: skip
    assert [n for n in dir(dt.Tensor) if n[0] != "_" and n not in known | names] == []


@pytest.mark.parametrize(
    "name", ["disttrain", "disttrain.distributed", "disttrain.distributed.optim",
             "disttrain.distributed.nn", "disttrain.distributed.invariant", "disttrain_launcher"]
)  # fmt: skip
def test_names_that_are_loaded_late_are_known(name: str) -> None:
    package = importlib.import_module(name)
    text = faces.stub(package)
    known = defined(text) | (set(dt.ops.api.__dict__) if "ops.api import *" in text else set())
    tables = [t for n, t in vars(package).items() if n in ("_PACKAGES", "_NAMES", "_ELSEWHERE")]
    late = {n for table in tables for n in table} | set(getattr(package, "__all__", ()))
    assert sorted(late - known) == []


def test_lines_that_users_write_run() -> None:
    x = dt.rand(4, 3)
    assert user_code.making().shape == (4, 3)
    for each in (user_code.arithmetic, user_code.reducing, user_code.reshaping,
                 user_code.transforming):  # fmt: skip
        each(x)
    user_code.converting(x)
    user_code.training()
    assert dt.launch(user_code.on_one_rank, 1) == [0.0]
