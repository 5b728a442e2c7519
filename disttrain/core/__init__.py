"""Tensor, the gate, the graph and the engine. Knows no operation by name (see ``ops``)."""

from . import copies, sharing
from .algebra import Algebra
from .backward.autograd import backward, grad
from .backward.checkpoint import checkpoint, checkpoint_sequential
from .backward.engine import Walk
from .backward.function import Function
from .backward.sink import accumulate, store_grad
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
from .tensor import Size, Storage, Tensor, wrap
from .types import dtypes
from .types.device import device

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
