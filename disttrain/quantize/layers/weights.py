"""Weights as integers: how they are computed from floating-point ones, and kept in a module."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np

from ... import ops
from ...context import outside_of, thread
from ...core import Tensor, no_grad, wrap
from ...core.observers import goes_by
from ...errors import ConfigError
from ...nn import Module
from ...ops.functions.index_arrays import visible
from .. import types
from ..functions import quantize_per_channel, quantize_per_tensor
from ..grids import Grid
from ..tensor import QuantizedTensor, made


def observed(weight: Tensor, observer: Any) -> QuantizedTensor:
    """``weight`` rounded to the grid that ``observer`` gives it."""
    with no_grad():
        observer(weight.detach())
        return on_grid(weight, observer)


def on_grid(weight: Tensor, observer: Any) -> QuantizedTensor:
    """``weight`` on the grid that ``observer`` has by now."""
    scale, zero = observer.calculate_qparams()
    kind = types.quantized(observer.dtype, "quantization of weights")
    x = weight.detach().float()
    if observer.qscheme in types.PER_CHANNEL:
        return quantize_per_channel(x, scale, zero, observer.ch_axis, kind)
    return quantize_per_tensor(x, scale.item(), zero.item(), kind)


def around_zero(weight: Tensor) -> QuantizedTensor:
    """The same, by int8 and with a grid around 0 for each row: what products take."""
    x = weight.detach().float()
    dims = tuple(range(1, x.ndim))
    reach = ops.amax(ops.abs(x), dims) if x.numel() else ops.ones(x.shape[0])
    scale = ops.maximum(reach / 127.5, _LEAST)
    zeros = ops.zeros(x.shape[0]).int()
    return quantize_per_channel(x, scale, zeros, 0, types.qint8)


_LEAST = wrap(np.array(np.finfo(np.float32).eps, np.float32))


class _Mark:
    """Which tensor, as it was at which version; a copy is of none."""

    __slots__ = ("source", "version")

    def __init__(self, source: Tensor | None = None) -> None:
        self.source = None if source is None else weakref.ref(source)
        self.version = 0 if source is None else source._version

    def is_of(self, x: Tensor) -> bool:
        """Whether ``x`` is that tensor, and nothing was written to it."""
        return self.source is not None and self.source() is x and x._version == self.version

    def __reduce__(self) -> tuple:
        return _Mark, ()


class Int8Weight(Module):
    """Keeps a weight as ``int8_weight`` (out, ...) and ``weight_scale`` (one for all, or one for
    each row), as buffers: so they are saved, loaded and moved as any other."""

    int8_weight: Tensor
    weight_scale: Tensor
    weight_sums: Tensor | None
    _summed = _Mark()

    def hold(self, weight: QuantizedTensor, with_sums: bool = True) -> None:
        """Keep ``weight``."""
        grid, name = weight.grid, type(self).__name__
        scale, zero = grid.tensors
        if weight.kind is not types.qint8 or grid.axis not in (None, 0):
            raise ConfigError(f"{name}: needed a weight of qint8, with a grid for each row or one")
        if bool((zero != 0).any()):
            raise ConfigError(
                f"{name}: the weight's zero points are not 0; observe it by a symmetric qscheme"
            )
        self.register_buffer("int8_weight", weight.levels.detach().contiguous())
        self.register_buffer("weight_scale", scale.detach().clone())
        self.register_buffer("weight_sums", None, persistent=False)
        self.sums_needed = with_sums
        self._add_up()

    def _add_up(self) -> None:
        """The sums of rows, which products with moved zero points need."""
        if self.sums_needed and not self.int8_weight.is_meta:
            self.weight_sums = _sums_of(self.int8_weight)
            self._summed = _Mark(self.int8_weight)

    def sums(self) -> Tensor | None:
        """The sums of the weight's rows, also where a program has written to the weight, or has
        put another in its place."""
        weight = self.int8_weight
        if not self._summed.is_of(weight):
            if not visible(weight):  # what is made of it is not to be kept
                return _sums_of(weight)
            with outside_of(thread.stack[0]) if thread.stack else nullcontext():
                self._add_up()
        goes_by(weight)
        return self.weight_sums

    def held(self) -> QuantizedTensor:
        """The weight as a quantized tensor."""
        grid = Grid(self.weight_scale, ops.zeros_like(self.weight_scale).int(), 0)
        if self.weight_scale.ndim == 0:
            grid = Grid(self.weight_scale.item(), 0)
        return made(self.int8_weight, grid, types.qint8)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        key = prefix + "weight_scale"  # one for all where it was one for each row, or the reverse
        found = state_dict.get(key)
        if isinstance(found, Tensor) and found.shape != self.weight_scale.shape:
            rows = self.int8_weight.shape[:1]
            if tuple(found.shape) in ((), tuple(rows)):
                self.weight_scale = ops.ones(tuple(found.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._add_up()


def _sums_of(weight: Tensor) -> Tensor:
    total: Tensor = ops.sum(weight.flatten(1).int(), 1)
    return total.int()


def qconfig_of(module: Module, where: str) -> Any:
    """The QConfig that ``module`` has been given."""
    found = getattr(module, "qconfig", None)
    if found is None:
        raise ConfigError(
            f"{where}.from_float: {type(module).__name__} has no qconfig; Input float module must "
            "have qconfig defined"
        )
    return found


def weight_observer(module: Any, where: str) -> Any:
    """What knows the grid of a layer's weight: its own, of training with rounding, or a new one."""
    own = getattr(module, "weight_fake_quant", None)
    return qconfig_of(module, where).weight() if own is None else own


def pretend(weight_shape: tuple, rows: bool = True) -> QuantizedTensor:
    """A weight of zeros, for layers that are made before they are loaded."""
    grid = Grid(1.0, 0)
    if rows:
        n = weight_shape[0]
        grid = Grid(ops.ones(n), ops.zeros(n).int(), 0)
    return made(wrap(np.zeros(weight_shape, np.int8)), grid, types.qint8)


def bias_of(module: Any) -> Tensor | None:
    """A copy of the bias, in float32."""
    bias = getattr(module, "bias", None)
    return None if bias is None else bias.detach().float().clone()


__all__ = [
    "Int8Weight", "around_zero", "bias_of", "observed", "on_grid", "pretend", "qconfig_of",
]  # fmt: skip
