"""QR: its modes, its reflections, complex derivatives, and what has none."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core import grad, wrap
from disttrain.errors import AutogradError
from disttrain.ops.primitives.factors import qr as q

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 2, 4), (0, 3), (2, 0, 0)])
def test_the_product_gives_the_matrix_back(shape, mode):
    a = RNG.normal(size=shape) + 1j * RNG.normal(size=shape)
    first, second = q.qr(wrap(a), mode=mode)
    np.testing.assert_allclose((first @ second).array, a, atol=1e-12)
    predicted = q.qr.shape(a, mode)
    assert [tuple(first.shape), tuple(second.shape)] == [s for s, _ in predicted]


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_complex_gradients(shape):
    a, move = (RNG.normal(size=shape) + 1j * RNG.normal(size=shape) for _ in range(2))
    weights = [RNG.normal(size=s) + 1j * RNG.normal(size=s) for s, _ in q.qr.shape(a, "reduced")]

    def loss(x):
        return sum((o * wrap(w)).sum().real for o, w in zip(q.qr(x, mode="reduced"), weights))

    x = wrap(a).requires_grad_()
    (g,) = grad(loss(x), x)
    sides = [float(loss(wrap(a + s * move)).array) for s in (1e-6, -1e-6)]
    np.testing.assert_allclose(
        (g.array.conj() * move).sum().real, (sides[0] - sides[1]) / 2e-6, rtol=1e-5
    )


@pytest.mark.parametrize(("shape", "mode", "said"), [
    ((3, 3), "r", "not computed when mode='r'"), ((3, 2), "complete", "nrows > ncols"),
])  # fmt: skip
def test_what_has_no_derivative_says_so(shape, mode, said):
    x = wrap(RNG.normal(size=shape)).requires_grad_()
    with pytest.raises(AutogradError, match=said):
        grad(q.qr(x, mode=mode)[1].sum(), x)


def test_reflections_are_those_of_the_decomposition():
    a = RNG.normal(size=(2, 4, 3))
    vectors, factors = q.geqrf(wrap(a))
    np.testing.assert_allclose(np.triu(vectors.array[:, :3]), np.linalg.qr(a)[1], atol=1e-12)
    assert factors.shape == (2, 3)
