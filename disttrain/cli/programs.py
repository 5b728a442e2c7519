"""Training programs that commands ask for something: which one it is, and a call of its function.

A program is a Python file with a function of a known name (``subject`` for ``disttrain plan``,
``trained`` for ``disttrain export``). It is loaded under another name than ``__main__``, so that it
does not train.
"""

from __future__ import annotations

import ast
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DisttrainError

_PLACES = ("train.py", "scripts/train.py")
NAMES = " or ".join(_PLACES)


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
    sys.path.insert(0, str(program.resolve().parent))
    try:
        return runpy.run_path(str(program), run_name="disttrain_planned")[name](*args)
    except DisttrainError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{program}: {_last_line(error, program)} raised {type(error).__name__}: {error}. To "
            f'{purpose}, the program is loaded under another name than "__main__", and its '
            f"{name} is called, in one process without a group"
        ) from error
    finally:
        sys.path.pop(0)


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
    own = [f for f in frames if f.filename == str(program)] or frames
    return f"line {own[-1].lineno}"
