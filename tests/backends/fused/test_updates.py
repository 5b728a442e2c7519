"""Steps of optimizers in one pass."""

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.fused import updates as fu

BF16 = np.dtype(ml_dtypes.bfloat16)

TOLERANCE = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(got, want, dtype, scale=1.0):
    assert got.dtype == dtype, got.dtype
    t = TOLERANCE[str(dtype)] * scale
    np.testing.assert_allclose(got.astype("f8"), want, rtol=t, atol=t)


def adam_reference(p, g, m, v, mv, lr, b1, b2, eps, wd, step, decoupled, maximize):
    g = -g if maximize else g
    p = p * (1 - lr * wd) if decoupled else p
    g = g if decoupled else g + wd * p
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    mv = np.maximum(mv, v) if mv is not None else None
    top = v if mv is None else mv
    denominator = np.sqrt(top / (1 - b2**step)) + eps
    return p - lr / (1 - b1**step) * m / denominator, m, v, mv


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f8"), BF16], ids=str)
def test_adam_steps(dtype, decoupled, amsgrad):
    lr, b1, b2, eps, decay = 0.01, 0.9, 0.99, 1e-8, 0.1
    p, m, v = random((6, 7), dtype), np.zeros((6, 7), dtype), np.zeros((6, 7), dtype)
    mv = np.zeros((6, 7), dtype) if amsgrad else None
    want = [a if a is None else a.astype("f8") for a in (p, m, v, mv)]
    for step in range(1, 4):
        g = random(p.shape, dtype, step)
        sign, keep = -1.0 if step == 2 else 1.0, 1.0 - lr * decay if decoupled else 1.0
        sizes = lr / (1 - b1**step), 1 / (1 - b2**step) ** 0.5, eps
        numbers = sign, keep, 0.0 if decoupled else decay, 1 - b1, b2, 1 - b2, *sizes
        fu.ADAM[amsgrad](p, g, m, v, *([mv] if amsgrad else []), *numbers)
        args = (lr, b1, b2, eps, decay, step, decoupled, step == 2)
        a, b, c, d = want
        want = list(adam_reference(a, g.astype("f8"), b, c, d, *args))
    for got, exact in zip((p, m, v), want):
        same(got, exact, dtype, 20 if dtype == np.float64 else 5)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_steps(momentum, nesterov):
    p, buf = random(50, "f4"), np.zeros(50, "f4")
    want, buf8 = p.astype("f8"), None
    for step in range(3):
        g = random(50, "f4", step)
        if momentum:
            fu.SGD[True, nesterov](p, g, buf, 1.0, 0.01, 0.1, momentum, 1.0)
        else:
            fu.SGD[False, False](p, g, 1.0, 0.01, 0.1)
        g8 = g.astype("f8") + 0.01 * want
        buf8 = g8 if buf8 is None else momentum * buf8 + g8
        want = want - 0.1 * ((g8 + momentum * buf8 if nesterov else buf8) if momentum else g8)
    same(p, want, np.dtype("f4"), 3)
