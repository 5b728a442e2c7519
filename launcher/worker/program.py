"""Runs a rank's program as Python's own command does: what it finds in ``__main__``, ``sys.argv``
and ``sys.path``, and which of its files are meant.

Knows nothing of ranks.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
import types
import zipimport
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any

_LARGE = 1 << 20  # bytes of a script that are looked through


def is_archive(path: str) -> bool:
    """Is it a folder, or a zip file, of which Python runs ``__main__.py``?"""
    if os.path.isdir(path):
        return True
    try:
        zipimport.zipimporter(path)
    except zipimport.ZipImportError:
        return False
    return True


def has_main(path: str) -> bool:
    """Does that folder or zip file have something to run?"""
    finder = pkgutil.get_importer(path)
    return finder is not None and finder.find_spec("__main__", None) is not None


def here() -> str:
    """The folder that the process is in; "" where it was removed, in which ``python`` runs, too."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def source(name: str) -> str | None:
    """The text of a script; None where there is none that can be read twice."""
    if not os.path.isfile(name):
        return None
    try:
        with open(name, "rb") as file:
            data = file.read(_LARGE)
    except OSError:
        return None
    return None if b"\0" in data else data.decode(errors="replace")


def run_script(name: str, enter: bool = True) -> None:
    """As ``python NAME``: of a source file, a compiled one, a folder or a zip file. ``enter``: a
    file's folder is where modules are looked for first, as ever, but for ``runpy.run_path``."""
    path = os.path.join(here(), name)  # still right when the program has changed its folder
    if is_archive(path):
        _enter(path)
        finder: Any = pkgutil.get_importer(path)
        spec = finder.find_spec("__main__", None)
        _run(_code_of(spec, f"__main__ in {name}"), spec.origin, spec.loader, spec)
        return
    if enter:
        _enter(os.path.dirname(os.path.realpath(path)))
    with io.open_code(path) as file:
        code = pkgutil.read_code(file)
    if code is None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    _run(code, path, loader=SourceFileLoader("__main__", path))


def run_module(name: str) -> None:
    """As ``python -m NAME``: of a module, or of a package's ``__main__``."""
    _enter(here())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    code = _code_of(spec, name)
    assert spec is not None
    sys.argv[0] = spec.origin or name
    _run(code, spec.origin or name, spec.loader, spec)


def _code_of(spec: ModuleSpec | None, name: str) -> CodeType:
    if spec is None:
        raise ImportError(f"No module named {name}")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise ImportError(f"No code object available for {name}")
    return code


def _enter(folder: str) -> None:
    """Put the program's folder where Python has that of its own program: here, of the command that
    has started this process."""
    if not sys.flags.safe_path:
        sys.path[:1] = [folder]


def _run(code: CodeType, path: str, loader: object = None, spec: ModuleSpec | None = None) -> None:
    """Run it as ``__main__``, which it stays: threads and exit handlers may outlive the code."""
    main = types.ModuleType("__main__")
    vars(main).update(
        __file__=path,
        __builtins__=builtins,
        __loader__=loader,
        __spec__=spec,
        __package__=None if spec is None else spec.parent,
        __cached__=None if spec is None else spec.cached,
    )
    if sys.version_info < (3, 14):  # since then they are computed when they are asked for
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    _Program(code).exec_module(main)


class _Program(SourceFileLoader):
    """Runs code that is at hand in a module, as an import does."""

    def __init__(self, code: CodeType) -> None:
        super().__init__("__main__", code.co_filename)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code

    def get_source(self, fullname: str) -> str | None:
        return None
