"""``jax.nn.initializers``: functions of (key, shape, dtype) that draw weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ....arrays.axes import shape_of
from .. import numpy, types
from .. import random as draws

jnp: Any = numpy  # whose names its table gives
random: Any = draws

_TRUNCATED = 0.87962566103423978  # the deviation of a normal distribution cut at -2 and 2


def _kind(dtype: Any) -> Any:
    return types.canonical("float64") if dtype is None else types.asked(dtype, "initializer")


def _initializer(draw: Callable, dtype: Any) -> Callable:
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        return draw(key, shape_of(shape), _kind(dtype))

    return init


def constant(value: Any, dtype: Any = None) -> Callable:
    """``value`` everywhere."""
    return _initializer(lambda key, shape, kind: jnp.full(shape, value, kind), dtype)


zeros, ones = constant(0), constant(1)


def _scaled_draw(name: str) -> Callable:
    """Numbers of a distribution, times a scale."""

    def make(scale: Any = 1e-2, dtype: Any = None, *bounds: Any, **named: Any) -> Callable:
        scale = named.pop("stddev", scale)
        ends = {"lower": -2.0, "upper": 2.0, **dict(zip(("lower", "upper"), bounds)), **named}
        ends = ends if name == "truncated_normal" else {}
        return _initializer(
            lambda key, shape, kind: (
                getattr(random, name)(key, shape=shape, dtype=kind, **ends) * jnp.array(scale, kind)
            ),
            dtype,
        )

    return make


uniform, normal, truncated_normal = map(_scaled_draw, ("uniform", "normal", "truncated_normal"))


def _product(shape: Sequence[int], axes: Any) -> int:
    return math.prod(shape[d] for d in ((axes,) if isinstance(axes, int) else axes))


def _fans(
    shape: Sequence[int], in_axis: Any, out_axis: Any, batch_axis: Any
) -> tuple[float, float]:
    """How many inputs each output has, and how many outputs each input."""
    if len(shape) <= 1 and in_axis == -2:
        raise ValueError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor. "
            "Must be at least 2D."
        )
    sizes = [_product(shape, axes) for axes in (in_axis, out_axis, batch_axis)]
    field = math.prod(shape) / math.prod(sizes)
    return sizes[0] * field, sizes[1] * field


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Any = -2, out_axis: Any = -1,
    batch_axis: Any = (), dtype: Any = None,
) -> Callable:  # fmt: skip
    """A variance of ``scale`` over the number of inputs, outputs or a mean of both."""

    def draw(key: Any, shape: Any, kind: Any) -> Any:
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        over = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2,
                "fan_geo_avg": (fan_in * fan_out) ** 0.5}  # fmt: skip
        if mode not in over:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = jnp.array(scale / over[mode], dtype=kind)
        if distribution == "truncated_normal":
            deviation = jnp.sqrt(variance) / jnp.array(_TRUNCATED, kind)
            return random.truncated_normal(key, -2, 2, shape, kind) * deviation
        if distribution == "normal":
            return random.normal(key, shape, kind) * jnp.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, kind, -1) * jnp.sqrt(3 * variance)
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _initializer(draw, dtype)


def _scaled(name: str, scale: float, mode: str, distribution: str) -> Callable:
    def make(
        in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None
    ) -> Callable:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = name
    make.__doc__ = f"``variance_scaling({scale}, {mode!r}, {distribution!r})``."
    return make


glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform")
glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal")
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform")
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform")
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Callable:
    """Matrices with orthogonal columns (or rows, where these are fewer)."""

    def draw(key: Any, shape: Any, kind: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        if 0 in shape:
            return jnp.zeros(shape, kind)
        columns = shape[column_axis]
        matrix = random.orthogonal(key, math.prod(shape) // columns, (), kind, columns)
        rest = [n for d, n in enumerate(shape) if d != column_axis % len(shape)]
        return jnp.array(scale, kind) * jnp.moveaxis(
            matrix.reshape(*rest, columns), -1, column_axis
        )

    return _initializer(draw, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Callable:
    """Kernels of convolutions that are orthogonal in the middle, and 0 beside it."""

    def draw(key: Any, shape: Any, kind: Any) -> Any:
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. ")
        matrix = orthogonal(scale, column_axis, kind)(key, shape[-2:])
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(shape, kind).at[middle].set(matrix)

    return _initializer(draw, dtype)
