"""Names of a model's state as if nothing were wrapped: by DDP, FSDP, or for activations.

Knows modules by their wrappers' attributes; no values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....nn.module import Module
from ...ddp import DistributedDataParallel
from ...fsdp.names import clean_tensor_name


class Names:
    """The names of ``model``'s state: as its ``state_dict`` has them, and clean."""

    def __init__(self, model: Module) -> None:
        self._steps = [
            f"{clean_tensor_name(path)}." if path else ""
            for path, m in model.named_modules()
            if isinstance(m, DistributedDataParallel)
        ]

    def clean(self, name: str) -> str:
        """A name of the model's ``state_dict`` without the wrappers' steps."""
        name = clean_tensor_name(name)
        for step in self._steps:
            if name.startswith(f"{step}module."):
                return step + name[len(step) + len("module.") :]
        return name

    def raw(self, name: str) -> str:
        """The name that the model's ``state_dict`` has for a clean one."""
        for step in self._steps:
            if name.startswith(step):
                return f"{step}module.{name[len(step) :]}"
        return name


def prefixes(model: Module, submodules: Iterable[Any] | None) -> tuple[str, ...]:
    """The clean names of ``submodules`` in ``model``, each with a dot."""
    if submodules is None:
        return ()
    wanted = set(submodules)
    names = Names(model)
    return tuple(f"{names.clean(path)}." for path, m in model.named_modules() if m in wanted)
