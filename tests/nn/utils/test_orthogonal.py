"""The maps from which orthogonal matrices come."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.nn.utils import orthogonal as orth


def same(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=tolerance)


def test_the_exponential_of_matrices():
    a = np.array([[0.0, -1.0], [1.0, 0.0]])
    for size in (0.1, 1.0, 30.0):
        want = [[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]]
        np.testing.assert_allclose(orth.matrix_exp(dt.tensor(a * size)).numpy(), want, atol=1e-12)
    rng = np.random.default_rng(0)
    x = dt.tensor(rng.standard_normal((2, 3, 3))).requires_grad_()
    assert dt.autograd.gradcheck(orth.matrix_exp, (x,))


def test_reflections_and_their_product_belong_together():
    q = dt.tensor(np.random.default_rng(0).standard_normal((2, 5, 3)))
    A, tau = orth.reflections(q)
    back = orth.householder_product(A, tau) @ A[..., :3, :].triu()
    same(back, q, 1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_orthogonal_maps_are_those_of_pytorch(shape, name):
    import torch

    start = np.random.default_rng(0).standard_normal(shape)
    results = []
    for T in (dt, torch):
        m = T.nn.Module()
        m.weight = T.nn.Parameter(T.tensor(start))
        T.nn.utils.parametrizations.orthogonal(m, "weight", name, use_trivialization=False)
        (m.weight * T.tensor(start)).sum().backward()
        original = m.parametrizations.weight.original
        results.append([t.detach().numpy() for t in (m.weight, original.grad)])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
