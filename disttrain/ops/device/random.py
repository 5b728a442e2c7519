"""Random primitives on devices: Philox by counter (``codes/randomness.py`` of ``backends/device``).
Elements are functions of the generator's seed, of the draw's offset and of their place alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.codes import table as codes
from ...backends.device.platform import Platform
from ...backends.device.replayed import replayed
from ...core.random import Generator
from ...errors import ConfigError
from ..primitives import sampling  # noqa: F401  (declares what is absent here)
from ..primitives.random import masked_scale
from .table import BOOL, F32, F64, FLOATS, INT64, NAME_OF, cast, converted, on_device

_MOST_TABLE = 1 << 22  # elements of a comparison of all samples with all classes


def _run(
    platform: Platform, code: object, arrays: tuple, generator: Generator, *numbers: object
) -> None:
    base, counted = generator.take()
    platform.run_code(replayed(code) if base else code, (*arrays, *base, *counted, *numbers))


def _drawn(
    platform: Platform,
    code: codes.Code,
    shape: tuple,
    dtype: np.dtype,
    generator: Generator,
    *numbers: int,
) -> Any:
    """What ``code`` draws, in the nearest type that it knows."""
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = _drawn(platform, code, (*shape, 2), part, generator, *numbers)
        return pairs.view(dtype).reshape(shape)
    own = dtype if code is codes.INTEGERS or NAME_OF[dtype] in FLOATS else F32
    out = platform.empty(shape, own)
    _run(platform, code, (out,), generator, *numbers)
    return converted(platform, out, dtype)


@on_device("rand")
def _uniform(platform: Platform, shape: tuple, dtype: np.dtype, generator: Generator) -> Any:
    return _drawn(platform, codes.UNIFORM, shape, dtype, generator)


@on_device("randn")
def _normal(platform: Platform, shape: tuple, dtype: np.dtype, generator: Generator) -> Any:
    out = _drawn(platform, codes.NORMAL, shape, dtype, generator)
    return out * dtype.type(math.sqrt(0.5)) if dtype.kind == "c" else out


@on_device("rand_exponential")
def _exponential(platform: Platform, shape: tuple, dtype: np.dtype, generator: Generator) -> Any:
    return _drawn(platform, codes.EXPONENTIAL, shape, dtype, generator)


@on_device("randint")
def _integers(
    platform: Platform, shape: tuple, dtype: np.dtype, low: int, high: int, generator: Generator
) -> Any:
    start = low - (1 << 64) if low >> 63 > 0 else low  # the same bits, as a signed number
    out = _drawn(platform, codes.INTEGERS, shape, INT64, generator, start, high - low)
    return converted(platform, out, dtype)


@on_device("randperm")
def _permutation(platform: Platform, shape: tuple, dtype: np.dtype, generator: Generator) -> Any:
    keys = _drawn(platform, codes.INTEGERS, shape, INT64, generator, -(1 << 63), (1 << 64) - 1)
    return converted(platform, platform.xp.argsort(keys), dtype)


@on_device("bernoulli")
def _bernoulli(platform: Platform, a: RawArray, generator: Generator) -> Any:
    """Probabilities outside of [0, 1] end the kernel with a message: to look for them, the host
    would have to wait."""
    p = a if a.dtype in (F32, F64) else cast(platform, a, F32)
    out = platform.empty(a.shape, a.dtype)
    _run(platform, codes.BERNOULLI, (platform.xp.ascontiguousarray(p), out), generator)
    return out


@on_device("poisson")
def _poisson(platform: Platform, a: RawArray, generator: Generator) -> Any:
    """Rates below 0 end the kernel with a message, as probabilities do."""
    rates = a if a.dtype in (F32, F64) else cast(platform, a, F32)
    out = platform.empty(a.shape, rates.dtype)
    _run(platform, codes.POISSON, (platform.xp.ascontiguousarray(rates), out), generator)
    return converted(platform, out, a.dtype)


@on_device("dropout_mask")
def _dropout_mask(platform: Platform, a: RawArray, p: float, generator: Generator) -> Any:
    out = platform.empty(a.shape, BOOL)
    _run(platform, codes.BERNOULLI_NUMBER, (out,), generator, 1.0 - p)
    return out


@on_device("native_dropout")
def _native_dropout(platform: Platform, a: RawArray, p: float, generator: Generator) -> tuple:
    """One launch; of arrays with gaps or in another order two, with the same mask."""
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    if NAME_OF[a.dtype] not in FLOATS or not a.flags.c_contiguous:
        mask = _dropout_mask(platform, a, p, generator)
        return masked_scale.on_device(platform, a, mask, scale), mask
    out, mask = platform.empty(a.shape, a.dtype), platform.empty(a.shape, BOOL)
    _run(platform, codes.DROPOUT, (a, out, mask), generator, 1.0 - p, scale)
    return out, mask


@on_device("multinomial")
def _multinomial(
    platform: Platform, a: RawArray, num_samples: int, replacement: bool, generator: Generator
) -> Any:
    xp = platform.xp
    weights = xp.ascontiguousarray(converted(platform, a, F64).reshape(-1, a.shape[-1]))
    total = weights.sum(axis=1)
    good = xp.isfinite(total).all() & (weights >= 0).all() & (total > 0).all()
    if not platform.download(good):
        raise ConfigError(
            "multinomial: probabilities must be finite, not negative, and not all zero in a row"
        )
    if num_samples == 1:
        out = xp.argmin(_arrivals(platform, weights, generator), axis=1)[:, None]
    elif replacement:
        out = _with_replacement(platform, weights, num_samples, generator)
    else:
        out = _without_replacement(platform, weights, num_samples, generator)
    shaped = out.reshape(*a.shape[:-1], num_samples)
    return converted(platform, shaped, INT64)


def _arrivals(platform: Platform, weights: RawArray, generator: Generator) -> Any:
    """When exponential clocks whose rates are the weights ring first; never for rate 0."""
    clocks = _drawn(platform, codes.EXPONENTIAL, weights.shape, F64, generator)
    xp = platform.xp
    return xp.where(weights > 0, clocks / xp.where(weights > 0, weights, 1.0), math.inf)


def _with_replacement(platform: Platform, weights: RawArray, n: int, generator: Generator) -> Any:
    """Where uniform draws fall in each row's distribution function."""
    xp = platform.xp
    rows, classes = weights.shape
    cdf = xp.cumsum(weights, axis=1)
    keys = _drawn(platform, codes.UNIFORM, (rows, n), F64, generator) * cdf[:, -1:]
    last = classes - 1 - xp.argmax(weights[:, ::-1] > 0, axis=1)
    if rows * n * classes <= _MOST_TABLE:
        out = (cdf[:, None, :] <= keys[:, :, None]).sum(axis=2)
    else:
        out = xp.stack([xp.searchsorted(cdf[i], keys[i], "right") for i in range(rows)])
    return xp.minimum(out, last[:, None])


def _without_replacement(
    platform: Platform, weights: RawArray, n: int, generator: Generator
) -> Any:
    if n > int(platform.download((weights > 0).sum(axis=1).min())):
        raise ConfigError(
            f"multinomial: {n} samples without replacement were asked for, more than a row has "
            "entries above zero; pass replacement=True, or fewer samples"
        )
    return platform.xp.argsort(_arrivals(platform, weights, generator), axis=1)[:, :n]


@on_device("standard_gamma", "standard_dirichlet", "binomial", "standard_von_mises")
def _absent(platform: Platform, *args: object, **params: object) -> Any:
    raise platform.without("sampler of this distribution; draw on the CPU and move what is drawn")
