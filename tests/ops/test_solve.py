"""``linalg.solve``: batches, vectors, both sides, gradients."""

import numpy as np
import pytest

import disttrain as dt

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
