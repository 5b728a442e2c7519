"""The parts of torch that ask about hardware and settings: here they answer for a CPU.

``cuda``, ``accelerator``, ``backends``, ``version`` and what programs assign to without effect.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ...core.device import device
from ...core.random import manual_seed
from ...errors import DeviceError
from .shim import Shim


def _absent(what: str) -> Any:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise DeviceError(f"{what}: this version of disttrain has no CUDA device; use device='cpu'")

    return missing


class _Nothing:
    """A stream, an event, a context: does nothing, in every way that programs use it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def cuda() -> Shim:
    """``torch.cuda`` on a machine without CUDA."""
    zero = lambda *args, **kwargs: 0  # noqa: E731
    none = lambda *args, **kwargs: None  # noqa: E731
    return Shim("torch.cuda").give(
        is_available=lambda: False,
        is_initialized=lambda: False,
        is_bf16_supported=lambda *a, **k: False,
        device_count=lambda: 0,
        current_device=_absent("cuda.current_device"),
        set_device=_absent("cuda.set_device"),
        get_device_name=_absent("cuda.get_device_name"),
        get_device_capability=_absent("cuda.get_device_capability"),
        get_device_properties=_absent("cuda.get_device_properties"),
        manual_seed=manual_seed_quietly,
        manual_seed_all=manual_seed_quietly,
        synchronize=none,
        empty_cache=none,
        reset_peak_memory_stats=none,
        memory_allocated=zero,
        max_memory_allocated=zero,
        memory_reserved=zero,
        max_memory_reserved=zero,
        get_rng_state_all=list,
        Stream=_Nothing,
        Event=_Nothing,
        stream=lambda s: contextlib.nullcontext(),
        current_stream=lambda *a: _Nothing(),
        device=lambda *a: contextlib.nullcontext(),
    )


def manual_seed_quietly(seed: int) -> None:
    """Seeding a device that is absent does nothing, as in torch."""


def accelerator() -> Shim:
    return Shim("torch.accelerator").give(
        is_available=lambda: False,
        device_count=lambda: 0,
        current_accelerator=lambda check_available=False: None,
        current_device_index=lambda: 0,
        set_device_index=lambda i: None,
        synchronize=lambda *a: None,
    )


def backends() -> dict[str, Shim]:
    """``torch.backends.*``: settings that programs assign to."""
    no = lambda: False  # noqa: E731
    names = {
        "torch.backends": Shim("torch.backends"),
        "torch.backends.cuda": Shim("torch.backends.cuda"),
        "torch.backends.cuda.matmul": Shim("torch.backends.cuda.matmul").give(allow_tf32=False),
        "torch.backends.cudnn": Shim("torch.backends.cudnn").give(
            benchmark=False, deterministic=False, enabled=False, allow_tf32=False,
            is_available=no, version=lambda: None,
        ),
        "torch.backends.mps": Shim("torch.backends.mps").give(is_available=no, is_built=no),
        "torch.backends.mkl": Shim("torch.backends.mkl").give(is_available=no),
        "torch.backends.mkldnn": Shim("torch.backends.mkldnn").give(is_available=no, enabled=False),
        "torch.backends.openmp": Shim("torch.backends.openmp").give(is_available=no),
    }  # fmt: skip
    return names


def settings() -> dict[str, Any]:
    """Functions of the top level that set or tell what has one answer here."""
    return {
        "set_num_threads": lambda n: None,
        "get_num_threads": lambda: int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "set_num_interop_threads": lambda n: None,
        "get_num_interop_threads": lambda: 1,
        "set_float32_matmul_precision": lambda precision: None,
        "get_float32_matmul_precision": lambda: "highest",
        "use_deterministic_algorithms": lambda mode, warn_only=False: None,
        "are_deterministic_algorithms_enabled": lambda: True,
        "set_flush_denormal": lambda mode: False,
        "set_default_tensor_type": lambda kind: None,
        "get_device_module": lambda *a: cuda(),
        "strided": "strided",
        "sparse_coo": "sparse_coo",
        "contiguous_format": "contiguous_format",
        "channels_last": "channels_last",
        "preserve_format": "preserve_format",
        "cpu_device": device("cpu"),
    }


__all__ = ["accelerator", "backends", "cuda", "manual_seed", "settings"]
