"""Convolutions and their two gradients against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.ops.primitives import conv as cv

CASES = [
    ((5, 4), (3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((6, 5), (3, 3), (2, 1), (1, 2), (1, 1), 2),
    ((7,), (3,), (2,), (2,), (2,), 1),
    ((4, 3, 5), (2, 2, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), 2),
    ((6, 6), (1, 1), (2, 2), (0, 0), (1, 1), 4),
]


def plain(x, w, stride, padding, dilation, groups):
    size = x.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, padding, dilation, w.shape[2:], stride, strict=True)
    ]
    y = np.zeros((len(x), len(w), *out))
    per, outs = w.shape[1], len(w) // groups
    for tap in itertools.product(*map(range, w.shape[2:])):
        window = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, out, strict=True)
        )
        for g in range(groups):
            part = x[(slice(None), slice(g * per, (g + 1) * per), *window)]
            rows = w[(slice(g * outs, (g + 1) * outs), slice(None), *tap)]
            y[:, g * outs : (g + 1) * outs] += np.einsum("nc...,oc->no...", part, rows)
    return y


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation", "groups"), CASES)
def test_convolutions_and_gradients(size, kernel, stride, padding, dilation, groups, kind):
    rng = np.random.default_rng(len(size))
    x = rng.normal(size=(2, 4, *size)).astype(kind)
    w = rng.normal(size=(4, 4 // groups, *kernel)).astype(kind)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    y = cv.conv.forward(x, w, None, **how)
    close = {"rtol": 1e-4, "atol": 1e-4} if kind is np.float32 else {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(y, plain(x, w, *how.values()), **close)
    b = rng.normal(size=4).astype(kind)
    biased = cv.conv.forward(x, w, b, **how)
    np.testing.assert_allclose(biased, y + b.reshape(-1, *[1] * len(size)), **close)
    # <y, g> is linear in x and in w: its gradients give it back.
    g = rng.normal(size=y.shape).astype(kind)
    dx = cv.conv_input_grad.forward(g, w, **how, size=size)
    dw = cv.conv_weight_grad.forward(g, x, **how, kernel=kernel)
    whole = float((y * g).sum())
    np.testing.assert_allclose([(dx * x).sum(), (dw * w).sum()], [whole] * 2, rtol=1e-3, atol=1e-3)


def test_columns_are_windows_and_add_up_again():
    x = np.arange(20.0).reshape(1, 1, 5, 4)
    how = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    columns = cv.unfold_columns.forward(x, **how)
    assert columns.shape == (1, 4, 4) and columns[0, :, 0].tolist() == [0, 1, 4, 5]
    back = cv.fold_columns.forward(columns, **how, size=(5, 4))
    assert (back[0, 0, :4] == x[0, 0, :4]).all() and not back[0, 0, 4].any()
