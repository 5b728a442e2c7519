"""Training programs that commands ask for something: which one it is, and a call of its function.

A program is a Python file with a function of a known name (``subject`` for ``disttrain plan``,
``trained`` for ``disttrain export``). It is loaded under another name than ``__main__``, so that it
does not train.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DisttrainError

_PLACES = ("train.py", "scripts/train.py")
NAMES = " or ".join(_PLACES)
_NAME = "disttrain_planned"  # as what a program is loaded


def find_program(config: Path) -> Path:
    """The program that the file ``config`` belongs to: the nearest one in the folders above it."""
    if not config.is_file():
        raise ConfigError(f"{config}: there is no such file; a TOML file is needed")
    for program in above(config):
        return program
    raise ConfigError(
        f"there is no {NAMES} in the folders above {config}; name the program with --program"
    )


def above(path: Path) -> Iterator[Path]:
    """The programs in the folders above ``path``, the nearest first."""
    for folder in path.resolve().parents:
        for name in _PLACES:
            if (folder / name).is_file():
                yield folder / name


def call(program: Path, name: str, args: tuple[Any, ...], purpose: str, needed: str) -> Any:
    """What ``name(*args)`` of the program returns. A program without such a function is not run.
    ``purpose``: what for ("plan"); ``needed``: what it should return, for messages."""
    if not binds(program, name, needed):
        said = f"{name}({'words' if len(args) == 1 else 'run, words'})"
        raise ConfigError(f"{program} has no function {said}. {needed}")
    with near(program), blamed(program, f"its {name} is called", purpose):
        return getattr(_load(program), name)(*args)


def _load(program: Path) -> Any:
    """The program as a module. It stays among the loaded ones, where annotations of its classes,
    copies and pickles look for it."""
    loader = importlib.machinery.SourceFileLoader(_NAME, str(program))
    spec = importlib.util.spec_from_file_location(_NAME, program, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.set_data = lambda *args, **kwargs: None  # type: ignore[method-assign]  # (no __pycache__)
    sys.modules[_NAME] = module
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def near(program: Path) -> Iterator[None]:
    """Modules that lie beside the program can be imported, as when it is run."""
    folder = str(program.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it was the program that took it out
            sys.path.remove(folder)


def raised_by(program: Path, error: BaseException) -> bool:
    """Whether the program's code was running, or could not be called as it was."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, TypeError) or any(f.filename == str(program) for f in frames)


@contextlib.contextmanager
def blamed(program: Path, what: str, purpose: str) -> Iterator[None]:
    """Errors of the program as ``ConfigError`` with its line. ``what`` is done with it."""
    try:
        yield
    except DisttrainError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{program}: {_last_line(error, program)} raised {type(error).__name__}: {error}. To "
            f'{purpose}, the program is loaded under another name than "__main__", and {what}, in '
            "one process without a group"
        ) from error


def binds(program: Path, name: str, needed: str = "") -> bool:
    """Whether the top level of a Python file defines, imports or assigns ``name``."""
    if not program.is_file():
        raise ConfigError(f"--program {program}: there is no such file")
    try:
        tree = ast.parse(program.read_bytes(), str(program))
    except OSError as error:
        raise ConfigError(f"{program} cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{program} is no Python program: {error}. {needed}") from error
    return any(name in _bound(node, name) for top in tree.body for node in _reached(top))


def _reached(top: ast.stmt) -> Iterator[ast.AST]:
    """A statement, and what stands in it outside functions and classes."""
    yield top
    if not isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for child in ast.iter_child_nodes(top):
            yield from _reached(child)  # type: ignore[arg-type]


def _bound(node: ast.AST, wanted: str) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [wanted if a.name == "*" else a.asname or a.name for a in node.names]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _last_line(error: BaseException, program: Path) -> str:
    """The line of the program, or of what it calls, that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f.lineno for f in frames if f.filename == str(program)]
    return f"line {own[-1]}" if own else "a call from outside"
