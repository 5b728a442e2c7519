"""Shape and batch rules of every primitive with samples, against running it."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

import disttrain.fft
import disttrain.linalg  # noqa: F401  (these declare primitives of their own)
from disttrain.backends.null import NullArray
from disttrain.core import wrap
from disttrain.ops.declare import REGISTRY

WITH_SAMPLES = sorted(name for name, prim in REGISTRY.items() if prim.samples and not prim.random)
WITH_BATCH = [name for name in WITH_SAMPLES if callable(REGISTRY[name].batch)]


def _samples(name):
    return REGISTRY[name].samples(np.random.default_rng(zlib.crc32(name.encode())))


def _many(result):
    return result if isinstance(result, (tuple, list)) else (result,)


@pytest.mark.parametrize("name", [n for n in WITH_SAMPLES if REGISTRY[n].shape])
def test_shape_rule(name):
    prim = REGISTRY[name]
    for args, params in _samples(name):
        arrays = _many(prim.compute(args, params))
        nulls = [NullArray(a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in args]
        if not any(isinstance(a, NullArray) for a in nulls):
            continue
        for got, want in zip(_many(prim.compute(nulls, params)), arrays, strict=True):
            assert (got.shape, got.dtype) == (np.shape(want), np.asarray(want).dtype)


def _patterns(args):
    """Which arguments have a batch dimension, and where: all choices of in front, last, none."""
    choices = [
        (None, 0, a.ndim) if isinstance(a, np.ndarray) and a.ndim else (None, 0)
        if isinstance(a, np.ndarray) else (None,)
        for a in args
    ]  # fmt: skip
    found = [p for p in itertools.product(*choices) if any(d is not None for d in p)]
    return found[:: max(1, len(found) // 8)]


def _batched(a, size, dim, rng):
    """``size`` variations of ``a``: other floats; other orders of the same integers."""
    if a.dtype.kind == "f":
        parts = [a * s for s in rng.uniform(0.5, 1.5, size)]
    else:
        parts = [np.roll(a, s, -1) if a.ndim else a for s in range(size)]
    return parts, np.stack(parts, dim)


@pytest.mark.parametrize("name", WITH_BATCH)
def test_batch_rule_is_the_loop(name):
    prim, size = REGISTRY[name], 3
    rng = np.random.default_rng(0)
    for args, params in _samples(name):
        for pattern in _patterns(args):
            if name == "cross_entropy" and pattern[2] is not None:
                continue
            parts = [
                [a] * size if d is None else _batched(a, size, d, rng)
                for a, d in zip(args, pattern, strict=True)
            ]
            inner = [
                wrap(p[1]) if d is not None else wrap(a) if isinstance(a, np.ndarray) else a
                for a, p, d in zip(args, parts, pattern, strict=True)
            ]
            rows = [p if d is None else p[0] for p, d in zip(parts, pattern, strict=True)]
            want = [_many(prim.compute([r[i] for r in rows], params)) for i in range(size)]
            out, where = prim.batch(tuple(inner), pattern, params, size)
            where = where if isinstance(where, tuple) else (where,)
            for k, (o, d) in enumerate(zip(_many(out), where, strict=True)):
                stacked = np.stack([w[k] for w in want], d)
                np.testing.assert_allclose(o.array, stacked, rtol=1e-9, atol=1e-12)
