"""What a code object reads: names of globals, names of attributes, code inside it. Static facts."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from types import CodeType
from typing import Any

# Code with its globals, by the identities of both: equal code may run on other globals.
# What tensors went through, another thing in every call; makers of names.
_HISTORY = frozenset({"_version", "_base", "_is_view", "data_ptr", "grad_fn", "next_functions"})
_SPACES = frozenset({"globals", "f_globals", "f_locals", "f_builtins"})
Codes = dict[tuple[int, int], tuple[CodeType, dict]]


@dataclass(frozen=True)
class Facts:
    """``attributes`` holds every name that the code may look up on an object: those it spells, and
    texts that look like names (``getattr(x, "scale")``). ``imports``: what ``import`` inside the
    code names."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[tuple[str, int]]  # names of modules, with the number of leading dots
    nested: tuple[CodeType, ...]


@functools.lru_cache(maxsize=4096)
def facts(code: CodeType) -> Facts:
    """The facts of ``code`` and of all code inside it."""
    found: set[Any] = set()
    attributes: set[str] = set()
    nested: list[Any] = []
    imports = set(_imports(code))
    for ins in dis.get_instructions(code):
        if ins.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            found.add(ins.argval)
    attributes.update(name for name in code.co_names if name not in found)
    attributes.update(_spelled_twice(code, found))
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = facts(const)
            nested += [const, *inner.nested]
            found |= inner.globals
            attributes |= inner.attributes
            imports |= inner.imports
        else:
            attributes.update(_texts(const))
    return Facts(frozenset(found), frozenset(attributes), frozenset(imports), tuple(nested))


def _imports(code: CodeType) -> Iterator[tuple[str, int]]:
    """The module of every ``import`` statement, and the packages that it lies in."""
    for ins in dis.get_instructions(code):
        if ins.opname == "IMPORT_NAME":
            level = next(
                (p.argval for p in preceding(code)[ins.offset] if type(p.argval) is int
                 and p.opname.startswith("LOAD")), 0
            )  # fmt: skip
            parts = ins.argval.split(".")
            yield from ((".".join(parts[: i + 1]), level) for i in range(len(parts)))


def modules(code: CodeType, space: dict) -> set[str]:
    """The full names of the modules that ``code``, run on the globals ``space``, imports."""
    package = space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]
    found = set()
    for name, level in facts(code).imports:
        above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        found.add(".".join([*above, name]).strip("."))
    return found


def named_modules(codes: Codes) -> set[str]:
    """What ``codes`` may look up in ``sys.modules``: the names that they contain in full; nothing
    where none of those is a module's."""
    texts = {const for code, _ in codes.values() for const in code.co_consts if _is_path(const)}
    return texts if any(text in sys.modules for text in texts) else set()


def unfollowed(spelled: Set[str]) -> list[str]:
    """Which of the names stand for what cannot be compared."""
    history = [f"{name}, the history of a tensor" for name in _HISTORY & spelled]
    spaces = [f"{name}, in which names can be made on the way" for name in _SPACES & spelled]
    return history + spaces


def _is_path(const: object) -> bool:
    return isinstance(const, str) and all(part.isidentifier() for part in const.split("."))


def _spelled_twice(code: CodeType, found: set) -> set[str]:
    """Names that are read both as a global and as an attribute."""
    ops = {
        ins.argval
        for ins in dis.get_instructions(code)
        if ins.opname.endswith(("_ATTR", "_METHOD", "IMPORT_FROM")) and ins.argval in found
    }
    return {name for name in ops if isinstance(name, str)}


def _texts(const: object) -> set[str]:
    if isinstance(const, str):
        return {part for part in const.split(".") if part.isidentifier()}
    if isinstance(const, (tuple, frozenset)):
        return {text for part in const for text in _texts(part)}
    return set()


@functools.lru_cache(maxsize=1024)
def following(code: CodeType) -> dict[int, Any]:
    """For the offset of each instruction, the one that comes next."""
    listed = list(dis.get_instructions(code))
    return {a.offset: b for a, b in itertools.pairwise(listed)}


@functools.lru_cache(maxsize=1024)
def preceding(code: CodeType) -> dict[int, list]:
    """For the offset of each instruction, itself and those before it, the nearest first."""
    real = [
        ins
        for ins in dis.get_instructions(code)
        if ins.opname not in ("PRECALL", "CACHE", "EXTENDED_ARG", "NOP")
    ]
    return {ins.offset: real[max(0, i - 4) : i + 1][::-1] for i, ins in enumerate(real)}
