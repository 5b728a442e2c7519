"""Primitives that draw random numbers, and dropout. A runtime draws other numbers than we do, of
the same distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import BOOL, FLOAT, INT64, Ref, Unmapped
from ..writer import Writer, rule


def _uniform(w: Writer, shape: tuple, low: float = 0.0, high: float = 1.0) -> Ref:
    return _draw(w, "RandomUniform", shape, low=low, high=high)


def _draw(w: Writer, kind: str, shape: tuple, **how: Any) -> Ref:
    """float32 numbers of a distribution."""
    like = w.full(shape, 0, FLOAT)
    return w.node(f"{kind}Like", like, dtype=FLOAT, shape=tuple(shape), **how)


@rule("rand")
def _rand(w: Writer, shape: tuple, dtype: Any, generator: Any = None) -> Ref:
    return w.cast(_uniform(w, shape), dtype)


@rule("randn")
def _randn(w: Writer, shape: tuple, dtype: Any, generator: Any = None) -> Ref:
    return w.cast(_draw(w, "RandomNormal", shape), dtype)


@rule("rand_exponential")
def _exponential(w: Writer, shape: tuple, dtype: Any, generator: Any = None) -> Ref:
    """Minus the logarithm of numbers between 0 and 1."""
    least = float(np.finfo(np.float32).tiny)
    return w.cast(w.node("Neg", w.node("Log", _uniform(w, shape, least))), dtype)


@rule("randint")
def _randint(
    w: Writer, shape: tuple, dtype: Any, low: int, high: int, generator: Any = None
) -> Ref:
    drawn = w.node("Floor", _uniform(w, shape, float(low), float(high)))
    return w.cast(w.node("Min", drawn, w.constant(float(high - 1), FLOAT)), dtype)


@rule("randperm")
def _randperm(w: Writer, shape: tuple, dtype: Any, generator: Any = None) -> Ref:
    keys = _uniform(w, shape)
    return w.cast(Ref(w.node("TopK", keys, w.ints(shape), outputs=2)[1].name, INT64), dtype)


@rule("bernoulli")
def _bernoulli(w: Writer, a: Ref, generator: Any = None) -> Ref:
    """(``Bernoulli`` of runtimes has been seen to give ones with probability 1 - p.)"""
    drawn = w.node("RandomUniformLike", w.cast(a, FLOAT), dtype=FLOAT)
    return w.cast(w.node("Less", drawn, w.cast(a, FLOAT), dtype=BOOL), a.dtype)


@rule("dropout_mask")
def _dropout_mask(w: Writer, a: Ref, p: float, generator: Any = None) -> Ref:
    drawn = w.node("RandomUniformLike", w.cast(a, FLOAT), dtype=FLOAT)
    return w.node("GreaterOrEqual", drawn, w.constant(float(p), FLOAT), dtype=BOOL)


@rule("native_dropout")
def _native_dropout(w: Writer, a: Ref, p: float, generator: Any = None) -> tuple:
    ratio, train = w.constant(float(p), FLOAT), w.constant(True)
    if p >= 1:
        raise Unmapped("dropout with p=1")
    if w.alone:
        return w.node("Dropout", a, ratio, train), None
    out, mask = w.node("Dropout", a, ratio, train, outputs=2)
    return out, Ref(mask.name, BOOL)


@rule("multinomial")
def _multinomial(
    w: Writer, a: Ref, num_samples: int, replacement: bool, generator: Any = None
) -> Ref:
    if not replacement and num_samples != 1:
        raise Unmapped("multinomial without replacement")
    rows = a if a.rank == 2 else w.unsqueeze(a, (0,))
    out = w.node(
        "Multinomial", w.node("Log", w.cast(rows, FLOAT)), dtype=np.int32, sample_size=num_samples
    )
    out = w.cast(out, INT64)
    return out if a.rank == 2 else w.squeeze(out, (0,))
