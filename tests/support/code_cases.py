"""Arguments for every hand-written device code, in the ways that make a difference to it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from disttrain.backends.device import codes

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BF16)
SEED, OFFSET = 0x0123456789ABCDEF, 0xFEDCBA9876543210


def code_cases():
    """[(code, arguments, how far results may be from the reference's)]."""
    found = []

    def add(code, *args, tolerance=0.0):
        found.append((code, args, tolerance))

    for group in (_random, _gathering):
        group(add)
    return found


def rounding(dtype):
    """What the last place of that type is worth, a few times over."""
    return {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3}.get(dtype.name, 1.6e-2)


FLOATS = [np.dtype(np.float32), np.dtype(np.float64), *HALVES]


def _random(add):
    rng = np.random.default_rng(0)
    for dtype in FLOATS:
        for code in (codes.UNIFORM, codes.NORMAL, codes.EXPONENTIAL):
            tolerance = 0 if code is codes.UNIFORM else rounding(dtype)
            add(code, np.zeros((7, 147), dtype), SEED, OFFSET, tolerance=tolerance)
        x = rng.normal(size=(5, 103)).astype(dtype)
        mask = np.zeros(x.shape, bool)
        add(codes.DROPOUT, x, x * 0, mask, SEED, 3, 0.7, 1 / 0.7)
        add(codes.DROPOUT_AGAIN, x, x * 0, SEED, 3, 0.7, 1 / 0.7)
    add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 1, -5, 17)
    add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 2, -(1 << 63), (1 << 64) - 1)
    for dtype in FLOATS[:2]:
        p = rng.random(101).astype(dtype)
        add(codes.BERNOULLI, p, np.zeros(101, dtype), SEED, 4)
        add(codes.BERNOULLI, p, np.zeros(101, bool), SEED, 4)
    add(codes.BERNOULLI_NUMBER, np.zeros(77, bool), SEED, 5, 0.25)
    add(codes.BERNOULLI_NUMBER, np.zeros(77, BF16), SEED, 5, 0.25)


def _gathering(add):
    rng = np.random.default_rng(1)
    for dtype, shape in (
        (np.float32, (2, 5, 3)),
        (BF16, (1, 7, 8)),
        (np.float64, (3, 4, 4)),
        (np.int8, (2, 3, 5)),
    ):
        a = rng.uniform(-9, 9, shape).astype(dtype)
        o, n, inner = shape
        out = np.zeros((o, 6, inner), dtype)
        add(codes.TAKE, a, rng.integers(0, n, 6), out)
        add(codes.GATHER, a, rng.integers(0, n, out.shape), out)
    for dtype, n, d in ((np.float32, 50, 70), (BF16, 40, 3), (np.float64, 90, 1), (np.int64, 9, 2)):
        index = rng.integers(0, 4, n)
        order = np.argsort(index, kind="stable")
        g = rng.uniform(-9, 9, (n, d)).astype(dtype)
        out = rng.uniform(-9, 9, (5, d)).astype(dtype)
        add(codes.ADD_ROWS, g, order, index[order], out)
