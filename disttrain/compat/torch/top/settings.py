"""Constants, switches of autocast, and questions of the top level whose answer is the same here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ....amp import autocast_mode as amp
from ....context import current, thread
from ....core.types.casting import casting
from ....core.types.memory_format import contiguous_format
from ....errors import ConfigError

_ALWAYS = "compat.torch.warn_always"  # the rank's slots
_NEVER = ("ipu", "xla")  # kinds of devices that are never there


class FatalError(Exception):
    """An error of PyTorch's own; never raised here."""


class JITException(RuntimeError):
    """An error of a script; never raised here: scripts are the programs themselves."""


class AggregationType:
    """How several results become one (of TorchScript)."""

    SUM, AVG = 0, 1


class _ClassProperty:
    def __init__(self, fget: Callable) -> None:
        self.fget = fget

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self.fget(owner)


def classproperty(func: Callable) -> Any:
    """A property of a class."""
    return _ClassProperty(func)


def get_file_path(*path_components: str) -> str:
    """A path in the package."""
    return os.path.join(os.path.dirname(dt.__file__ or ""), *path_components)


def set_warn_always(b: bool) -> None:
    """Whether warnings are given each time (else once for each place)."""
    current().slots[_ALWAYS] = bool(b)
    if b:
        warnings.filterwarnings("always", module=r"disttrain(\.|$)")


def is_warn_always_enabled() -> bool:
    """What was set."""
    return current().slots.get(_ALWAYS, False)


def thread_safe_generator() -> Any:
    """The random numbers of a DataLoader's thread; None elsewhere, and here, where workers are
    processes with streams of their own."""
    return None


# --- autocast ---------------------------------------------------------------------------------
def _set_enabled(kind: str, enabled: bool) -> None:
    """From here on, without a block."""
    if not enabled:
        found = thread.autocast
        if found is not None and found.kind == kind:
            casting(None).__enter__()
    else:
        amp.autocast(kind).__enter__()


def set_autocast_enabled(*args: Any) -> None:
    """``(device_type, enabled)``, or ``(enabled)`` of CUDA."""
    kind, enabled = args if len(args) == 2 else ("cuda", *args)
    _set_enabled(kind, bool(enabled))


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Of the CPU."""
    _set_enabled("cpu", bool(enabled))


def _depth(step: int) -> Callable[[], int]:
    def change() -> int:
        slots = current().slots
        slots["compat.torch.autocast_depth"] = slots.get("compat.torch.autocast_depth", 0) + step
        return slots["compat.torch.autocast_depth"]

    return change


def _absent(kind: str) -> dict[str, Any]:
    def refuse(*args: object) -> None:
        raise ConfigError(f"autocast: there are no {kind} devices here")

    return {
        f"get_autocast_{kind}_dtype": lambda: dt.bfloat16,
        f"is_autocast_{kind}_enabled": lambda: False,
        f"set_autocast_{kind}_dtype": refuse,
        f"set_autocast_{kind}_enabled": refuse,
    }


# --- fork and wait ----------------------------------------------------------------------------
def fork(func: Callable, *args: Any, **kwargs: Any) -> dt.futures.Future:
    """``func(*args, **kwargs)``, at once; as a future."""
    future: dt.futures.Future = dt.futures.Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """Its result."""
    return future.wait()


def _nothing(*args: object, **kwargs: object) -> None:
    """There is nothing to do here."""


def names() -> dict[str, Any]:
    """What ``torch`` gets from here."""
    functions = (
        FatalError, JITException, classproperty, get_file_path, set_warn_always,
        is_warn_always_enabled, thread_safe_generator, set_autocast_enabled,
        set_autocast_cpu_enabled, amp.is_autocast_cache_enabled, amp.set_autocast_cache_enabled,
        amp.clear_autocast_cache, fork, wait,
    )  # fmt: skip
    found: dict[str, Any] = {f.__name__: f for f in functions}
    for kind in _NEVER:
        found |= _absent(kind)
    return {
        **found, "AVG": AggregationType.AVG, "SUM": AggregationType.SUM, "TYPE_CHECKING": False,
        "PRIVATE_OPS": ("unique_dim",), "USE_GLOBAL_DEPS": True,
        "USE_RTLD_GLOBAL_WITH_LIBTORCH": False, "has_mkl": False, "has_openmp": False,
        "compiled_with_cxx11_abi": lambda: True, "is_vulkan_available": lambda: False,
        "legacy_contiguous_format": contiguous_format, "init_num_threads": _nothing,
        "prepare_multiprocessing_environment": _nothing,
        "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12": lambda: True,
        "autocast_increment_nesting": _depth(1), "autocast_decrement_nesting": _depth(-1),
        "sym_fresh_size": lambda expr: expr, "sym_constrain_range": _nothing,
        "sym_constrain_range_for_size": _nothing, "while_loop": dt.func.while_loop,
    }  # fmt: skip
