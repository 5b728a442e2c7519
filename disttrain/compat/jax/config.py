"""``jax.config`` and the blocks that set what it holds; what ``jax`` has of devices' memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...context import thread
from ...distributed.spmd import simulate
from ...func.trees.programs import DISABLED
from ...keyed import keys
from . import sharding, tree
from .array import Array
from .flat import as_array
from .jaxpr import ShapedArray
from .types import X64

_VALUES = "compat.jax.config"  # the rank's slot: what programs have set
_SLOTS = {"jax_enable_x64": X64, "jax_disable_jit": DISABLED,
          "jax_threefry_partitionable": keys.SLOT}  # options that others read  # fmt: skip
OPTIONS: dict[str, Any] = {
    "jax_enable_x64": False, "jax_disable_jit": False, "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow", "jax_default_matmul_precision": None,
    "jax_debug_nans": False, "jax_debug_infs": False, "jax_log_compiles": False,
    "jax_check_tracer_leaks": False, "jax_default_device": None, "jax_transfer_guard": None,
    "jax_default_prng_impl": "threefry2x32", "jax_threefry_partitionable": True,
    "jax_enable_custom_prng": False, "jax_legacy_prng_key": "allow", "jax_platforms": "cpu",
    "jax_platform_name": "", "jax_traceback_filtering": "auto", "jax_compilation_cache_dir": None,
    "jax_num_cpu_devices": -1, "jax_debug_key_reuse": False, "jax_enable_checks": False,
    "jax_explain_cache_misses": False, "jax_softmax_custom_jvp": True, "jax_no_tracing": False,
}  # fmt: skip


class Config:
    """``jax.config``: options by name, as attributes, and ``update``."""

    @property
    def values(self) -> dict[str, Any]:
        """All options as they are."""
        return {name: self.read(name) for name in OPTIONS}

    def read(self, name: str) -> Any:
        """An option as it is."""
        if name not in OPTIONS:
            raise AttributeError(f"Unrecognized config option: {name}")
        slots = thread.rank.slots
        if name in _SLOTS:
            return bool(slots.get(_SLOTS[name], OPTIONS[name]))
        return slots.get(_VALUES, {}).get(name, OPTIONS[name])

    def update(self, name: str, value: Any) -> None:
        """Set an option."""
        if name not in OPTIONS:
            raise AttributeError(f"Unrecognized config option: {name}")
        slots = thread.rank.slots
        if name == "jax_num_cpu_devices":
            simulate(value)
        if name in _SLOTS:
            slots[_SLOTS[name]] = bool(value)
        else:
            slots.setdefault(_VALUES, {})[name] = value

    def __getattr__(self, name: str) -> Any:
        return self.read(name)

    def parse_flags_with_absl(self) -> None:
        """Flags of the command line are the launcher's."""


config = Config()


class Block:
    """``with jax.NAME(value):`` an option as it is to be inside."""

    def __init__(self, name: str, default: Any = None) -> None:
        self.name, self.default = name, default

    @property
    def value(self) -> Any:
        """The option as it is."""
        return config.read(self.name)

    @contextmanager
    def __call__(self, value: Any = None) -> Iterator[None]:
        before = config.read(self.name)
        config.update(self.name, self.default if value is None else value)
        try:
            yield
        finally:
            config.update(self.name, before)


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: Any = None) -> Any:  # fmt: skip
    """A tree of arrays, of what may become such, where ``device`` (a sharding, or a tree of them,
    too) says."""
    arrays = tree.tree_map(as_array, x)
    return arrays if device is None else sharding.laid(arrays, device, "device_put device")


def device_get(x: Any) -> Any:
    """A tree of numpy's arrays."""
    return tree.tree_map(lambda v: np.asarray(v) if isinstance(v, Array) else v, x)


def block_until_ready(x: Any) -> Any:
    """``x``, whose arrays are computed: they always are."""
    return x


@contextmanager
def _unchanged() -> Iterator[None]:
    yield


def named_scope(name: str) -> Any:
    """A block that profilers see by its name."""
    if not isinstance(name, str):
        raise TypeError("named_scope name argument must be a string.")
    return _unchanged()


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """``fun``, which profilers see by its name."""
    return fun


def typeof(x: Any) -> Any:
    """Shape and type of an array."""
    from_array = as_array(x)
    return ShapedArray(from_array.shape, from_array.dtype, from_array.weak_type)


_BLOCKS = {
    "enable_x64": True, "disable_jit": True, "numpy_dtype_promotion": None, "debug_nans": True,
    "numpy_rank_promotion": None, "default_matmul_precision": None, "debug_infs": True,
    "log_compiles": True, "default_device": None, "transfer_guard": None,
    "default_prng_impl": None, "threefry_partitionable": True, "enable_custom_prng": True,
    "legacy_prng_key": None, "debug_key_reuse": True, "enable_checks": True,
    "explain_cache_misses": True, "softmax_custom_jvp": True, "no_tracing": True,
}  # fmt: skip
NAMES: dict[str, Any] = {name: Block(f"jax_{name}", default) for name, default in _BLOCKS.items()}
NAMES["check_tracer_leaks"] = Block("jax_check_tracer_leaks", True)
NAMES["checking_leaks"] = NAMES["check_tracer_leaks"]
NAMES |= {
    f.__name__: f
    for f in (device_put, device_get, block_until_ready, named_scope, named_call, typeof)
}
NAMES["config"] = config
