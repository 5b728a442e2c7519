"""Layers as pairs of functions: ``init(key, input shape) -> (output shape, parameters)`` and
``apply(parameters, inputs, rng=None)``.

    layers = dt.keyed.layers.Layers(dt.keyed.layers.NATIVE)
    init, apply = layers.serial(layers.dense(64), layers.elementwise(dt.relu), layers.dense(10))

What they compute with is given to ``Layers``, so that the values may be tensors or what a program
has in their place. ``NATIVE`` is of tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays import activations, general
from ..errors import ConfigError
from ..func.staging import stage
from ..ops import api as t
from . import initializers
from .keys import split
from .whole import bernoulli

Layer = tuple[Callable, Callable]


def _unchanged(key: Any, shape: Any) -> tuple:
    return shape, ()


def _keys_of(kwargs: dict, split: Callable, num: int) -> Any:
    rng = kwargs.pop("rng", None)
    return (None,) * num if rng is None else split(rng, num)


class Layers:
    """Layers over the functions of ``ops``: ``split bernoulli concatenate where add max
    reduce_window conv_general_dilated conv_transpose standardize ones``, initializers
    ``glorot_normal normal``, and ``shape_of(fun, shape)``, the shape of what ``fun`` gives."""

    identity: Layer = _unchanged, lambda params, inputs, **kwargs: inputs
    flatten: Layer = (
        lambda key, shape: ((shape[0], math.prod(shape[1:])), ()),
        lambda params, inputs, **kwargs: inputs.reshape(inputs.shape[0], -1),
    )
    fan_in_sum: Layer = (
        lambda key, shape: (shape[0], ()),
        lambda params, inputs, **kwargs: sum(inputs),
    )

    def __init__(self, ops: Any) -> None:
        self.ops = ops
        of = functools.partial
        self.general_conv = of(self._general, ops.conv_general_dilated)
        self.general_conv_transpose = of(self._general, ops.conv_transpose)
        self.conv = of(self.general_conv, ("NHWC", "HWIO", "NHWC"))
        self.conv1d_transpose = of(self.general_conv_transpose, ("NHC", "HIO", "NHC"))
        self.conv_transpose = of(self.general_conv_transpose, ("NHWC", "HWIO", "NHWC"))
        self.max_pool = of(self._pool, ops.max, -math.inf, False)
        self.sum_pool = of(self._pool, ops.add, 0.0, False)
        self.avg_pool = of(self._pool, ops.add, 0.0, True)

    @staticmethod
    def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
        """The layer of a function without parameters."""
        return _unchanged, lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs)

    def dense(
        self, out_dim: int, W_init: Callable | None = None, b_init: Callable | None = None  # noqa: N803
    ) -> Layer:  # fmt: skip
        """A fully connected layer."""
        make = W_init or self.ops.glorot_normal(), b_init or self.ops.normal()

        def init(key: Any, shape: tuple) -> tuple:
            k1, k2 = self.ops.split(key, 2)
            params = make[0](k1, (shape[-1], out_dim)), make[1](k2, (out_dim,))
            return (*shape[:-1], out_dim), params

        return init, lambda params, inputs, **kwargs: inputs @ params[0] + params[1]

    def _sized(self, apply: Callable, shape: tuple) -> tuple:
        """The shape of what ``apply`` gives for inputs of ``shape``; -1 stays where it is."""
        out = self.ops.shape_of(apply, tuple(max(n, 1) for n in shape))
        return tuple(-1 if shape[i] < 0 else n for i, n in enumerate(out))

    def _general(
        self, convolve: Callable, dimension_numbers: tuple, out_chan: int, filter_shape: tuple,
        strides: tuple | None = None, padding: Any = "VALID",
        W_init: Callable | None = None, b_init: Callable | None = None,  # noqa: N803
    ) -> Layer:  # fmt: skip
        """A convolution, with dimensions named by ``dimension_numbers``."""
        lhs, rhs, out = dimension_numbers
        steps = strides or (1,) * len(filter_shape)
        make = W_init or self.ops.glorot_normal(rhs.index("I"), rhs.index("O"))
        make_bias = b_init or self.ops.normal(1e-6)

        def init(key: Any, shape: tuple) -> tuple:
            sizes = {"O": out_chan, "I": shape[lhs.index("C")]}
            places = iter(filter_shape)
            k1, k2 = self.ops.split(key, 2)
            weight = make(k1, [sizes[c] if c in sizes else next(places) for c in rhs])
            params = weight, make_bias(k2, [out_chan if c == "C" else 1 for c in out])
            return self._sized(functools.partial(apply, params), shape), params

        def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            out = convolve(inputs, params[0], steps, padding, dimension_numbers=dimension_numbers)
            return out + params[1]

        return init, apply

    def batch_norm(
        self, axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
        beta_init: Callable | None = None, gamma_init: Callable | None = None,
    ) -> Layer:  # fmt: skip
        """Batch normalization over the dimensions ``axis``."""
        axis = (axis,) if isinstance(axis, int) else axis
        make = beta_init or self.ops.constant(0), gamma_init or self.ops.constant(1)

        def init(key: Any, shape: tuple) -> tuple:
            rest = tuple(d for i, d in enumerate(shape) if i not in axis)
            keys = self.ops.split(key, 2)
            asked = zip((center, scale), make, keys, strict=True)
            return shape, tuple(one(k, rest) if wanted else () for wanted, one, k in asked)

        def apply(params: tuple, x: Any, **kwargs: Any) -> Any:
            spread = tuple(None if i in axis else slice(None) for i in range(x.ndim))
            z = self.ops.standardize(x, axis, epsilon=epsilon)
            z = params[1][spread] * z if scale else z
            return z + params[0][spread] if center else z

        return init, apply

    def _pool(
        self, reducer: Callable, start: float, mean: bool, window_shape: tuple,
        strides: tuple | None = None, padding: Any = "VALID", spec: str | None = None,
    ) -> Layer:  # fmt: skip
        """``reducer`` of windows, or their mean: of what is there, at the edges."""
        window: Any = list(window_shape)
        steps: Any = list(strides or (1,) * len(window_shape))
        apart = (0, len(window) + 1) if spec is None else (spec.index("N"), spec.index("C"))
        for i in sorted(apart):
            window.insert(i, 1)
            steps.insert(i, 1)
        how = tuple(window), tuple(steps), padding

        def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            out = self.ops.reduce_window(inputs, start, reducer, *how)
            if not mean:
                return out
            one = [1 if i in apart else n for i, n in enumerate(inputs.shape)]
            full = self.ops.ones(one, dtype=inputs.dtype)
            return out / self.ops.reduce_window(full, 0.0, reducer, *how)

        def init(key: Any, shape: tuple) -> tuple:
            return self._sized(functools.partial(apply, ()), shape), ()

        return init, apply

    @staticmethod
    def fan_out(num: int) -> Layer:
        """As many copies."""
        return (
            lambda key, shape: ([shape] * num, ()),
            lambda params, inputs, **kwargs: [inputs] * num,
        )

    def fan_in_concat(self, axis: int = -1) -> Layer:
        """All inputs after one another along ``axis``."""

        def init(key: Any, shapes: list) -> tuple:
            out = list(shapes[0])
            out[axis] = sum(shape[axis] for shape in shapes)
            return tuple(out), ()

        return init, lambda params, inputs, **kwargs: self.ops.concatenate(inputs, axis)

    def dropout(self, rate: float, mode: str = "train") -> Layer:
        """Keeps an element with probability ``rate`` while training."""

        def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            rng = kwargs.get("rng")
            if rng is None:
                raise ConfigError(
                    "Dropout layer requires apply_fun to be called with a PRNG key argument. That "
                    "is, instead of `apply_fun(params, inputs)`, call it like `apply_fun(params, "
                    "inputs, rng)` where `rng` is a key."
                )
            if mode != "train":
                return inputs
            kept = self.ops.bernoulli(rng, rate, tuple(inputs.shape))
            return self.ops.where(kept, inputs / rate, 0)

        return _unchanged, apply

    def serial(self, *layers: Layer) -> Layer:
        """Layers one after the other."""

        def init(key: Any, shape: Any) -> tuple:
            params = []
            for layer_init, _ in layers:
                key, own = self.ops.split(key, 2)
                shape, param = layer_init(own, shape)
                params.append(param)
            return shape, params

        def apply(params: Sequence, inputs: Any, **kwargs: Any) -> Any:
            keys = _keys_of(kwargs, self.ops.split, len(layers))
            for (_, layer), param, own in zip(layers, params, keys):
                inputs = layer(param, inputs, rng=own, **kwargs)
            return inputs

        return init, apply

    def parallel(self, *layers: Layer) -> Layer:
        """Layers side by side, each with an input of its own."""

        def init(key: Any, shape: Any) -> tuple:
            keys = self.ops.split(key, len(layers))
            return tuple(zip(*(one[0](k, s) for one, k, s in zip(layers, keys, shape))))

        def apply(params: Any, inputs: Any, **kwargs: Any) -> list:
            keys = _keys_of(kwargs, self.ops.split, len(layers))
            given = zip(layers, params, inputs, keys)
            return [layer[1](p, x, rng=k, **kwargs) for layer, p, x, k in given]

        return init, apply

    @staticmethod
    def shape_dependent(make_layer: Callable) -> Layer:
        """A layer that is made when the shape of its input is known."""
        return (
            lambda key, shape: make_layer(shape)[0](key, shape),
            lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
        )


def _windows(x: Any, start: float, reducer: Callable, *how: Any) -> Any:
    first = t.full((), start, dtype=x.dtype)
    return general.NAMES["reduce_window"]([x], [first], lambda a, b: [reducer(*a, *b)], *how)[0]


def _shape_of(fun: Callable, shape: tuple) -> tuple:
    staged = stage(lambda x: [fun(x)], [(shape, np.dtype(np.float32))])
    return tuple(staged.results[0][0])


NATIVE = SimpleNamespace(
    **{n: general.NAMES[n] for n in ("conv_general_dilated", "conv_transpose", "add", "max")},
    split=lambda key, num: split(key, num).unbind(0), concatenate=t.cat, where=t.where, ones=t.ones,
    bernoulli=lambda key, p, shape: bernoulli(key, t.tensor(p), shape), reduce_window=_windows,
    standardize=activations.standardize, glorot_normal=initializers.glorot_normal,
    normal=initializers.normal, constant=initializers.constant, shape_of=_shape_of,
)  # fmt: skip
