"""Copies in another order are numpy's, whatever the strides; reshapes share memory where its do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.backends.fused import copies

KINDS = ("f4", "f8", "i2", "u1", "?", "c8", "c16")


def drawn(rng):
    """A view with any order, steps and directions, often large enough for machine code."""
    ndim = int(rng.integers(1, 5))
    sizes = rng.permutation([int(n) for n in rng.choice([1, 2, 3, 17, 40, 64, 131], ndim)])
    if ndim > 1 and rng.random() < 0.7:
        sizes[:2] = rng.integers(30, 300, 2)
    while math.prod(int(n) for n in sizes) > 400_000:
        sizes[int(np.argmax(sizes))] //= 2
    steps = rng.choice([1, 1, 1, 2, -1, -2], ndim)
    whole = [int(n) * abs(int(s)) for n, s in zip(sizes, steps)]
    kind = np.dtype(str(rng.choice(KINDS)))
    count = math.prod(whole)
    base = np.arange(count * kind.itemsize, dtype=np.uint8) * 37 % 251 % (2 if kind == "?" else 251)
    base = base.view(kind) if kind.kind not in "fc" else base[:count].astype(kind)
    a = base[:count].reshape(whole)[tuple(slice(None, None, int(s)) for s in steps)]
    return a.transpose(rng.permutation(ndim))


@pytest.mark.parametrize("seed", range(40))
def test_drawn_copies(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        a = drawn(rng)
        out = copies.contiguous(a)
        assert out.flags.c_contiguous and not np.shares_memory(out, a)
        assert np.array_equal(out, a)
        there = np.zeros_like(drawn(rng) if rng.random() < 0.1 else a.T).T
        if there.shape == a.shape and copies.onto(there, a):
            assert np.array_equal(there, a)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_copies_by_several_threads(seed, monkeypatch):
    monkeypatch.setattr(copies.threads, "count", lambda: 2 + seed % 3)
    monkeypatch.setattr(copies, "_SPLIT", 0)
    test_drawn_copies(2000 + seed)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_reshapes(seed):
    rng = np.random.default_rng(1000 + seed)
    for _ in range(20):
        a = drawn(rng)
        merged = list(a.shape)
        while len(merged) > 1 and rng.random() < 0.7:
            at = int(rng.integers(len(merged) - 1))
            merged[at : at + 2] = [merged[at] * merged[at + 1]]
        shape = tuple(merged) if rng.random() < 0.7 else (*merged[:-1], 1, merged[-1])
        wanted, out = a.reshape(shape), copies.reshaped(a, shape)
        assert np.array_equal(wanted, out)
        assert np.shares_memory(wanted, a) == np.shares_memory(out, a)


def test_large_ones_are_turned_by_machine_code():
    for kind in ("f4", "f8", "i2", "u1"):
        a = np.arange(200 * 133).reshape(200, 133).astype(kind).T
        assert copies.fill(np.empty(a.shape, kind), a)
    x = np.zeros((4, 50, 9, 11), "f4").transpose(0, 2, 3, 1)
    assert copies.fill(np.empty(x.shape, "f4"), x)


def test_overlapping_ones_are_left_to_numpy():
    a = np.arange(40_000.0).reshape(200, 200)
    assert not copies.onto(a, a.T)
    assert not copies.onto(a, a.astype("f4").T)
