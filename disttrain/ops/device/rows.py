"""Softmax and normalisation of rows on devices: the host's kernels, which take rows of any strides,
so that nothing is copied for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.device.platform import Platform
from ...backends.fused import norms, softmax
from .table import NAME_OF, kernel_of, on_device

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
