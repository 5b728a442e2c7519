"""disttrain: distributed training around its own autograd core, with PyTorch's names.

    import disttrain as dt

Everything a training script names is here: tensors and functions, ``dt.nn``, ``dt.optim``,
``dt.data``, ``dt.distributed``, ``dt.func``, ``dt.compile``. Tensors and the functions on them are
imported here; a package is loaded when it is first asked for.
"""

import importlib
from typing import Any

from . import context, core, settings
from .backends.device.precision import matmul_precision as get_float32_matmul_precision
from .backends.device.precision import set_matmul_precision as set_float32_matmul_precision
from .core import (
    Size,
    Tensor,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .core.random import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from .core.types.device import device, get_default_device, set_default_device
from .core.types.dtypes import (
    bfloat16,
    bool,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .core.types.layout import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from .core.types.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from .ops.api import *
from .ops.functions.random import dropout
from .ops.methods import LATER
from .ops.printing import set_printoptions

__version__ = "0.1.0"

_PACKAGES = ("amp", "autograd", "compile", "cuda", "data", "distributed", "distributions",
             "export", "fft", "func", "futures", "keyed", "linalg", "metrics", "nn", "onnx",
             "optim", "profiler", "quantize", "quasirandom", "record", "sanitize", "serialize",
             "signal", "sparse", "special")  # fmt: skip
_ELSEWHERE = {"GradientTape": ".autograd", "autocast": ".amp", "draw": ".drawing",
              "Dim": ".export", "jit": ".compile", "launch": "disttrain_launcher",
              "load": ".serialize", "load_program": ".export", "save": ".serialize"}  # fmt: skip
_ELSEWHERE |= dict.fromkeys(LATER, ".ops.later")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _ELSEWHERE:
        found = getattr(importlib.import_module(_ELSEWHERE[name], __name__), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), *_PACKAGES, *_ELSEWHERE})


context.provide_packages(__getattr__)
if settings.SANITIZE.text() not in ("", "0"):  # a program that no launcher has started
    __getattr__("sanitize").begin()
