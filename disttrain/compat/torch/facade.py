"""The parts of torch that ask about hardware and settings.

``cuda``, ``accelerator``, ``backends``, and what programs set at the top level.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

import disttrain as dt

from ...backends import blas, threads
from ...backends.cuda.libraries.cudnn import version as cudnn_version
from ...backends.device import determinism, precision
from ...settings import THREADS
from ..publish import Shim
from .nn.attention import SDPBackend, Switches
from .top.legacy import cuda_classes, set_default_tensor_type


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


def _none(*args: object, **kwargs: object) -> None:
    """For calls that have nothing to do without the device, as in torch."""


def _no(*args: object, **kwargs: object) -> bool:
    return False


class _Cuda(Shim):
    """``torch.cuda``: the names of ``dt.cuda``. Without a device, what programs write around their
    work (streams, events, waiting) does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name in _WITHOUT and not dt.cuda.is_available():
            return _WITHOUT[name]
        if name in dt.cuda.__dict__ and not name.startswith("_"):
            return dt.cuda.__dict__[name]
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for n in vars(dt.cuda) if n[0] != "_")})


_WITHOUT = {
    "Stream": _Nothing,
    "Event": _Nothing,
    "stream": lambda stream: contextlib.nullcontext(),
    "current_stream": lambda device=None: _Nothing(),
    "default_stream": lambda device=None: _Nothing(),
    "_initialized": False,
    "device": lambda device: contextlib.nullcontext(),
    "synchronize": _none,
    "init": _none,
    "set_rng_state_all": _none,
}


def cuda() -> dict[str, Shim]:
    """``torch.cuda`` and its modules."""
    whole = "torch.cuda"
    top = _Cuda(whole).give(**cuda_classes(), has_half=True, has_magma=False)
    return {
        whole: top,
        **{f"{whole}.{name}": _part(f"{whole}.{name}", name) for name in _CUDA_PARTS},
    }


_CUDA_PARTS = ("comm", "graphs", "memory", "nvtx", "random", "streams")


def _part(full: str, name: str) -> Shim:
    """A module of ``dt.cuda``, loaded when it is first asked for a name."""
    return Shim(full).later(lambda shim: shim.take(importlib.import_module(f"{_CUDA}.{name}")))


_CUDA = "disttrain.cuda"


def get_device_module(device: Any = None) -> Any:
    """``torch.cuda``, ``torch.cpu`` ...: the module of a device, or of its kind."""
    if device is None:
        device = "cuda" if dt.cuda.is_available() else "cpu"
    kind = dt.device(device).type
    found = sys.modules.get(f"torch.{kind}")
    if found is None:
        raise RuntimeError(f"Invalid device '{kind}': there is no module torch.{kind}")
    return found


def absent() -> dict[str, Shim]:
    """``torch.mps``, ``torch.xpu`` ...: other devices, which programs look for and do not find."""
    return {
        f"torch.{kind}": Shim(f"torch.{kind}").give(
            is_available=_no, is_initialized=_no, device_count=lambda: 0, manual_seed=_none,
            manual_seed_all=_none, empty_cache=_none, synchronize=_none,
        )
        for kind in ("mps", "mtia", "xpu")
    }  # fmt: skip


def accelerator() -> Shim:
    """``torch.accelerator``."""
    return _part("torch.accelerator", "accelerator")


class Stream:
    """``torch.Stream`` of the CPU: what is put on it is done at once. Of a device that has streams,
    one of that device."""

    def __new__(cls, device: Any = None, *, priority: int = 0) -> Any:
        kind = dt.device("cpu" if device is None else device)
        if kind.type not in ("cpu", "meta"):
            return dt.cuda.Stream(kind, priority)
        return super().__new__(cls)

    device = property(lambda self: dt.device("cpu"))
    device_type, device_index, stream_id = "cpu", -1, 0

    def query(self) -> bool:
        """Whether all is done: it is."""
        return True

    synchronize = wait_event = wait_stream = _none

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return Event() if event is None else event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"


class Event:
    """``torch.Event`` of the CPU: it has happened. Of a device that has events, one of that
    device."""

    def __new__(
        cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:  # fmt: skip
        kind = dt.device("cpu" if device is None else device)
        if kind.type not in ("cpu", "meta"):
            return dt.cuda.Event(enable_timing, blocking, interprocess)
        return super().__new__(cls)

    device = property(lambda self: dt.device("cpu"))
    event_id = 0

    def query(self) -> bool:
        """Whether it has happened: it has."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds until another; nothing is measured."""
        return 0.0

    record = synchronize = wait = _none

    def __repr__(self) -> str:
        return "torch.Event device_type=cpu, device_index=-1, event_flag=0, event_id=0"


def cpu() -> Shim:
    """``torch.cpu``."""
    return Shim("torch.cpu").give(
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 1,
        current_device=lambda: "cpu", synchronize=_none, set_device=_none, Stream=Stream,
        Event=Event, current_stream=lambda device=None: Stream(),
        stream=lambda stream: contextlib.nullcontext(),
        StreamContext=lambda stream: contextlib.nullcontext(),
    )  # fmt: skip


class _Live(Shim):
    """A module whose settings have effects: ``live`` has functions to read and to set each."""

    def __init__(self, name: str, live: dict[str, tuple[Any, Any]]) -> None:
        super().__init__(name)
        self.__dict__["_live"] = live

    def __getattr__(self, name: str) -> Any:
        live = self.__dict__.get("_live", {})
        return live[name][0]() if name in live else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        live = self.__dict__.get("_live", {})
        if name in live:
            live[name][1](value)
        else:
            super().__setattr__(name, value)


def _reduction(kind: str) -> tuple[Any, Any]:
    return (
        lambda: precision.reduced_reduction(kind),
        lambda allowed: precision.set_reduced_reduction(kind, allowed),
    )


_DETERMINISM = (
    "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode",
    "get_deterministic_debug_mode",
)  # fmt: skip


def _cudnn(name: str) -> tuple[Any, Any]:
    return (
        lambda: precision.convolution_setting(name),
        lambda value: precision.set_convolution(name, value),
    )


@contextlib.contextmanager
def _cudnn_flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10,
    deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none",
) -> Any:  # fmt: skip
    """Settings of convolutions inside the block."""
    wanted = {
        "enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
        "deterministic": deterministic,
        "allow_tf32": allow_tf32 if fp32_precision == "none" else fp32_precision == "tf32",
    }  # fmt: skip
    before = {name: precision.convolution_setting(name) for name in wanted}
    for name, value in wanted.items():
        precision.set_convolution(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            precision.set_convolution(name, value)


def _cudnn_shim() -> Shim:
    """``torch.backends.cudnn``: what ``backends/cuda/libraries/dnn.py`` goes by."""
    live = {name: _cudnn(name) for name in precision.CONVOLUTION}
    return _Live("torch.backends.cudnn", live).give(
        is_available=lambda: cudnn_version() is not None, version=cudnn_version, flags=_cudnn_flags
    )


_MATMUL = {
    "allow_tf32": (
        lambda: precision.matmul_precision() != "highest",
        lambda on: precision.set_matmul_precision("high" if on else "highest"),
    ),
    "fp32_precision": (
        lambda: "ieee" if precision.matmul_precision() == "highest" else "tf32",
        lambda word: precision.set_matmul_precision("high" if word == "tf32" else "highest"),
    ),
    "allow_fp16_reduced_precision_reduction": _reduction("float16"),
    "allow_bf16_reduced_precision_reduction": _reduction("bfloat16"),
}


def backends() -> dict[str, Shim]:
    """``torch.backends.*``: settings that programs assign to; and ``torch.nn.attention``."""
    attention = Switches()
    return {
        **attention.modules(),
        "torch.backends": Shim("torch.backends"),
        "torch.backends.cuda": Shim("torch.backends.cuda").give(
            is_built=lambda: dt.cuda.is_available(), sdp_kernel=attention.sdp_kernel,
            SDPBackend=SDPBackend, preferred_linalg_library=_none, **attention.functions(),
        ),
        "torch.backends.cuda.matmul": _Live("torch.backends.cuda.matmul", _MATMUL),
        "torch.backends.cudnn": _cudnn_shim(),
        "torch.backends.mps": Shim("torch.backends.mps").give(is_available=_no, is_built=_no),
        "torch.backends.mkl": Shim("torch.backends.mkl").give(is_available=_no),
        "torch.backends.mkldnn": Shim("torch.backends.mkldnn").give(
            is_available=_no, enabled=False
        ),
        "torch.backends.openmp": Shim("torch.backends.openmp").give(is_available=_no),
    }  # fmt: skip


def _num_threads() -> int:
    """Of the matrix products."""
    return blas.num_threads() or int(THREADS.said() or os.cpu_count() or 1)


def _set_num_threads(count: int) -> None:
    """Of matrix products, convolutions, large elementwise and row kernels, and copies."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(count).__name__}")
    if count < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, but got {count}")
    threads.set_count(count)


def deterministic() -> Shim:
    """``torch.utils.deterministic``."""
    live = determinism.fills_uninitialized_memory, determinism.fill_uninitialized_memory
    return _Live("torch.utils.deterministic", {"fill_uninitialized_memory": live})


def settings() -> dict[str, Any]:
    """Functions of the top level that set or tell what has one answer here."""
    return {
        "set_num_threads": _set_num_threads,
        "get_num_threads": _num_threads,
        "set_num_interop_threads": _none,
        "get_num_interop_threads": lambda: 1,
        "get_device_module": get_device_module,
        **{name: getattr(determinism, name) for name in _DETERMINISM},
        "set_flush_denormal": _no,
        "set_default_tensor_type": set_default_tensor_type,
    }
