"""``dt.autograd``: gradients asked for directly, custom functions, and checks of gradients."""

from ..core.backward.autograd import backward
from ..core.backward.checkpoint import checkpoint, checkpoint_sequential
from ..core.backward.function import Function, once_differentiable
from ..core.backward.selective import CheckpointPolicy, create_selective_checkpoint_contexts
from ..core.grad_mode import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_multithreading_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
    set_multithreading_enabled,
)
from ..core.tensor import Tensor
from . import forward_ad, functional, graph
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .gradients import grad
from .tape import GradientTape


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:  # noqa: N802
    """Old programs' name for a tensor; returns one over the same memory."""
    out = data.detach()
    return out.requires_grad_() if requires_grad or data.requires_grad else out


__all__ = [
    "Function",
    "GradcheckError",
    "GradientTape",
    "Variable",
    "backward",
    "CheckpointPolicy",
    "checkpoint",
    "create_selective_checkpoint_contexts",
    "checkpoint_sequential",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
