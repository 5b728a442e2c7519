"""``torch.accelerator``: the questions of ``torch.cuda`` without the name. It is CUDA."""

from __future__ import annotations

from ..core.types.device import device as Device
from . import devices, memory, streams
from .which import device_count, is_available

current_device_index = current_device_idx = devices.current_device
set_device_index = set_device_idx = devices.set_device
synchronize, current_stream, set_stream = (
    devices.synchronize, streams.current_stream, streams.set_stream,
)  # fmt: skip
empty_cache, memory_stats, get_memory_info = (
    memory.empty_cache, memory.memory_stats, memory.mem_get_info,
)  # fmt: skip
memory_allocated, memory_reserved = memory.memory_allocated, memory.memory_reserved
max_memory_allocated = memory.max_memory_allocated
max_memory_reserved = memory.max_memory_reserved
reset_peak_memory_stats = memory.reset_peak_memory_stats


class device_index(devices.device):  # noqa: N801  (the field's spelling)
    """Inside the block the device of this number is the thread's (None: no change)."""


def current_accelerator(check_available: bool = False) -> Device | None:
    """``device("cuda")`` where there is one, else None."""
    return Device("cuda") if is_available() else None


__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream",
    "device_count", "device_index", "empty_cache", "get_memory_info", "is_available",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
    "memory_stats", "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream",
    "synchronize",
]  # fmt: skip
