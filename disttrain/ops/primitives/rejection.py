"""Primitives that draw by rejection as functions of keys: gamma, Poisson and binomial numbers.

    threefry_gamma(keys, a; log_space)
        G. Marsaglia and W. Tsang, A simple method for generating gamma variables, 2000; of shapes
        below 1 from those of a + 1
    threefry_poisson(keys, rate; dtype)
        below 10 by D. Knuth's product of uniform numbers; else W. Hörmann, The transformed
        rejection method for generating Poisson random variables, 1993 (PTRS)
    threefry_binomial(keys, count, chance)
        few: sums of geometric numbers (L. Devroye, 1986); else W. Hörmann, The generation of
        binomial random variates, 1993 (BTRS)

The first dimensions of what follows the keys are theirs. Every gamma number has a key of its own;
of the others all those of a key are tried together, each time with new keys, until each has
settled: the order of JAX's, so that the numbers are JAX's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.gate import Primitive
from ..declare import primitive
from .elementwise import exp, where
from .sampling import standard_gamma_grad
from .special import lgamma
from .threefry import KEY, by_keys, normal, split, unit, words


# --- gamma ----------------------------------------------------------------------------------------
def _one(keys: np.ndarray, draw: Any, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    return draw(keys, 1, dtype, partitionable)[:, 0]


def _proposed(
    keys: np.ndarray, c: np.ndarray, dtype: np.dtype, partitionable: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A normal number x with 1 + cx above 0 for each key, and 1 + cx."""
    x, v, keys = np.zeros_like(c), -np.ones_like(c), keys.copy()
    todo = np.arange(len(c))
    while todo.size:
        new = split(keys[todo], 2, partitionable)
        keys[todo] = new[:, 0]
        x[todo] = _one(new[:, 1], normal, dtype, partitionable)
        v[todo] = 1 + x[todo] * c[todo]
        todo = todo[v[todo] <= 0]
    return x, v


def _accepted(keys: np.ndarray, d: np.ndarray, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    """V of Marsaglia and Tsang, for each key."""
    third = dtype.type(1.0 / 3.0)
    c, out, keys = third / np.sqrt(d), np.ones_like(d), keys.copy()
    todo = np.arange(len(d))
    while todo.size:
        new = split(keys[todo], 3, partitionable)
        keys[todo] = new[:, 0]
        x, v = _proposed(new[:, 1], c[todo], dtype, partitionable)
        x, v = x * x, v * v * v
        u = _one(new[:, 2], unit, dtype, partitionable)
        out[todo] = v
        squeezed = u >= 1 - dtype.type(0.0331) * (x * x)
        slow = np.log(u) >= x * dtype.type(0.5) + d[todo] * (1 - v + np.log(v))
        todo = todo[squeezed & slow]
    return out


def _gamma_of(keys: np.ndarray, a: np.ndarray, log_space: bool, partitionable: bool) -> np.ndarray:
    """A gamma number of each shape ``a`` [n], from keys [n, 2]."""
    dtype, big = a.dtype, a >= 1
    d = np.where(big, a, a + a.dtype.type(1)) - dtype.type(1.0 / 3.0)
    new = split(keys, 2, partitionable)
    v = _accepted(new[:, 0], d, dtype, partitionable)
    u = _one(new[:, 1], unit, dtype, partitionable)
    if log_space:
        logs = np.log1p(-u)
        boost = np.where(big | (logs == 0), dtype.type(0), logs * (1 / a))
        return np.log(d) + np.log(v) + boost
    return d * v * np.where(big, dtype.type(1), np.power(1 - u, 1 / a))


def _gamma(keys: np.ndarray, a: np.ndarray, log_space: bool, partitionable: bool) -> np.ndarray:
    each = a.size // max(1, keys.size)
    new = split(words(keys.reshape(-1)), each, partitionable).reshape(-1, 2)
    with np.errstate(all="ignore"):
        out = _gamma_of(new, a.reshape(-1), log_space, partitionable)
    return out.astype(a.dtype, copy=False).reshape(a.shape)


def _gamma_rule(g: Any, a: Any, out: Any, log_space: bool) -> Any:
    """How a number moves with its shape, by implicit differentiation (see ``sampling``)."""
    if not log_space:
        return g * standard_gamma_grad(a, out)
    sample = exp(out)
    sample = where(sample == 0, 1e-38, sample)
    return g * standard_gamma_grad(a, sample) / sample


threefry_gamma: Primitive = primitive(
    "threefry_gamma", _gamma, "keys a", vjp={"a": _gamma_rule},
    batch=by_keys(lambda: threefry_gamma),
    shape=lambda keys, a, log_space, partitionable: (a.shape, a.dtype),
    samples=lambda rng: [((_keys(rng), rng.uniform(0.2, 4.0, (2, 3))), {
        "log_space": log, "partitionable": True}) for log in (False, True)],
)  # fmt: skip


def _keys(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 1 << 32, (2, 2), np.uint32).view(KEY)[:, 0]


# --- Poisson --------------------------------------------------------------------------------------
def _knuth(keys: np.ndarray, rate: np.ndarray, most: int, partitionable: bool) -> np.ndarray:
    """How many uniform numbers keep their product above e^-rate."""
    k, logs = np.zeros(rate.shape, np.int64), np.zeros(rate.shape, np.float32)
    for _ in range(most):
        going = logs > -rate
        if not going.any():
            break
        new = split(keys, 2, partitionable)
        k += going
        u = unit(new[:, 1], rate.shape[1], rate.dtype, partitionable)
        keys, logs = new[:, 0], logs + np.log(u)
    return k - 1


def _settled(accepted: np.ndarray, k: np.ndarray, out: np.ndarray, done: np.ndarray) -> tuple:
    """``out`` and ``done`` after a try: a number may be drawn again until all of its key have been
    (as JAX's are), and not after that, however long other keys' take."""
    accepted = accepted & ~done.all(axis=1, keepdims=True)
    return np.where(accepted, k, out), done | accepted


def _ptrs(keys: np.ndarray, rate: np.ndarray, most: int, partitionable: bool) -> np.ndarray:
    one, n = rate.dtype.type, rate.shape[1]
    b = one(0.931) + one(2.53) * np.sqrt(rate)
    a = one(-0.059) + one(0.02483) * b
    inverse = one(1.1239) + one(1.1328) / (b - one(3.4))
    v_r = one(0.9277) - one(3.6224) / (b - one(2))
    out, done = np.full(rate.shape, one(-1)), np.zeros(rate.shape, bool)
    for _ in range(most):
        if done.all():
            break
        new = split(keys, 3, partitionable)
        keys, u = new[:, 0], unit(new[:, 1], n, rate.dtype, partitionable) - one(0.5)
        v, far = unit(new[:, 2], n, rate.dtype, partitionable), one(0.5) - np.abs(u)
        k = np.floor((2 * a / far + b) * u + rate + one(0.43))
        s = np.log(v * inverse / (a / (far * far) + b))
        t = -rate + k * np.log(rate) - lgamma.forward(k + one(1))
        quick = (far >= one(0.07)) & (v <= v_r)
        never = (k < 0) | ((far < one(0.013)) & (v > far))
        accepted = quick | (~never & (s <= t))
        out, done = _settled(accepted, k, out, done)
    return out


def _poisson(keys: np.ndarray, a: np.ndarray, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    pairs = words(keys.reshape(-1))
    rate = a.reshape(len(pairs), -1).astype(np.float32)
    few, most = np.isnan(rate) | (rate < 10), int(np.iinfo(dtype).max)
    with np.errstate(all="ignore"):
        small = _knuth(pairs, np.where(few, rate, np.float32(0)), most, partitionable)
        large = _ptrs(pairs, np.where(few, np.float32(1e5), rate), most, partitionable)
        out = np.where(few, small, large.astype(np.int64)).astype(dtype)
    return np.where(rate == 0, dtype.type(0), out).reshape(a.shape)


threefry_poisson: Primitive = primitive(
    "threefry_poisson", _poisson, "keys a", batch=by_keys(lambda: threefry_poisson),
    shape=lambda keys, a, dtype, partitionable: (a.shape, dtype),
)  # fmt: skip


# --- binomial -------------------------------------------------------------------------------------
def _geometric_sums(
    keys: np.ndarray, count: np.ndarray, q: np.ndarray, partitionable: bool
) -> np.ndarray:
    """How many geometric numbers of chance ``q`` fit into ``count``."""
    logs, num, total = np.log1p(-q), np.zeros_like(q), np.zeros_like(q)
    while (total <= count).any():
        new = split(keys, 2, partitionable)
        num = np.where(total <= count, num + q.dtype.type(1), num)
        u = unit(new[:, 0], q.shape[1], q.dtype, partitionable)
        keys, total = new[:, 1], total + np.ceil(np.log(u) / logs)
    return num - q.dtype.type(1)


_TAIL = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling(k: np.ndarray) -> np.ndarray:
    """What Stirling's series leaves of log k!."""
    one = k.dtype.type
    kept = np.clip(k, one(0), one(9))
    square = (kept + one(1)) ** 2
    series = one(1.0 / 12) - (one(1.0 / 360) - one(1.0 / 1260) / square) / square
    at = np.nan_to_num(np.floor(kept)).astype(np.int32)
    return np.where(k <= 9, np.asarray(_TAIL, k.dtype)[at], series / (kept + one(1)))


def _btrs(keys: np.ndarray, count: np.ndarray, q: np.ndarray, partitionable: bool) -> np.ndarray:
    one, n = q.dtype.type, q.shape[1]
    spread = np.sqrt(count * q * (one(1) - q))
    b = one(1.15) + one(2.53) * spread
    a = one(-0.0873) + one(0.0248) * b + one(0.01) * q
    c, v_r, r = count * q + one(0.5), one(0.92) - one(4.2) / b, q / (one(1) - q)
    alpha, m = (one(2.83) + one(5.1) / b) * spread, np.floor((count + one(1)) * q)
    fixed = (m + one(0.5)) * np.log((m + one(1)) / (r * (count - m + one(1))))
    out, done = np.full(q.shape, one(-1)), np.zeros(q.shape, bool)
    while not done.all():
        new = split(keys, 3, partitionable)
        keys, u = new[:, 0], unit(new[:, 1], n, q.dtype, partitionable) - one(0.5)
        v, us = unit(new[:, 2], n, q.dtype, partitionable), one(0.5) - np.abs(u)
        quick = (us >= one(0.07)) & (v <= v_r)
        k = np.floor((2 * a / us + b) * u + c)
        bound = (
            fixed
            + (count + one(1)) * np.log((count - m + one(1)) / (count - k + one(1)))
            + (k + one(0.5)) * np.log(r * (count - k + one(1)) / (k + one(1)))
            + _stirling(m) + _stirling(count - m) - _stirling(k) - _stirling(count - k)
        )  # fmt: skip
        never = (k < 0) | (k > count)
        fits = np.log(v * alpha / (a / (us * us) + b)) <= bound
        accepted = quick | (~never & fits)
        out, done = _settled(accepted, k, out, done)
    return out


def _binomial(keys: np.ndarray, a: np.ndarray, b: np.ndarray, partitionable: bool) -> np.ndarray:
    pairs = words(keys.reshape(-1))
    count, chance = (x.reshape(len(pairs), -1) for x in (a, b))
    one = chance.dtype.type
    with np.errstate(all="ignore"):
        less = chance < 0.5
        q = np.where(less, chance, one(1) - chance)
        odd, no_number, below = np.isnan(count) | (count < 0), np.isnan(q), q < 0
        q = np.where(no_number | below, one(0.01), q)
        few = odd | (count * q <= 10)
        count = np.floor(count)
        small = _geometric_sums(pairs, np.where(few, count, one(0)), q, partitionable)
        large = _btrs(
            pairs, np.where(few, one(1e4), count), np.where(few, one(0.5), q), partitionable
        )
        out = np.where(few, small, large)
        invalid, endless = below | no_number | odd, np.isinf(count)
        out = np.where(invalid, one(np.nan), np.where(endless, one(np.inf), out))
        out = np.where(less | odd | no_number | endless, out, count - out)
    return out.reshape(a.shape)


threefry_binomial: Primitive = primitive(
    "threefry_binomial", _binomial, "keys a b", batch=by_keys(lambda: threefry_binomial),
    shape=lambda keys, a, b, partitionable: (a.shape, b.dtype),
)  # fmt: skip
