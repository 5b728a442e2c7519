"""Stubs of modules of functions, many of which factories and wrappers make."""

from __future__ import annotations

import types
from typing import Any

from disttrain.core import Primitive

from . import written
from .names import Names
from .signatures import forms, signature_of


def stub(module: types.ModuleType) -> str:
    """The text of the stub of ``module``."""
    names = Names(published(module))
    body = [line for name in published(module) for line in _lines(module, name, names)]
    classes = (v for n, v in vars(module).items() if n[0] != "_" and isinstance(v, type))
    rows = [f"from {c.__module__} import {c.__name__} as {c.__name__}" for c in classes]
    head = f'"""Functions of {module.__name__}. Made by scripts/stubs; not to be edited."""'
    return "\n".join([head, "", *names.lines(), *rows, "", *body, ""])


def published(module: types.ModuleType) -> list[str]:
    """The public functions of a module."""
    shown = getattr(module, "__all__", vars(module))
    return sorted(n for n in shown if n[0] != "_" and _is_function(getattr(module, n)))


def _is_function(thing: Any) -> bool:
    return isinstance(thing, (types.FunctionType, Primitive))


def _lines(module: types.ModuleType, name: str, names: Names) -> list[str]:
    found = written.functions(name, names)
    if found:
        return found
    made = [s.text(name) for s in forms(signature_of(getattr(module, name), names), names)]
    if len(made) == 1:
        return made
    names.found["typing"].add("overload")
    return [f"@overload\n{line}" for line in made]
