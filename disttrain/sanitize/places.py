"""Where in the program, and what things are called: looked up when there is something to tell."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Iterable
from typing import NamedTuple

from ..core import Tensor
from ..nn import Module

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NOT_THE_PROGRAM = (_PACKAGE, contextlib.__file__, functools.__file__, "<frozen ")
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
_BETWEEN = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


class Place(NamedTuple):
    """A line of the program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("end of the program", 0)


def here() -> Place:
    """The line of the program that has called this package."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM) and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def forward_of(module: Module) -> Place | None:
    """Where the program defines the forward of ``module``; None for layers of this package."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    if code is None or code.co_filename.startswith(_NOT_THE_PROGRAM):
        return None
    return Place(code.co_filename, code.co_firstlineno)


def unwrapped(module: Module) -> Module:
    """What data-parallel wrappers wrap."""
    while type(module).__name__ in WRAPPERS:
        children = module.__dict__["_modules"]
        inner = children.get("module", children.get("_fsdp_wrapped_module"))
        if not isinstance(inner, Module):
            break
        module = inner
    return module


class Names:
    """Names in the trees of modules that were called as the outermost ones."""

    def __init__(self) -> None:
        self.roots: weakref.WeakSet[Module] = weakref.WeakSet()

    def module(self, wanted: Module) -> str:
        """The path of a module: "Net.blocks.0.norm"."""
        for root in sorted(self.roots, key=_size, reverse=True):
            inner = unwrapped(root)
            for path, module in inner.named_modules():
                if module is wanted:
                    return _joined(inner, path)
        return type(wanted).__name__

    def tensors(self, wanted: Iterable[Tensor]) -> list[str]:
        """The names of parameters and buffers; their shapes where they have none."""
        known: dict[int, str] = {}
        for root in sorted(self.roots, key=_size, reverse=True):
            inner = unwrapped(root)
            for path, t in [*inner.named_parameters(), *inner.named_buffers()]:
                known.setdefault(id(t), _joined(inner, path))
        return [known.get(id(t), f"a tensor of shape {list(t.shape)}") for t in wanted]


def listed(names: list[str], most: int = 4) -> str:
    """Names in a sentence."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _size(root: Module) -> int:
    return sum(1 for _ in root.modules())


def _joined(root: Module, path: str) -> str:
    words = [w for w in path.split(".") if w and w not in _BETWEEN]
    return ".".join([type(root).__name__.removeprefix("FSDP") or "FSDP", *words])


__all__ = ["NOWHERE", "Names", "Place", "forward_of", "here", "listed", "unwrapped"]
