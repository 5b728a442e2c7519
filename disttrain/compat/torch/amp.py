"""``torch.amp``, ``torch.cuda.amp`` and the functions of the top level about mixed precision."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...amp import autocast_mode as own
from ..publish import Shim


class _Fixed(own.autocast):
    """``autocast`` of one kind of device."""

    kind = "cuda"

    def __init__(
        self, enabled: bool = True, dtype: object = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__(self.kind, dtype, enabled, cache_enabled)


class _OnCpu(_Fixed):
    kind = "cpu"


class _Scaler(dt.amp.GradScaler):
    """``torch.cuda.amp.GradScaler``: the device is no argument."""

    kind = "cuda"

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            self.kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )

    def _name(self) -> str:
        return "GradScaler"


class _CpuScaler(_Scaler):
    kind = "cpu"


def settings() -> dict[str, Any]:
    """What the top level of the package says about autocast."""
    return {
        "autocast": own.autocast,
        "is_autocast_enabled": own.is_autocast_enabled,
        "is_autocast_cpu_enabled": lambda: own.is_autocast_enabled("cpu"),
        "get_autocast_cpu_dtype": lambda: own.get_autocast_dtype("cpu"),
        "set_autocast_cpu_dtype": lambda dtype: own.set_autocast_dtype("cpu", dtype),
        "is_autocast_available": own.is_autocast_available,
        "get_autocast_dtype": own.get_autocast_dtype,
        "set_autocast_dtype": own.set_autocast_dtype,
        "get_autocast_gpu_dtype": lambda: own.get_autocast_dtype("cuda"),
        "set_autocast_gpu_dtype": lambda dtype: own.set_autocast_dtype("cuda", dtype),
    }


def modules() -> dict[str, Shim]:
    """``torch.amp``, its modules, and ``torch.cuda.amp``."""
    names = {
        "autocast": own.autocast, "GradScaler": dt.amp.GradScaler,
        "custom_fwd": own.custom_fwd, "custom_bwd": own.custom_bwd,
        "is_autocast_available": own.is_autocast_available,
    }  # fmt: skip
    cuda = {**names, "autocast": _Fixed, "GradScaler": _Scaler}
    return {
        "torch.amp": Shim("torch.amp").give(**names),
        "torch.amp.autocast_mode": Shim("torch.amp.autocast_mode").give(**names),
        "torch.amp.grad_scaler": Shim("torch.amp.grad_scaler").give(
            GradScaler=dt.amp.GradScaler, OptState=dt.amp.OptState
        ),
        "torch.cuda.amp": Shim("torch.cuda.amp").give(**cuda),
        "torch.cpu.amp": Shim("torch.cpu.amp").give(autocast=_OnCpu, GradScaler=_CpuScaler),
    }
