"""Complex numbers from their parts."""

import numpy as np
import pytest

import disttrain as dt


def test_complex_from_parts_broadcasts_and_is_differentiable():
    rng = np.random.default_rng(0)
    a = dt.tensor(rng.standard_normal(3)).requires_grad_()
    b = dt.tensor(rng.standard_normal((2, 3))).requires_grad_()
    z = dt.complex(a, b)
    np.testing.assert_array_equal(z.detach().numpy(), a.detach().numpy() + 1j * b.detach().numpy())
    assert dt.complex(a.float(), b.float()).dtype is dt.complex64
    assert dt.autograd.gradcheck(dt.complex, (a, b))


def test_parts_of_other_types_are_refused():
    with pytest.raises(RuntimeError, match="two floating-point tensors of one type"):
        dt.complex(dt.ones(2), dt.ones(2).double())
    with pytest.raises(RuntimeError, match="two floating-point tensors of one type"):
        dt.complex(dt.ones(2).int(), dt.ones(2).int())


def test_the_copy_of_the_parts_is_no_view():
    z = dt.complex(dt.ones(2), dt.zeros(2))
    copied, seen = dt.view_as_real_copy(z), dt.view_as_real(z)
    z.mul_(3)
    assert copied.tolist() == [[1.0, 0.0]] * 2 and seen.tolist() == [[3.0, 0.0]] * 2
