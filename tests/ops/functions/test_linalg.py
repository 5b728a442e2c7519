"""``linalg.solve`` and ``linalg.svd``: batches, vectors, both sides, gradients."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import DimError

rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    "a, b", [((3, 3), (3, 2)), ((2, 3, 3), (3, 4)), ((3, 3), (2, 3, 1)), ((2, 1, 3, 3), (4, 3, 2))]
)
@pytest.mark.parametrize("left", [True, False])
def test_it_solves(a, b, left):
    A = dt.tensor(rng.standard_normal(a) + 3 * np.eye(3))
    B = dt.tensor(rng.standard_normal(b if left else (*b[:-2], b[-1], b[-2])))
    X = dt.linalg.solve(A, B, left=left)
    back = A @ X if left else X @ A
    want = np.broadcast_to(B.numpy(), back.shape)
    np.testing.assert_allclose(back.numpy(), want, rtol=1e-10, atol=1e-12)


def test_vectors():
    A = dt.tensor(rng.standard_normal((2, 3, 3)) + 3 * np.eye(3))
    b = dt.tensor(rng.standard_normal((2, 3)))
    np.testing.assert_allclose((A @ dt.linalg.solve(A, b).unsqueeze(-1)).squeeze(-1), b)
    assert dt.linalg.solve(A[0], b[0]).shape == (3,)


def test_gradients_and_what_does_not_fit():
    A = dt.tensor(rng.standard_normal((2, 3, 3)) + 3 * np.eye(3)).requires_grad_()
    b = dt.tensor(rng.standard_normal((3, 2))).requires_grad_()
    assert dt.autograd.gradcheck(dt.linalg.solve, (A, b))
    with pytest.raises(RuntimeError, match="solve"):
        dt.linalg.solve(dt.ones(3, 2), dt.ones(3, 1))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3, 5)])
@pytest.mark.parametrize("full", [True, False])
def test_singular_values(shape, full):
    A = dt.tensor(rng.standard_normal(shape)).requires_grad_()
    u, s, vh = dt.linalg.svd(A, full_matrices=full)
    m, n = shape[-2:]
    k = min(m, n)
    assert u.shape[-2:] == (m, m if full else k) and vh.shape[-2:] == (n if full else k, n)
    back = (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]
    np.testing.assert_allclose(back.detach(), A.detach(), rtol=1e-10, atol=1e-12)
    gram = (u.transpose(-2, -1) @ u).detach().numpy()
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(u.shape[-1]), gram.shape), atol=1e-12)
    s.sum().backward()
    np.testing.assert_allclose(A.grad, (u[..., :k] @ vh[..., :k, :]).detach(), atol=1e-12)


def test_distances():
    a, b = dt.tensor(rng.standard_normal((2, 3))), dt.tensor(rng.standard_normal(3))
    difference = (a - b).numpy()
    assert np.isclose(a.dist(b).item(), np.sqrt((difference**2).sum()))
    assert np.isclose(dt.dist(a, b, 1).item(), np.abs(difference).sum())


def test_the_rank_of_matrices():
    a = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 5))
    A = dt.tensor(np.stack([a, np.zeros_like(a), rng.standard_normal((4, 5))]))
    assert dt.linalg.matrix_rank(A).tolist() == [2, 0, 4]
    assert dt.linalg.matrix_rank(dt.eye(3) * 1e-3, tol=1e-2).item() == 0
    assert dt.linalg.matrix_rank(dt.tensor([[1.0, 0.0], [0.0, 1e-3]]), rtol=1e-2).item() == 1


def test_a_norm_is_over_one_dimension_or_two():
    with pytest.raises(DimError, match=r"dim=\(0, 1, 2\) given with ord=-2; needed one"):
        dt.linalg.norm(dt.ones(2, 2, 2), -2, dim=(0, 1, 2))


@pytest.mark.parametrize(
    "shapes",
    [[(2, 3), (3, 4)], [(5, 2), (2, 7), (7, 3), (3, 4)], [(3,), (3, 9), (9,)], [(3,), (3, 2)]],
)
def test_chains_of_products(shapes):
    parts = [dt.randn(*s, dtype=dt.float64, requires_grad=True) for s in shapes]
    product = parts[0]
    for p in parts[1:]:
        product = product @ p
    out = dt.linalg.multi_dot(parts)
    assert out.shape == product.shape and dt.allclose(out, product)
    assert dt.autograd.gradcheck(lambda *p: dt.linalg.multi_dot(p), parts)
    into = dt.empty_like(out.detach())
    assert dt.linalg.multi_dot([p.detach() for p in parts], out=into) is into
    assert dt.allclose(into, product)


def test_chains_that_do_not_fit():
    with pytest.raises(RuntimeError, match="expected at least 2 tensors but got 1"):
        dt.linalg.multi_dot([dt.ones(2, 2)])
    with pytest.raises(RuntimeError, match="tensor 1 must be 2D but got 1D"):
        dt.linalg.multi_dot([dt.ones(2, 2), dt.ones(2), dt.ones(2, 2)])
