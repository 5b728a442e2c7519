"""Hooks that reduce DDP's gradients, by PyTorch's names.

A hook is ``hook(state, bucket) -> Future[Tensor]``; ``ddp.register_comm_hook(state, hook)``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ....nn.module import Module
from . import (
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)


class _Kind:
    """How a hook is registered on a model; ``state`` is a process group (None: the default)."""

    def __init__(self, hook: Callable, power_rank: int = 0) -> None:
        self.hook, self.power_rank = hook, power_rank

    def __call__(self, model: Module, state: Any = None, **settings: Any) -> None:
        if self.power_rank:
            state = powerSGD_hook.PowerSGDState(
                state, **{"matrix_approximation_rank": self.power_rank, **settings}
            )
        model.register_comm_hook(state, self.hook)


class DDPCommHookType(Enum):
    """The hooks by name: ``DDPCommHookType.FP16_COMPRESS.value(model=model, state=group)``."""

    ALLREDUCE = _Kind(default_hooks.allreduce_hook)
    FP16_COMPRESS = _Kind(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = _Kind(default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _Kind(quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = _Kind(quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = _Kind(powerSGD_hook.powerSGD_hook, 1)
    POWER_SGD_RANK2 = _Kind(powerSGD_hook.powerSGD_hook, 2)
    BATCHED_POWER_SGD = _Kind(powerSGD_hook.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = _Kind(powerSGD_hook.batched_powerSGD_hook, 2)
    NOOP = _Kind(debugging_hooks.noop_hook)


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType, model: Module, state: object = None
) -> None:
    """Register a hook by its type on a DDP model."""
    comm_hook_type.value(model=model, state=state)


__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]
