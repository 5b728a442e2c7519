"""Softmax and normalisation of rows on devices: the host's kernels, which take rows of any strides,
so that nothing is copied for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...backends.device.platform import Platform
from ...backends.fused import norms, softmax
from ...backends.lang.kernel import Kernel
from ..primitives.norm import layer_norm_backward, rms_norm_backward
from .table import NAME_OF, converted, kernel_of, on_device

_KERNELS = {
    "softmax": softmax._softmax,
    "log_softmax": softmax._log_softmax,
    "softmax_backward": softmax._softmax_backward,
    "log_softmax_backward": softmax._log_softmax_backward,
}


def _over(name: str, make: Callable) -> None:
    @on_device(name)
    def forward(platform: Platform, *arrays: Any, dim: int) -> Any:
        last = arrays[-1]
        out = platform.empty(last.shape, last.dtype)
        kernel = kernel_of(make, str(NAME_OF[last.dtype]))
        if not last.ndim:
            moved = [a.reshape(1) for a in (*arrays, out)]
        else:
            moved = [platform.xp.moveaxis(a, dim, -1) for a in (*arrays, out)]
        platform.launch(kernel, tuple(moved))
        return out


for _name, _make in _KERNELS.items():
    _over(_name, _make)


@on_device("layer_norm")
def _layer_norm(platform: Platform, x: Any, weight: Any, bias: Any, eps: float) -> tuple:
    return norms.layer_norm(x, weight, bias, eps)


@on_device("rms_norm")
def _rms_norm(platform: Platform, x: Any, weight: Any, eps: float) -> tuple:
    return norms.rms_norm(x, weight, eps)


def _share(x: Any) -> float:
    return 1.0 / max(x.shape[-1], 1)


def _layer_norm_backward(
    platform: Platform, g: Any, x: Any, mean: Any, rstd: Any, weight: Any
) -> tuple:
    """(dx,), or (dx, dweight, dbias): one launch for all rows, whose sums have a fixed order."""
    kernel = _layer_kernel(str(NAME_OF[x.dtype]), weight is not None)
    dx = platform.empty(x.shape, x.dtype)
    if weight is None:
        platform.launch(kernel, (g, x, mean, rstd, _share(x), dx))
        return (dx,)
    sums = [platform.xp.zeros(x.shape[-1:], mean.dtype) for _ in range(2)]
    platform.launch(kernel, (g, x, mean, rstd, weight, _share(x), dx, *sums))
    return dx, *(converted(platform, s, weight.dtype) for s in sums)


def _rms_norm_backward(platform: Platform, g: Any, x: Any, rstd: Any, weight: Any) -> tuple:
    """(dx,), or (dx, dweight)."""
    kernel = _rms_kernel(str(NAME_OF[x.dtype]), weight is not None)
    dx = platform.empty(x.shape, x.dtype)
    if weight is None:
        platform.launch(kernel, (g, x, rstd, _share(x), dx))
        return (dx,)
    total = platform.xp.zeros(x.shape[-1:], rstd.dtype)
    platform.launch(kernel, (g, x, rstd, weight, _share(x), dx, total))
    return dx, converted(platform, total, weight.dtype)


@functools.cache
def _layer_kernel(dtype: str, weight: bool) -> Kernel:
    return norms._layer_norm_backward(dtype, weight)


@functools.cache
def _rms_kernel(dtype: str, weight: bool) -> Kernel:
    return norms._rms_norm_backward(dtype, weight)


layer_norm_backward.on_device = _layer_norm_backward
rms_norm_backward.on_device = _rms_norm_backward
