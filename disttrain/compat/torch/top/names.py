"""All that ``torch`` gets from this folder, and what ``torch.Tensor`` gets with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....errors import DeviceError
from ....nn import functional as F
from . import kinds, native, settings, storages


def _absent(kind: str) -> Callable[..., Any]:
    def move(self: Tensor, *args: object, **kwargs: object) -> Any:
        raise DeviceError(f"{kind}: there are no {kind} devices here")

    move.__doc__ = f"To a device of kind {kind}: there is none."
    return move


_METHODS: dict[str, Any] = {
    "hardshrink": F.hardshrink, "prelu": F.prelu, "hash_tensor": native.hash_tensor,
    "storage_type": storages.storage_type, "dequantize": native.dequantize,
    "is_distributed": lambda self: False,
    **{kind: _absent(kind) for kind in ("ipu", "mtia", "xpu")},
    **{f"is_{kind}": False for kind in "ipu maia mps mtia vulkan xla xpu".split()},
}  # fmt: skip


def attach() -> None:
    """Give tensors the methods that are functions of layers here, or of PyTorch alone."""
    for name, method in _METHODS.items():
        setattr(Tensor, name, method)


def names() -> dict[str, Any]:
    """By name."""
    return {**kinds.names(), **native.names(), **settings.names(), **storages.names()}
