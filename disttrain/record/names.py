"""What things are called in a recording: modules by their place in the tree, parameters, lines.

Wrappers (DDP, FSDP, checkpoints) are left out of paths, so that a module has the same one with and
without them.
"""

from __future__ import annotations

import os
import sys
import weakref
from types import CodeType
from typing import Any

from ..core import Tensor
from ..nn import Module

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
_BETWEEN = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


class Names:
    """Paths of modules and names of parameters and buffers, as they were met first."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref, str]] = {}
        self._tensors: dict[int, tuple[weakref.ref, str]] = {}
        self._trees: weakref.WeakKeyDictionary[Module, list] = weakref.WeakKeyDictionary()

    def path(self, module: Module, root: Module) -> str:
        """The path of ``module``, which runs in ``root``: "GPT.blocks.0.norm"."""
        found = _kept(self._modules, module)
        if found is None:
            self.learn(root)
            found = _kept(self._modules, module)
        if found is None:  # not of the tree
            self.learn(module)
            found = _kept(self._modules, module)
        return found or type(module).__name__

    def of(self, t: Any, otherwise: str) -> str:
        """The name of a parameter or buffer."""
        return _kept(self._tensors, t) or otherwise

    def buffers(self, root: Module) -> list[tuple[str, Tensor]]:
        """The buffers in ``root`` as they are now."""
        known = self._trees.get(root)
        if known is None:
            known = self._trees[root] = [*root.named_modules()]
        stores = [(path, m.__dict__["_buffers"]) for path, m in known]
        return [
            (f"{path}.{name}", b) for path, store in stores for name, b in store.items()
            if b is not None
        ]  # fmt: skip

    def learn(self, root: Module) -> None:
        """Name what is in ``root``, where it has no name yet."""
        inner = root
        while type(inner).__name__ in WRAPPERS and isinstance(inner.__dict__["_modules"].get(
            "module", inner.__dict__["_modules"].get("_fsdp_wrapped_module")), Module):  # fmt: skip
            _keep(self._modules, inner, type(inner).__name__)
            children = inner.__dict__["_modules"]
            inner = children.get("module", children.get("_fsdp_wrapped_module"))
        top = _kept(self._modules, inner) or kind_of(inner)
        for path, module in inner.named_modules():
            _keep(self._modules, module, _joined(top, path))
        for path, p in inner.named_parameters():
            _keep(self._tensors, p, _joined(top, path))
        for path, b in inner.named_buffers():
            _keep(self._tensors, b, _joined(top, path), again=True)


def kind_of(module: Module) -> str:
    """The name of a module's class, without what sharding it has added."""
    name = type(module).__name__
    return name.removeprefix("FSDP") or name


def is_sharded(module: Module) -> bool:
    """Was ``module`` given to ``fully_shard``?"""
    return type(module).__name__.startswith("FSDP")


def _joined(top: str, path: str) -> str:
    words = [w for w in path.split(".") if w and w not in _BETWEEN]
    return ".".join([top, *words])


def _kept(found: dict[int, tuple[weakref.ref, str]], value: Any) -> str | None:
    entry = found.get(id(value))
    return entry[1] if entry is not None and entry[0]() is value else None


def _keep(
    found: dict[int, tuple[weakref.ref, str]], value: Module | Tensor, name: str,
    again: bool = False,
) -> None:  # fmt: skip
    if again or _kept(found, value) is None:
        found[id(value)] = (weakref.ref(value), name)


class Sites:
    """The lines of the program, by number."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._known: dict[tuple[int, int], tuple[int, CodeType]] = {}

    def here(self) -> int:
        """The number of the line of the program that has called this package."""
        frame = sys._getframe(2)
        while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
            frame = frame.f_back
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        known = self._known.get(key)
        if known is None:
            text = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
            known = self._known[key] = (self._text(text), code)  # its id stays its own
        return known[0]
