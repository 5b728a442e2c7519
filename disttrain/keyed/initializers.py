"""Weights drawn with keys: each function here gives one of (key, shape, dtype).

    init = dt.keyed.initializers.glorot_normal()
    w = init(key, (64, 10), np.float32)

``dtype``: the type of what is drawn with none given.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import ConfigError
from ..ops import api as t
from . import continuous

Init = Callable[..., Tensor]
_TRUNCATED = 0.87962566103423978  # the deviation of a normal distribution cut at -2 and 2


def _number(value: Any, dtype: np.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtypes.of(dtype))
    return t.tensor(np.asarray(value, dtype))


def _init(draw: Callable, default: Any) -> Init:
    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Tensor:
        out: Tensor = draw(key, tuple(shape), np.dtype(np.float32 if dtype is None else dtype))
        return out

    return init


def _floating(where: str, dtype: np.dtype) -> np.dtype:
    if dtype.kind not in "fV":
        raise ConfigError(f"{where}: a floating type is needed, {dtype} given")
    return dtype


def constant(value: Any, dtype: Any = None) -> Init:
    """``value`` everywhere."""

    def draw(key: Any, shape: tuple, kind: np.dtype) -> Tensor:
        if isinstance(value, (int, float, complex)):
            return t.full(shape, value, dtype=dtypes.of(kind))
        return t.broadcast_to(_number(value, kind), shape).clone()

    return _init(draw, dtype)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Init:
    """Uniform on [0, scale)."""
    return _init(
        lambda key, shape, kind: (
            continuous.uniform(key, shape, _floating("uniform", kind)) * _number(scale, kind)
        ),
        dtype,
    )


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Init:
    """Normal with mean 0."""
    return _init(
        lambda key, shape, kind: continuous.normal(key, shape, kind) * _number(stddev, kind), dtype
    )


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Init:
    """Normal between ``lower`` and ``upper`` deviations."""
    return _init(
        lambda key, shape, kind: _truncated(key, shape, kind, lower, upper) * _number(stddev, kind),
        dtype,
    )


def _truncated(key: Any, shape: tuple, kind: np.dtype, low: Any = -2, high: Any = 2) -> Tensor:
    _floating("truncated_normal", kind)
    ends = _number(low, kind), _number(high, kind)
    out: Tensor = continuous.truncated_normal(key, *ends, shape, kind)
    return out


def _product(shape: Sequence[int], axes: Any) -> int:
    return math.prod(shape[d] for d in ((axes,) if isinstance(axes, int) else axes))


def fans(
    shape: Sequence[int], in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = ()
) -> tuple[float, float]:
    """How many inputs each output has, and how many outputs each input."""
    if len(shape) <= 1 and in_axis == -2:
        raise ConfigError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor. "
            "Must be at least 2D."
        )
    sizes = [_product(shape, axes) for axes in (in_axis, out_axis, batch_axis)]
    field = math.prod(shape) / math.prod(sizes)
    return sizes[0] * field, sizes[1] * field


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Any = -2, out_axis: Any = -1,
    batch_axis: Any = (), dtype: Any = None,
) -> Init:  # fmt: skip
    """A variance of ``scale`` over the number of inputs, outputs or a mean of both."""

    def draw(key: Any, shape: tuple, kind: np.dtype) -> Any:
        fan_in, fan_out = fans(shape, in_axis, out_axis, batch_axis)
        over = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2,
                "fan_geo_avg": (fan_in * fan_out) ** 0.5}  # fmt: skip
        if mode not in over:
            raise ConfigError(f"invalid mode for variance scaling initializer: {mode}")
        variance = _number(scale / over[mode], kind)
        if distribution == "truncated_normal":
            return _truncated(key, shape, kind) * (t.sqrt(variance) / _number(_TRUNCATED, kind))
        if distribution == "normal":
            return continuous.normal(key, shape, kind) * t.sqrt(variance)
        if distribution == "uniform":
            _floating("uniform", kind)
            return continuous.uniform(key, shape, kind, -1.0) * t.sqrt(variance * 3)
        raise ConfigError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _init(draw, dtype)


def _scaled(scale: float, mode: str, distribution: str) -> Callable[..., Init]:
    make: Callable[..., Init] = functools.partial(variance_scaling, scale, mode, distribution)
    return make


glorot_uniform = xavier_uniform = _scaled(1.0, "fan_avg", "uniform")
glorot_normal = xavier_normal = _scaled(1.0, "fan_avg", "truncated_normal")
lecun_uniform = _scaled(1.0, "fan_in", "uniform")
lecun_normal = _scaled(1.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = _scaled(2.0, "fan_in", "uniform")
he_normal = kaiming_normal = _scaled(2.0, "fan_in", "truncated_normal")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Init:
    """Matrices with orthogonal columns (or rows, where these are fewer)."""

    def draw(key: Any, shape: tuple, kind: np.dtype) -> Any:
        if len(shape) < 2:
            raise ConfigError("orthogonal initializer requires at least a 2D shape")
        if 0 in shape:
            return t.zeros(shape, dtype=dtypes.of(kind))
        columns = shape[column_axis]
        _floating("orthogonal", kind)
        matrix = continuous.orthogonal(key, math.prod(shape) // columns, (), kind, columns)
        rest = [n for d, n in enumerate(shape) if d != column_axis % len(shape)]
        return _number(scale, kind) * t.movedim(matrix.reshape(*rest, columns), -1, column_axis)

    return _init(draw, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Init:
    """Kernels of convolutions that are orthogonal in the middle, and 0 beside it."""

    def draw(key: Any, shape: tuple, kind: np.dtype) -> Tensor:
        if len(shape) not in (3, 4, 5):
            raise ConfigError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ConfigError("`fan_in` must be less or equal than `fan_out`. ")
        middle = orthogonal(scale, column_axis)(key, shape[-2:], kind)
        sides = [side for n in reversed(shape[:-2]) for side in ((n - 1) // 2, n // 2)]
        single = middle.reshape([1] * (len(shape) - 2) + list(shape[-2:]))
        return t.pad(single, [0, 0, 0, 0, *sides])

    return _init(draw, dtype)
