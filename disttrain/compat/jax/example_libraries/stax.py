"""``jax.example_libraries.stax``: a layer as two functions.

``init(key, input shape) -> (output shape, params)`` and ``apply(params, inputs, rng=None)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import lax, nn, random
from .. import numpy as jnp
from ..avals import ShapeDtypeStruct
from ..jit import eval_shape
from ..nn import elu, gelu, leaky_relu, log_softmax, relu, selu, sigmoid, softmax, softplus
from ..nn.initializers import glorot_normal, normal, ones, zeros

glorot, randn, logsoftmax = glorot_normal, normal, log_softmax
_WEIGHTS, _BIAS, _SMALL = glorot_normal(), normal(), normal(1e-6)
standardize = nn.standardize


def _unchanged(rng: Any, input_shape: Any) -> tuple:
    return input_shape, ()


def elementwise(fun: Callable, **fun_kwargs: Any) -> tuple:
    """The layer of a function without parameters."""
    return _unchanged, lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs)


Tanh, Relu, Exp = elementwise(jnp.tanh), elementwise(relu), elementwise(jnp.exp)
LogSoftmax, Softmax = elementwise(log_softmax, axis=-1), elementwise(softmax, axis=-1)
Softplus, Sigmoid, Elu = elementwise(softplus), elementwise(sigmoid), elementwise(elu)
LeakyRelu, Selu, Gelu = elementwise(leaky_relu), elementwise(selu), elementwise(gelu)
Identity = _unchanged, lambda params, inputs, **kwargs: inputs
Flatten = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)


def Dense(  # noqa: N802
    out_dim: int,
    W_init: Callable = _WEIGHTS,
    b_init: Callable = _BIAS,
) -> tuple:
    """A fully connected layer."""

    def init(rng: Any, input_shape: tuple) -> tuple:
        k1, k2 = random.split(rng)
        weight = W_init(k1, (input_shape[-1], out_dim))
        return input_shape[:-1] + (out_dim,), (weight, b_init(k2, (out_dim,)))

    return init, lambda params, inputs, **kwargs: jnp.dot(inputs, params[0]) + params[1]


def _sized(apply: Callable, params: Any, shape: tuple) -> tuple:
    """The shape of what ``apply`` gives for inputs of ``shape``; -1 stays where it is."""
    like = ShapeDtypeStruct(tuple(max(n, 1) for n in shape), np.dtype(np.float32))
    out = eval_shape(lambda x: apply(params, x), like).shape
    return tuple(-1 if shape[i] < 0 else n for i, n in enumerate(out))


def _general(convolve: Callable, text: str) -> Callable:
    def layer(
        dimension_numbers: tuple, out_chan: int, filter_shape: tuple,
        strides: tuple | None = None, padding: Any = "VALID", W_init: Callable | None = None,  # noqa: N803
        b_init: Callable = _SMALL,
    ) -> tuple:  # fmt: skip
        lhs, rhs, out = dimension_numbers
        steps = strides or (1,) * len(filter_shape)
        make = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))

        def init(rng: Any, input_shape: tuple) -> tuple:
            sizes = {"O": out_chan, "I": input_shape[lhs.index("C")]}
            places = iter(filter_shape)
            k1, k2 = random.split(rng)
            weight = make(k1, [sizes[c] if c in sizes else next(places) for c in rhs])
            params = weight, b_init(k2, [out_chan if c == "C" else 1 for c in out])
            return _sized(apply, params, input_shape), params

        def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            out = convolve(inputs, params[0], steps, padding, dimension_numbers=dimension_numbers)
            return out + params[1]

        return init, apply

    layer.__doc__ = text
    return layer


GeneralConv = _general(lax.conv_general_dilated, "A convolution.")
GeneralConvTranspose = _general(lax.conv_transpose, "A transposed convolution.")
Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(  # noqa: N802
    axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
    beta_init: Callable = zeros, gamma_init: Callable = ones,
) -> tuple:  # fmt: skip
    """Batch normalization over the dimensions ``axis``."""
    axis = (axis,) if jnp.isscalar(axis) else axis

    def init(rng: Any, input_shape: tuple) -> tuple:
        shape = tuple(d for i, d in enumerate(input_shape) if i not in axis)
        k1, k2 = random.split(rng)
        beta = beta_init(k1, shape) if center else ()
        return input_shape, (beta, gamma_init(k2, shape) if scale else ())

    def apply(params: tuple, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        spread = tuple(None if i in axis else slice(None) for i in range(jnp.ndim(x)))
        z = standardize(x, axis, epsilon=epsilon)
        z = gamma[spread] * z if scale else z
        return z + beta[spread] if center else z

    return init, apply


def _pooling(reducer: Callable, start: float, mean: bool = False) -> Callable:
    def layer(
        window_shape: tuple, strides: tuple | None = None, padding: Any = "VALID",
        spec: str | None = None,
    ) -> tuple:  # fmt: skip
        window: Any = list(window_shape)
        steps: Any = list(strides or (1,) * len(window_shape))
        apart = (0, len(window) + 1) if spec is None else (spec.index("N"), spec.index("C"))
        for i in sorted(apart):
            window.insert(i, 1)
            steps.insert(i, 1)
        window, steps = tuple(window), tuple(steps)

        def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, start, reducer, window, steps, padding)
            if not mean:
                return out
            one = [1 if i in apart else n for i, n in enumerate(inputs.shape)]
            full = jnp.ones(one, dtype=inputs.dtype)
            return out / lax.reduce_window(full, 0.0, lax.add, window, steps, padding)

        return (lambda rng, input_shape: (_sized(apply, (), input_shape), ())), apply

    return layer


MaxPool, SumPool = _pooling(lax.max, -jnp.inf), _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, mean=True)


def FanOut(num: int) -> tuple:  # noqa: N802
    """As many copies."""
    return (
        lambda rng, input_shape: ([input_shape] * num, ()),
        lambda params, inputs, **kwargs: [inputs] * num,
    )


FanInSum = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: sum(inputs),
)


def FanInConcat(axis: int = -1) -> tuple:  # noqa: N802
    """All inputs after one another along ``axis``."""

    def init(rng: Any, input_shape: list) -> tuple:
        out = list(input_shape[0])
        out[axis] = sum(shape[axis] for shape in input_shape)
        return tuple(out), ()

    return init, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> tuple:  # noqa: N802
    """Keeps an element with probability ``rate`` while training."""

    def apply(params: tuple, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a PRNG key argument. That is, "
                "instead of `apply_fun(params, inputs)`, call it like `apply_fun(params, inputs, "
                "rng)` where `rng` is a PRNG key (e.g. from `jax.random.key`)."
            )
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return _unchanged, apply


def serial(*layers: tuple) -> tuple:
    """Layers one after the other."""

    def init(rng: Any, input_shape: Any) -> tuple:
        params = []
        for layer_init, _ in layers:
            rng, own = random.split(rng)
            input_shape, param = layer_init(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply(params: list, inputs: Any, **kwargs: Any) -> Any:
        for (_, layer), param, own in zip(layers, params, _keys(kwargs, len(layers))):
            inputs = layer(param, inputs, rng=own, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: tuple) -> tuple:
    """Layers side by side, each with an input of its own."""

    def init(rng: Any, input_shape: Any) -> tuple:
        keys = random.split(rng, len(layers))
        made = [layer[0](k, s) for layer, k, s in zip(layers, keys, input_shape)]
        return tuple(zip(*made))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> list:
        keys = _keys(kwargs, len(layers))
        return [
            layer[1](p, x, rng=k, **kwargs) for layer, p, x, k in zip(layers, params, inputs, keys)
        ]

    return init, apply


def _keys(kwargs: dict, num: int) -> Any:
    rng = kwargs.pop("rng", None)
    return (None,) * num if rng is None else random.split(rng, num)


def shape_dependent(make_layer: Callable) -> tuple:
    """A layer that is made when the shape of its input is known."""
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
    )


_FUNCTIONS = """elu gelu leaky_relu log_softmax relu selu sigmoid softmax softplus standardize
glorot glorot_normal logsoftmax normal ones randn zeros elementwise parallel serial
shape_dependent"""
NAMES = {n: v for n, v in globals().items() if n in _FUNCTIONS.split() or n[:1].isupper()}
for _name in ("Any", "Callable", "ShapeDtypeStruct"):
    NAMES.pop(_name)
