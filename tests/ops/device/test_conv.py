"""Convolutions on devices by columns and products: against the sums that define them, in parts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.ops.device import conv
from disttrain.ops.primitives import windows
from support.on_device import agree, on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


CASES = [
    ((2, 4, 7), (6, 4, 3), 1, (1,), (0,), (1,)),
    ((2, 4, 7), (6, 2, 3), 2, (2,), (2,), (2,)),
    ((2, 4, 6, 5), (6, 4, 3, 2), 1, (2, 1), (1, 0), (1, 2)),
    ((2, 6, 5, 5), (6, 1, 2, 2), 6, (1, 1), (1, 1), (1, 1)),
    ((2, 4, 5, 5), (3, 4, 1, 1), 1, (1, 1), (0, 0), (1, 1)),
    ((1, 2, 4, 5, 3), (4, 2, 2, 3, 2), 1, (1, 2, 1), (0, 1, 1), (2, 1, 1)),
]


def by_sums(x, w, b, groups, stride, padding, dilation):
    """The definition, one weight after the other."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    out = [(n - d * (k - 1) - 1) // s + 1
           for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)]  # fmt: skip
    y = np.zeros((len(x), len(w), *out))
    each, per = w.shape[1], len(w) // groups
    for o in range(len(w)):
        for i in range(each):
            for at in np.ndindex(*w.shape[2:]):
                where = tuple(slice(a * d, a * d + (m - 1) * s + 1, s)
                              for a, d, m, s in zip(at, dilation, out, stride))  # fmt: skip
                y[:, o] += w[(o, i, *at)] * x[(slice(None), o // per * each + i, *where)]
        y[:, o] += 0 if b is None else b[o]
    return y


@pytest.fixture(params=[None, 1], ids=["whole", "parts"], autouse=True)
def parts(request, monkeypatch):
    """Columns of the whole batch, or of one sample at a time."""
    if request.param is not None:
        monkeypatch.setattr(conv, "_COLUMNS", request.param)


@pytest.mark.parametrize(("x", "w", "groups", "stride", "padding", "dilation"), CASES)
def test_values_and_gradients(x, w, groups, stride, padding, dilation):
    x, w, b = (RNG.standard_normal(s) for s in (x, w, (w[0],)))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for bias in (None, b):
        given = [x, w] if bias is None else [x, w, b]
        (y,) = on_device("conv", *given, **how)
        np.testing.assert_allclose(
            y, by_sums(x, w, bias, groups, stride, padding, dilation), atol=1e-11
        )
    (y,) = on_device("conv", x, w, **how)
    g = RNG.standard_normal(y.shape)
    (gx,) = on_device("conv_input_grad", g, w, size=x.shape[2:], **how)
    (gw,) = on_device("conv_weight_grad", g, x, kernel=w.shape[2:], **how)
    assert gx.shape == x.shape and gw.shape == w.shape
    assert np.vdot(y, g) == pytest.approx(np.vdot(x, gx)) == pytest.approx(np.vdot(w, gw))


@pytest.mark.parametrize("kind", ["f4", "f2", BF16, "c8"], ids=str)
def test_types_are_kept_and_weights_of_half_types_summed_wide(kind):
    x, w = (RNG.integers(-2, 3, s).astype(kind) for s in ((3, 2, 5, 5), (4, 2, 3, 3)))
    how = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    agree("conv", x, w, **how)
    g = np.ones((3, 4, 5, 5), kind)
    agree("conv_input_grad", g, w, size=(5, 5), **how)
    agree("conv_weight_grad", g, x, kernel=(3, 3), tol=1e-2, **how)


def test_columns_and_their_sums():
    x = RNG.standard_normal((2, 3, 6, 5))
    how = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    (columns,) = on_device("im2col", x, **how)
    agree("im2col", x, **how)
    c = RNG.standard_normal(columns.shape)
    (back,) = on_device("col2im", c, size=(6, 5), **how)
    assert np.vdot(columns, c) == pytest.approx(np.vdot(x, back))
    agree("col2im", c.astype("c16"), size=(6, 5), tol=1e-12, **how)
    assert columns.shape[2] == np.prod(
        windows.out_sizes((6, 5), *(how[k] for k in ("kernel", "stride", "padding", "dilation")))
    )
