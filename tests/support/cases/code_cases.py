"""Arguments for every hand-written device code, in the ways that make a difference to it."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np

from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.replayed import replayed

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BF16)
EVERYTHING = bool(os.environ.get("EVERY_CUDA_KERNEL"))
SEED, OFFSET = 0x0123456789ABCDEF, 0xFEDCBA9876543210


def code_cases():
    """[(code, arguments, how far results may be from the reference's)]."""
    found = []

    def add(code, *args, tolerance=0.0):
        found.append((code, args, tolerance))

    for group in (_random, _gathering, _columns, _many, _attention):
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
        add(codes.DROPOUT, x, np.zeros_like(x), mask, SEED, 3, 0.7, 1 / 0.7)
        add(codes.DROPOUT_AGAIN, x, np.zeros_like(x), SEED, 3, 0.7, 1 / 0.7)
    add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 1, -5, 17)
    add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 2, -(1 << 63), (1 << 64) - 1)
    for dtype in FLOATS[:2]:
        p = rng.random(101).astype(dtype)
        add(codes.BERNOULLI, p, np.zeros(101, dtype), SEED, 4)
        add(codes.BERNOULLI, p, np.zeros(101, bool), SEED, 4)
    for dtype in FLOATS[:2]:
        rates = np.array([0, 0.3, 4, 9.99, 10, 55, 1e4, np.inf, 3] * 8, dtype)
        add(codes.POISSON, rates, np.zeros_like(rates), SEED, 6)
    base = np.array([SEED, OFFSET], np.uint64)
    add(replayed(codes.UNIFORM), np.zeros((7, 147), np.float32), base, 0, 12)
    add(replayed(codes.INTEGERS), np.zeros(1001, np.int64), base, 0, 1, -5, 17)
    add(replayed(codes.BERNOULLI), p, np.zeros(101, bool), base, 0, 4)
    add(codes.BERNOULLI_NUMBER, np.zeros(77, bool), SEED, 5, 0.25)
    add(codes.BERNOULLI_NUMBER, np.zeros(77, BF16), SEED, 5, 0.25)


def _gathering(add):
    rng = np.random.default_rng(1)
    add(codes.within("scatter"), rng.integers(0, 5, (3, 100)), 5, -1)
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


def _columns(add):
    rng = np.random.default_rng(8)
    for dtype, size, kernel, stride, padding, dilation in (
        (np.float32, (1, 7, 6), (1, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 2)),
        (BF16, (4, 3, 5), (2, 3, 3), (2, 1, 2), (1, 1, 2), (1, 1, 1)),
        (np.float64, (1, 1, 9), (1, 1, 4), (1, 1, 3), (0, 0, 0), (1, 1, 2)),
        (np.complex128, (1, 2, 2), (1, 2, 2), (1, 1, 1), (0, 3, 3), (1, 1, 1)),
    ):
        reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
        ends = zip(size, padding, reach, stride)
        out = tuple((n + 2 * p - r) // s + 1 for n, p, r, s in ends)
        given = (*kernel, *out, *stride, *padding, *dilation)
        x = rng.normal(size=(2, *size, 3)).astype(dtype).transpose(0, 4, 1, 2, 3)
        columns = rng.normal(size=(2, 3 * np.prod(kernel), np.prod(out))).astype(dtype)
        add(codes.COLUMNS, x, np.zeros_like(columns), *given)
        if dtype != np.complex128:
            add(codes.UNCOLUMNS, columns, np.zeros(x.shape, x.dtype), *given)


def _many(add):
    rng = np.random.default_rng(3)
    for op, dtype in (("squares", "float32"), ("largest", BF16), ("sizes", "float64")):
        sizes = [3, 0, 5, 17000 if op == "squares" else 300]
        sizes += [3] * 127 if EVERYTHING else []
        arrays = [rng.normal(size=n).astype(dtype) for n in sizes]
        arrays[2] = np.r_[arrays[2], arrays[2]][1:]
        if op == "largest":
            arrays[3][7] = np.nan
        add(codes.fold_many(op), np.zeros(len(arrays)), *arrays, tolerance=1e-12)


def _attention(add):
    """(type, batch, heads, groups, queries, keys, columns of q, of v, causal, mask, keep)"""
    f4, f8 = np.dtype(np.float32), np.dtype(np.float64)
    cases = [
        (f4, 1, 2, 2, 34, 39, 20, 12, False, "blind", None),
        (BF16, 1, 2, 1, 33, 34, 8, 8, True, None, 0.7),
    ]
    if EVERYTHING:
        cases += [
            (f4, 1, 4, 2, 40, 40, 16, 16, True, None, 0.7),
            (BF16, 1, 2, 1, 33, 70, 64, 64, True, None, None),
            (HALVES[0], 2, 2, 2, 9, 35, 8, 8, False, "bool", None),
            (f8, 1, 1, 1, 20, 11, 70, 3, False, "added", 0.6),
            (f4, 1, 1, 1, 5, 9, 150, 140, False, "bool", None),
            (f4, 1, 1, 1, 70, 69, 128, 128, True, None, None),
            (BF16, 1, 1, 1, 70, 69, 128, 128, True, None, None),
            (f8, 1, 1, 1, 70, 9, 256, 300, True, None, None),
        ]
    for case in cases:
        _one_attention(add, *case)


def _one_attention(add, dtype, b, heads, groups, n, m, d, e, causal, mask, keep):
    rng = np.random.default_rng(n * m)

    def draw(*shape):
        """Lying as heads do that were cut out of rows: the middle axes changed over."""
        return rng.normal(size=shape).astype(dtype).swapaxes(1, 2)

    q, k, v = draw(b, n, heads, d), draw(b, m, groups, d), draw(b, m, groups, e)
    g, wide = draw(b, n, heads, e), np.float64 if dtype == np.float64 else np.float32
    out, lse = np.zeros_like(g), np.zeros((b, heads, n), wide)
    masks = []
    if mask == "bool":
        masks = [np.broadcast_to(rng.random((n, m)) < 0.7, (b, heads, n, m))]
    elif mask == "added":
        masks = [np.broadcast_to(rng.normal(size=m).astype(dtype), (b, heads, n, m))]
    elif mask == "blind":  # a row that sees nothing
        masks = [np.broadcast_to(np.arange(n)[:, None] != 2, (b, heads, n, m))]
    numbers = [d**-0.5, *([SEED, 9, keep] if keep else [])]
    flags = (causal, bool(masks), keep is not None)
    tolerance = {"float64": 1e-10, "float32": 2e-5, "float16": 4e-3}.get(dtype.name, 4e-2)
    add(codes.attention(*flags), q, k, v, *masks, out, lse, *numbers, tolerance=tolerance)
    done, sums = out.copy(), lse.copy()
    codes.attention(*flags).reference(q, k, v, *masks, done, sums, *numbers)
    grads = [np.zeros_like(a) for a in (q, k, v)]
    back = codes.attention_backward(*flags)
    add(back, g, q, k, v, *masks, done, sums, *grads, *numbers, tolerance=tolerance * 2)
