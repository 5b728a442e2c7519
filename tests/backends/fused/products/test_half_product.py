"""Products of bfloat16 by pairs are those of float32, rounded once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.backends.fused.products import half_product

BF16 = np.dtype(ml_dtypes.bfloat16)


def drawn(m, k, n, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=s).astype(BF16) for s in ((m, k), (k, n), (n,)))


def by_float32(x, w, b):
    return x.astype("f4") @ w.astype("f4") + b.astype("f4")


@pytest.mark.parametrize("size", [(64, 128, 64), (3, 700, 333), (37, 258, 65), (90, 1300, 40)])
def test_matrices_that_lie_in_any_way(size):
    x, w, b = drawn(*size)
    wanted = by_float32(x, w, b)
    wide = np.zeros((size[1], 2 * size[2]), BF16)
    wide[:, ::2] = w
    for given in (w, np.asfortranarray(w), wide[:, ::2], w[::-1][::-1]):
        for rows in (x, np.asfortranarray(x)):
            found = half_product.product(rows, given, b)
            if found is None:
                assert half_product._run() is None
                return
            assert found.dtype == BF16 and found.shape == wanted.shape
            far = np.abs(found.astype("f4") - wanted)
            assert (far <= 2**-8 * np.abs(wanted) + 1e-3).all()


def test_threads_and_other_rows_change_no_bit(monkeypatch):
    x, w, b = drawn(40, 1024, 128)
    monkeypatch.setattr(half_product, "_SPREAD", 1)
    found = []
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        found.append(half_product.product(x, w, b))
    if found[0] is not None:
        assert len({a.tobytes() for a in found}) == 1
        assert (half_product.product(x[7:20], w, b) == found[0][7:20]).all()


def test_what_is_left_to_others():
    x, w, b = drawn(64, 128, 64)
    assert half_product.product(x.astype("f4"), w.astype("f4")) is None
    assert half_product.product(x[:, :127], w[:127], b) is None  # no pairs
    assert half_product.product(x[:2], w[:, :3]) is None  # too small to gain


def test_layers_and_their_compiled_programs_have_the_same_bits():
    dt.manual_seed(0)
    layer = dt.nn.Linear(256, 96).bfloat16()
    x = dt.randn(2, 40, 256).bfloat16().requires_grad_()
    run, found = dt.compile(layer), []
    for call in (layer, run, run, run):
        x.grad = None
        layer.zero_grad()
        out = call(x)
        out.float().pow(2).sum().backward()
        grads = (x.grad, layer.weight.grad, layer.bias.grad)
        found.append([a.float().tolist() for a in (out.detach(), *grads)])
    assert found[0] == found[1] == found[2] == found[3]
    wanted = x.float() @ layer.weight.float().t() + layer.bias.float()
    assert (out.float() - wanted).abs().max().item() < 0.02
