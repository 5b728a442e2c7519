"""``jax.config`` and the blocks that set what it holds; what ``jax`` has of devices' memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...distributed.spmd import simulate
from ...func.trees.options import Block, Options
from ...func.trees.programs import DISABLED
from ...keyed import keys
from . import sharding, tree
from .array import Array
from .flat import as_array
from .jaxpr import ShapedArray
from .types import X64

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


config = Options(
    "compat.jax.config", OPTIONS,
    {"jax_enable_x64": X64, "jax_disable_jit": DISABLED, "jax_threefry_partitionable": keys.SLOT},
    {"jax_num_cpu_devices": simulate},
)  # fmt: skip


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


_BLOCKS = """
enable_x64 disable_jit numpy_dtype_promotion debug_nans numpy_rank_promotion debug_infs log_compiles
default_matmul_precision default_device transfer_guard default_prng_impl threefry_partitionable
enable_custom_prng legacy_prng_key debug_key_reuse enable_checks explain_cache_misses no_tracing
softmax_custom_jvp check_tracer_leaks
"""
NAMES: dict[str, Any] = {  # flags are set by blocks without a value
    name: Block(config, f"jax_{name}", isinstance(OPTIONS[f"jax_{name}"], bool) or None)
    for name in _BLOCKS.split()
}
NAMES["checking_leaks"] = NAMES["check_tracer_leaks"]
NAMES |= {
    f.__name__: f
    for f in (device_put, device_get, block_until_ready, named_scope, named_call, typeof)
}
NAMES["config"] = config
