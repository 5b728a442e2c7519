"""``torch.distributed.fsdp`` and what is below it; each is filled when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from .shim import Shim

_FSDP = "disttrain.distributed.fsdp"


def _from(*sources: str) -> Callable[[Shim], object]:
    """Fills a module with the public names of project modules."""

    def fill(shim: Shim) -> None:
        for source in sources:
            shim.take(importlib.import_module(source))

    return fill


def fsdp_modules() -> dict[str, Shim]:
    """The modules that FSDP scripts import, by name."""
    fsdp = "torch.distributed.fsdp"
    sources = {
        fsdp: (_FSDP,),
        f"{fsdp}.api": (f"{_FSDP}.settings",),
        f"{fsdp}.wrap": (f"{_FSDP}.wrap",),
        f"{fsdp}.fully_sharded_data_parallel": (f"{_FSDP}.settings", _FSDP),
    }
    return {name: Shim(name).later(_from(*of)) for name, of in sources.items()}
