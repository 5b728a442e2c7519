"""Tensor, the gate, the graph and the engine. Knows no operation by name (see ``ops``)."""

from . import copies, dtypes, sharing
from .algebra import Algebra
from .autograd import backward, grad
from .checkpoint import checkpoint, checkpoint_sequential
from .device import device
from .engine import Walk
from .function import Function
from .gate import Primitive, Tracer, gate
from .grad_mode import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)
from .hooks import HookHandle
from .node import AccumulateGrad, Node
from .sink import accumulate, store_grad
from .tensor import Size, Storage, Tensor, wrap

__all__ = [
    "AccumulateGrad",
    "Algebra",
    "Function",
    "HookHandle",
    "Node",
    "Primitive",
    "Size",
    "Storage",
    "Tensor",
    "Tracer",
    "Walk",
    "accumulate",
    "backward",
    "checkpoint",
    "checkpoint_sequential",
    "detect_anomaly",
    "device",
    "dtypes",
    "enable_grad",
    "gate",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "sharing",
    "store_grad",
    "wrap",
]
