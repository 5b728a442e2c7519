"""Primitives that draw random arrays. Each takes its generator as a parameter, so that a captured
program draws anew each time it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import elementwise as fused
from ...core.gate import Primitive
from ...core.random import Generator
from ...core.types.device import CPU
from ...errors import ConfigError
from ..declare import primitive
from .batching import front

_FUSED_FROM = 4096  # elements from which a kernel beats numpy's passes
_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))


def _floats(draw: Callable[..., Any], shape: tuple, dtype: np.dtype) -> np.ndarray:
    """``draw(shape, type)`` in the nearest type that numpy draws."""
    if dtype in _NATIVE:
        return draw(shape, dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return (draw(shape, part) + 1j * draw(shape, part)).astype(dtype)
    return draw(shape, np.dtype(np.float32)).astype(dtype)


def _shape_rule(shape: tuple, dtype: np.dtype, **rest: object) -> tuple:
    return shape, dtype


def _uniform(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    if dtype.kind == "V" or (dtype.itemsize == 2 and dtype.kind == "f"):
        steps = 11 if dtype.kind == "f" else 8  # rounding a float32 could give 1
        raw = generator.rng.integers(0, 1 << steps, shape, np.uint16)
        return (raw.astype(np.float32) * np.float32(2.0**-steps)).astype(dtype)
    return _floats(lambda s, k: generator.rng.random(s, k), shape, dtype)


def _normal(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    out = _floats(lambda s, k: generator.rng.standard_normal(s, k), shape, dtype)
    return out * dtype.type(math.sqrt(0.5)) if dtype.kind == "c" else out


def _exponential(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    return _floats(lambda s, k: generator.rng.standard_exponential(s, k), shape, dtype)


def _integers(
    shape: tuple, dtype: np.dtype, low: int, high: int, generator: Generator
) -> np.ndarray:
    if dtype.kind in "iu":
        return generator.rng.integers(low, high, shape, dtype)
    return generator.rng.integers(low, high, shape).astype(dtype)


def _permutation(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    return generator.rng.permutation(shape[0]).astype(dtype, copy=False)


class _Source(Primitive):
    """A primitive that draws from its generator alone, which knows where that is done."""

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        generator = params["generator"]
        if generator.device is CPU:
            return self.forward(**params)
        return generator.draw(self, self.forward, params)


def _source(name: str, forward: Callable[..., Any]) -> Primitive:
    return primitive(name, forward, "", random=True, shape=_shape_rule, kind=_Source)


draw_uniform = _source("rand", _uniform)
draw_normal = _source("randn", _normal)
draw_exponential = _source("rand_exponential", _exponential)
draw_integers = _source("randint", _integers)
draw_permutation = _source("randperm", _permutation)


def _bernoulli(a: np.ndarray, generator: Generator) -> Any:
    if a.size and not (a.min() >= 0 and a.max() <= 1):
        raise ConfigError("bernoulli: probabilities must lie in [0, 1]")
    kind = a.dtype if a.dtype in _NATIVE else np.dtype(np.float32)
    return (generator.rng.random(a.shape, kind) < a).astype(a.dtype)


draw_bernoulli: Primitive = primitive(
    "bernoulli", _bernoulli, "a", random=True, shape=lambda a, generator: (a.shape, a.dtype)
)
draw_bernoulli.elementwise = True


def _poisson(a: np.ndarray, generator: Generator) -> Any:
    return np.asarray(generator.rng.poisson(a.astype(np.float64))).astype(a.dtype)


draw_poisson: Primitive = primitive(
    "poisson", _poisson, "a", random=True, shape=lambda a, generator: (a.shape, a.dtype)
)
draw_poisson.elementwise = True


def _multinomial(a: np.ndarray, num_samples: int, replacement: bool, generator: Generator) -> Any:
    weights = a.astype(np.float64).reshape(-1, a.shape[-1])
    total = weights.sum(axis=1)
    if not (np.isfinite(total).all() and (weights >= 0).all() and (total > 0).all()):
        raise ConfigError(
            "multinomial: probabilities must be finite, not negative, and not all zero in a row"
        )
    if replacement or num_samples == 1:
        out = _with_replacement(weights, total, num_samples, generator.rng)
    else:
        out = _without_replacement(weights, num_samples, generator.rng)
    return out.reshape(*a.shape[:-1], num_samples)


def _with_replacement(
    weights: np.ndarray, total: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Where uniform draws fall in each row's distribution function."""
    rows, classes = weights.shape
    cdf = np.cumsum(weights, axis=1)
    keys = rng.random((rows, n)) * cdf[:, -1:]
    last = classes - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    if rows == 1:
        out = np.searchsorted(cdf[0], keys[0], "right")[None]
    else:
        out = (cdf[:, None, :] <= keys[:, :, None]).sum(axis=2)
    return np.minimum(out, last[:, None])


def _without_replacement(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """The first ``n`` arrivals of exponential clocks whose rates are the weights."""
    if n > int((weights > 0).sum(axis=1).min()):
        raise ConfigError(
            f"multinomial: {n} samples without replacement were asked for, more than a row has "
            "entries above zero; pass replacement=True, or fewer samples"
        )
    with np.errstate(divide="ignore"):
        arrivals = rng.standard_exponential(weights.shape) / weights
    return np.argsort(arrivals, axis=1)[:, :n]


def _multinomial_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return draw_multinomial(front(args[0], dims[0]), **params), 0


draw_multinomial: Primitive = primitive(
    "multinomial", _multinomial, "a", random=True, batch=_multinomial_batch,
    shape=lambda a, num_samples, **rest: ((*a.shape[:-1], num_samples), np.dtype(np.int64)),
)  # fmt: skip


# --- dropout -----------------------------------------------------------------------------------
def _dropout_mask(a: np.ndarray, p: float, generator: Generator) -> Any:
    """True where an element is kept: 32 random bits each, compared with p."""
    n = a.size
    bits = generator.rng.bit_generator.random_raw((n + 1) // 2).view(np.uint32)[:n]
    threshold = round(p * 2.0**32)
    if threshold >> 32:
        return np.zeros(a.shape, bool)
    return (bits >= np.uint32(threshold)).reshape(a.shape)


dropout_mask: Primitive = primitive(
    "dropout_mask", _dropout_mask, "a", random=True,
    shape=lambda a, p, generator: (a.shape, np.dtype(bool)),
)  # fmt: skip
dropout_mask.elementwise = True


def _masked_scale(a: np.ndarray, mask: np.ndarray, scale: float) -> Any:
    if a.dtype.kind != "c" and a.size >= _FUSED_FROM and a.shape == mask.shape:
        gapless = a.flags.c_contiguous or fused.order_of(a) is not None
        return fused.dropout(a if gapless else np.ascontiguousarray(a), mask, scale)
    if isinstance(a, np.ndarray) and not a.flags.c_contiguous:  # keeps the order of ``a``
        out = np.asarray(a * a.dtype.type(scale))
        np.copyto(out, 0, where=~mask)
        return out
    return np.where(mask, a * a.dtype.type(scale), a.dtype.type(0))


masked_scale: Primitive = primitive(
    "masked_scale", _masked_scale, "a mask",
    vjp={"a": lambda g, mask, scale: masked_scale(g, mask, scale=scale)},
    shape=lambda a, mask, scale: (a.shape, a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 4)), rng.random((3, 4)) > 0.5), {"scale": 2.0})],
)  # fmt: skip
masked_scale.elementwise = True


def _native_dropout(a: Any, p: float, generator: Generator) -> tuple:
    mask = _dropout_mask(a, p, generator)
    return _masked_scale(a, mask, 1.0 / (1.0 - p) if p < 1 else 0.0), mask


def _native_dropout_rule(g: tuple, out: tuple, p: float, needs: tuple) -> tuple:
    return (masked_scale(g[0], out[1], scale=1.0 / (1.0 - p) if p < 1 else 0.0),)


native_dropout: Primitive = primitive(
    "native_dropout", _native_dropout, "a", vjp=_native_dropout_rule, random=True, multi=True,
    nondiff_outputs=(1,),
    shape=lambda a, p, generator: [(a.shape, a.dtype), (a.shape, np.dtype(bool))],
)  # fmt: skip
