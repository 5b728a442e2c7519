"""Factors on devices: what waits, what is refused, where the array module has no form."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

RNG = np.random.default_rng(0)


def there(a):
    return dt.tensor(a).to("cuda")


def test_an_exponential_waits_for_its_norm(double):
    a = RNG.normal(size=(2, 3, 3)) * 4
    want = dt.linalg.matrix_exp(dt.tensor(a))
    np.testing.assert_allclose(dt.linalg.matrix_exp(there(a)).cpu().numpy(), want.numpy())


def test_indefinite_factors_are_refused(double):
    with pytest.raises(RuntimeError, match=r"move the matrices with \.cpu\(\)"):
        dt.linalg.ldl_factor(there(np.eye(2)))


def test_matrices_that_fail_are_told(double):
    stack = np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0])])
    assert dt.linalg.lu_factor_ex(there(np.diag([1.0, 0.0]))).info.item() == 2
    with pytest.raises(dt.linalg.LinAlgError, match=r"\(Batch element 0\)"):
        dt.linalg.lu_factor(there(np.zeros((2, 2, 2))))
    assert dt.linalg.cholesky_ex(there(stack[:1])).info.item() == 0


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("call", [
    lambda a: dt.linalg.qr(a @ a.mT, "r").R.abs(), lambda a: dt.linalg.lu(a[:, :1, :]).U,
    lambda a: dt.linalg.eigvals(a).abs().sum(-1), lambda a: dt.geqrf(a).a,
    lambda a: dt.cholesky_inverse(a), lambda a: dt.fft.fft2(a).real,
    lambda a: dt.stft(a.flatten(), 4, 2, return_complex=True).abs(),
    lambda a: dt.linalg.lstsq(a[:, :, :2], a).solution,
])  # fmt: skip
def test_compositions_are_those_of_the_host(double, call):
    a = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
    got = call(there(a))
    assert got.is_cuda
    np.testing.assert_allclose(got.cpu().numpy(), call(dt.tensor(a)).numpy(), atol=1e-10)
