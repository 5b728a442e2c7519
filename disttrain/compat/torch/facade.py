"""The parts of torch that ask about hardware and settings: here they answer for a CPU.

``cuda``, ``accelerator``, ``backends``, and what programs set at the top level.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ...errors import DeviceError
from .legacy import cuda_classes, set_default_tensor_type
from .shim import Shim


def _absent(name: str) -> Any:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise DeviceError(
            f"torch.cuda.{name}: this version has no CUDA device (cuda.is_available() is False); "
            "use device='cpu'"
        )

    return missing


class _Nothing:
    """A stream, an event, a context of a device that is absent: every method does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _none


def _none(*args: Any, **kwargs: Any) -> None:
    """For calls that have nothing to do without the device, as in torch."""


def _zero(*args: Any, **kwargs: Any) -> int:
    return 0


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


_NEED_DEVICE = """current_device set_device get_device_name get_device_capability
get_device_properties get_rng_state set_rng_state mem_get_info utilization""".split()
_COUNTERS = """device_count memory_allocated max_memory_allocated memory_reserved
max_memory_reserved""".split()
_NO_EFFECT = """manual_seed manual_seed_all synchronize empty_cache reset_peak_memory_stats
reset_max_memory_allocated ipc_collect init""".split()


def cuda() -> Shim:
    """``torch.cuda`` on a machine without CUDA."""
    return (
        Shim("torch.cuda")
        .give(**{name: _absent(name) for name in _NEED_DEVICE})
        .give(**dict.fromkeys(_COUNTERS, _zero))
        .give(**dict.fromkeys(_NO_EFFECT, _none))
        .give(**cuda_classes())
        .give(
            is_available=_no,
            is_initialized=_no,
            is_bf16_supported=_no,
            get_rng_state_all=list,
            set_rng_state_all=_none,
            Stream=_Nothing,
            Event=_Nothing,
            stream=lambda stream: contextlib.nullcontext(),
            current_stream=lambda device=None: _Nothing(),
            default_stream=lambda device=None: _Nothing(),
            device=lambda device: contextlib.nullcontext(),
        )
    )


def mps() -> Shim:
    """``torch.mps``: another device that is absent."""
    return Shim("torch.mps").give(
        is_available=_no, device_count=_zero, manual_seed=_none, empty_cache=_none,
        synchronize=_none,
    )  # fmt: skip


def accelerator() -> Shim:
    """``torch.accelerator``: there is none."""
    return Shim("torch.accelerator").give(
        is_available=_no,
        device_count=_zero,
        current_accelerator=lambda check_available=False: None,
        current_device_index=_absent("current_device"),
        set_device_index=_absent("set_device"),
        synchronize=_none,
    )


def cpu() -> Shim:
    """``torch.cpu``."""
    return Shim("torch.cpu").give(
        is_available=lambda: True, device_count=lambda: 1, current_device=lambda: "cpu",
        synchronize=_none,
    )  # fmt: skip


def backends() -> dict[str, Shim]:
    """``torch.backends.*``: settings that programs assign to."""
    return {
        "torch.backends": Shim("torch.backends"),
        "torch.backends.cuda": Shim("torch.backends.cuda").give(is_built=_no),
        "torch.backends.cuda.matmul": Shim("torch.backends.cuda.matmul").give(
            allow_tf32=False, allow_fp16_reduced_precision_reduction=False
        ),
        "torch.backends.cudnn": Shim("torch.backends.cudnn").give(
            benchmark=False, deterministic=False, enabled=False, allow_tf32=False,
            is_available=_no, version=lambda: None,
        ),
        "torch.backends.mps": Shim("torch.backends.mps").give(is_available=_no, is_built=_no),
        "torch.backends.mkl": Shim("torch.backends.mkl").give(is_available=_no),
        "torch.backends.mkldnn": Shim("torch.backends.mkldnn").give(
            is_available=_no, enabled=False
        ),
        "torch.backends.openmp": Shim("torch.backends.openmp").give(is_available=_no),
    }  # fmt: skip


def _num_threads() -> int:
    """Of the matrix products: what the environment allows."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def settings() -> dict[str, Any]:
    """Functions of the top level that set or tell what has one answer here."""
    return {
        "set_num_threads": _none,
        "get_num_threads": _num_threads,
        "set_num_interop_threads": _none,
        "get_num_interop_threads": lambda: 1,
        "set_float32_matmul_precision": _none,
        "get_float32_matmul_precision": lambda: "highest",
        "use_deterministic_algorithms": _none,
        "are_deterministic_algorithms_enabled": lambda: True,
        "set_flush_denormal": _no,
        "set_default_tensor_type": set_default_tensor_type,
        "strided": "strided",
        "sparse_coo": "sparse_coo",
        "contiguous_format": "contiguous_format",
        "channels_last": "channels_last",
        "preserve_format": "preserve_format",
        "memory_format": str,
        "layout": str,
    }


def compiler(compile: Any) -> Shim:
    """``torch.compiler``: what programs ask of the compiler, and tell it about their functions.

    A program that is captured runs as it is, so it is never "compiling", and there is nothing that
    a function would have to be kept from.
    """

    def as_it_is(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
        return (lambda f: f) if fn is None else fn

    return Shim("torch.compiler").give(
        compile=compile,
        is_compiling=lambda: False,
        is_dynamo_compiling=lambda: False,
        is_exporting=lambda: False,
        disable=as_it_is,
        allow_in_graph=as_it_is,
        assume_constant_result=as_it_is,
        cudagraph_mark_step_begin=_none,
        reset=_none,
    )
