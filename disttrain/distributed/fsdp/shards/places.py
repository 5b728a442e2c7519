"""Where the parameters of a unit lie and are computed with, from what they are and what was asked.

Knows memory and devices; no unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....backends.device.memory import HOST, DeviceMemory, Memory, common
from ....backends.device.platform import present
from ....comm.group.group import ProcessGroup
from ....core.types.device import located, usable
from .precision import CPUOffloadPolicy


@dataclass(frozen=True)
class Places:
    """``use``: of full weights and reductions; ``home``: of shards, gradients, optimizer states.
    ``pinned``: whether the host's memory is locked, so that copies need no wait."""

    use: Memory
    home: Memory
    pinned: bool = False

    @property
    def apart(self) -> bool:
        """Whether shards are brought to where they are used."""
        return self.use != self.home

    def shards(self, numel: int, kind: object) -> Any:
        """Zeros at home."""
        if self.apart and self.pinned:
            flat = self.use.pinned(numel, kind)
            flat.fill(0)
            return flat
        return self.home.zeros(numel, kind)


def device_type_of(modules: Sequence[Any], group: ProcessGroup) -> str:
    """The kind of device that a mesh for ``modules`` is of, where the program gives none: that of
    their parameters; for those on the host, the one whose arrays ``group`` was made for."""
    for m in modules:
        for p in m.parameters():
            if p.device.type not in ("cpu", "meta"):
                return p.device.type
    wanted = "nccl" in group.backend and present("cuda")[0]
    return "cuda" if wanted else "cpu"


def places_of(arrays: Sequence[Any], device_type: str, offload: object = None) -> Places:
    """For parameters that are ``arrays``, on a mesh of ``device_type``: those on the host, or
    without memory yet, go to the mesh's device."""
    use = common(arrays)
    if use.on_host and device_type not in ("cpu", "meta"):
        there: Any = located(usable(device_type))
        use = DeviceMemory(there.platform, there.index)
    if isinstance(offload, CPUOffloadPolicy) and not use.on_host:
        return Places(use, HOST, offload.pin_memory)
    return Places(use, use)
