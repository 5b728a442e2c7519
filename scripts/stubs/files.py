"""Which modules have stubs, and what stands in them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import disttrain
from disttrain import fft, linalg
from disttrain.ops import api, later

from . import faces, functions, tensor

_HERE = Path(disttrain.__file__).parent
_ROOTS = (_HERE, Path(importlib.import_module("disttrain_launcher").__file__ or "").parent)
_FUNCTIONS = (api, fft, later, linalg)


def texts() -> dict[Path, str]:
    """Path -> what should stand there."""
    made = {_HERE / "core/tensor_methods.pyi": tensor.stub()}
    for module in _FUNCTIONS:
        made[Path(module.__file__ or "").with_suffix(".pyi")] = functions.stub(module)
    for path in _lazy_packages():
        made[path.with_suffix(".pyi")] = faces.stub(importlib.import_module(_named(path)))
    return made


def _lazy_packages() -> Iterator[Path]:
    """Those whose names are ours (a face's are another library's)."""
    for root in _ROOTS:
        for path in sorted(root.rglob("__init__.py")):
            if path.relative_to(root).parts[0] == "compat":
                continue
            if faces.is_lazy(ast.parse(path.read_text(encoding="utf-8"))):
                yield path


def _named(path: Path) -> str:
    root = next(r for r in _ROOTS if path.is_relative_to(r))
    top = "disttrain" if root == _HERE else "disttrain_launcher"
    return ".".join([top, *path.parent.relative_to(root).parts])
