"""Products over chosen dimensions, as numpy's; determinants and powers under older names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DimError, LinAlgError, ShapeError


def drawn(*shape, seed=0, kind="f8"):
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return (
        real.astype(kind) if np.dtype(kind).kind != "c" else real + 1j * rng.standard_normal(shape)
    )


@pytest.mark.parametrize("kind", ["f8", "c16"])
@pytest.mark.parametrize(
    ("one", "other", "dims"),
    [
        ((3, 4), (4, 5), 1),
        ((3, 4, 5), (4, 5, 2), 2),
        ((3, 4), (5,), 0),
        ((3, 4, 5), (4, 3, 2), ([1, 0], [0, 1])),
        ((3, 4, 5), (2, 5), ([-1], [-1])),
        ((2, 3), (2, 3), ([0, 1], [0, 1])),
        ((2, 0), (0, 3), 1),
        ((2, 3), (4,), ([], [])),
    ],
)
def test_tensordot(one, other, dims, kind):
    a, b = drawn(*one, kind=kind), drawn(*other, seed=1, kind=kind)
    found = dt.tensordot(dt.tensor(a), dt.tensor(b), dims=dims)
    wanted = np.tensordot(a, b, dims if isinstance(dims, int) else tuple(map(tuple, dims)))
    assert tuple(found.shape) == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


def test_a_summed_dimension_of_one_element_fits_any():
    a, b = drawn(3, 1), drawn(4, 2)
    found = dt.tensordot(dt.tensor(a), dt.tensor(b), dims=1)
    np.testing.assert_allclose(found.numpy(), a @ b.sum(0, keepdims=True))


@pytest.mark.parametrize(
    ("dims", "error", "text"),
    [
        (1, ShapeError, "first has size 4 in dim 1 and second has size 3 in dim 0"),
        (-1, ConfigError, "dims >= 0"),
        (3, ConfigError, "dims=3"),
        (([0], [0, 1]), ConfigError, "same length"),
        (([2], [0]), DimError, "2"),
    ],
)
def test_dims_without_a_meaning(dims, error, text):
    with pytest.raises(error, match=text):
        dt.tensordot(dt.ones(3, 4), dt.ones(3, 4), dims=dims)


@pytest.mark.parametrize(
    ("one", "other"),
    [((2, 3), (4, 5)), ((3,), (2,)), ((2,), (3, 4)), ((2, 1, 2), (3,)), ((), (2,))],
)
def test_kron(one, other):
    a, b = drawn(*one), drawn(*other, seed=1)
    found = dt.kron(dt.tensor(a), dt.tensor(b))
    wanted = np.kron(a, b)
    assert tuple(found.shape) == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted)


@pytest.mark.parametrize("dim", [None, 0, 2, -1])
def test_cross(dim):
    a, b = drawn(3, 2, 3), drawn(3, 2, 3, seed=1)
    found = dt.cross(dt.tensor(a), dt.tensor(b), dim)
    wanted = np.cross(a, b, axis=0 if dim is None else dim)
    np.testing.assert_allclose(found.numpy(), wanted)
    with pytest.raises(DimError, match=r"no dimension of size 3.*\[2, 2\]"):
        dt.cross(dt.ones(2, 2), dt.ones(2, 2))


def test_determinants_and_inverses():
    a = drawn(4, 3, 3)
    x = dt.tensor(a)
    np.testing.assert_allclose(x.det().numpy(), np.linalg.det(a))
    np.testing.assert_allclose(x.inverse().numpy(), np.linalg.inv(a))
    np.testing.assert_allclose(x.matrix_power(3).numpy(), np.linalg.matrix_power(a, 3))
    sign, size = x.slogdet()
    np.testing.assert_allclose((sign * size.exp()).numpy(), np.linalg.det(a))
    with pytest.raises(LinAlgError):
        dt.inverse(dt.zeros(2, 2))


def test_logarithms_of_determinants():
    found = dt.logdet(
        dt.tensor([[[2.0, 0.0], [0.0, 3.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0] * 2] * 2])
    )
    assert found[0].item() == pytest.approx(np.log(6.0))
    assert np.isnan(found[1].item()) and found[2].item() == -np.inf
    turned = dt.logdet(dt.tensor([[1j, 0], [0, 2.0]], dtype=dt.complex128)).item()
    assert turned == pytest.approx(np.log(2j))


def test_products_of_vectors_and_chains():
    a, b = drawn(5, kind="c16"), drawn(5, seed=1, kind="c16")
    assert dt.vdot(dt.tensor(a), dt.tensor(b)).item() == pytest.approx(np.vdot(a, b))
    np.testing.assert_allclose(dt.ger(dt.tensor(a), dt.tensor(b)).numpy(), np.outer(a, b))
    chain = [dt.tensor(drawn(n, m)) for n, m in itertools.pairwise((2, 7, 3, 4))]
    wanted = np.linalg.multi_dot([t.numpy() for t in chain])
    np.testing.assert_allclose(dt.chain_matmul(*chain).numpy(), wanted)
    alone = dt.chain_matmul(chain[0])
    assert alone is not chain[0] and (alone == chain[0]).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: dt.tensordot(a, b, dims=([1], [1])),
        dt.kron,
        lambda a, b: dt.logdet(a @ a.T + b @ b.T),
        lambda a, b: dt.cross(a, b, 0),
    ],
)
def test_derivatives(f):
    a, b = (dt.tensor(drawn(3, 3, seed=k)).requires_grad_() for k in (0, 1))
    assert dt.autograd.gradcheck(f, (a, b))
    assert dt.autograd.gradgradcheck(f, (a, b))
