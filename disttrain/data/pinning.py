"""Batches in page-locked memory, which an accelerator reads by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backends.device.platform import offered, present
from ..core import Tensor
from .collate import like


def pinning(wanted: bool, device: str) -> Callable[[Any], Any] | None:
    """What brings a batch there; None where it is not wanted, or there is no accelerator."""
    kind = device.partition(":")[0]
    kinds = (kind,) if kind else offered()
    if not wanted or not any(present(k)[0] for k in kinds):
        return None
    return lambda data: pinned(data, device or None)


def pinned(data: object, device: str | None) -> Any:
    """``data`` with its Tensors there; containers keep their kind, and what has a ``pin_memory``
    of its own is asked."""
    if isinstance(data, Tensor):
        plain = data.device.type == "cpu" and not data.is_sparse
        return data.pin_memory(device) if plain else data
    if isinstance(data, (str, bytes)):
        return data
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return like(data, {k: pinned(v, device) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pinned(v, device) for v in data))
    if isinstance(data, Sequence):
        return like(data, [pinned(v, device) for v in data])
    return data
