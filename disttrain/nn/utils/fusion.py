"""Batch normalisation with fixed statistics taken into the layer before it, for evaluation."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from ... import ops
from ...core import no_grad
from ...errors import DeviceError, DTypeError
from ..module import Module
from ..parameter import Parameter


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of ``conv`` that computes bn(conv(x)); both must be in evaluation mode.
    ``transpose``: a transposed convolution."""
    _check(conv, bn)
    out = copy.deepcopy(conv)
    out.weight, out.bias = fuse_conv_bn_weights(
        out.weight, out.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return out


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of ``linear`` that computes bn(linear(x)); both must be in evaluation mode."""
    _check(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    out = copy.deepcopy(linear)
    out.weight, out.bias = fuse_linear_bn_weights(
        out.weight, out.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return out


def _check(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call .eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of the convolution that has the normalisation in it."""
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear map that has the normalisation in it."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _fused(
    w: Parameter,
    b: Parameter | None,
    mean: ops.Tensor,
    var: ops.Tensor,
    eps: float,
    scale: Parameter | None,
    shift: Parameter | None,
    shape: list[int],
) -> tuple[Parameter, Parameter]:
    with no_grad():
        factor = ops.rsqrt(var + eps)
        factor = factor if scale is None else factor * scale
        bias = (-mean if b is None else b - mean) * factor
        bias = bias if shift is None else bias + shift
        weight = (w * factor.reshape(shape)).to(w.dtype)
        bias = bias.to(w.dtype if b is None else b.dtype)
    return Parameter(weight, w.requires_grad), Parameter(bias, b is None or b.requires_grad)


def skip_init(module_cls: type[Module], *args: object, **kwargs: Any) -> Any:
    """``module_cls(*args, **kwargs)`` without initial values: its memory holds anything."""
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise DTypeError(f"skip_init: Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise DeviceError(
            f"skip_init: {module_cls.__name__}: Module must support a 'device' arg to skip "
            "initialization"
        )
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)


__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "skip_init",
]
