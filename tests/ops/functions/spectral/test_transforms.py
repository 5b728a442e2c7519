"""Fourier transforms against numpy's; their derivatives; what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

F = dt.fft
RNG = np.random.default_rng(0)
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
NORMS = (None, "backward", "ortho", "forward")


def given(name, shape=(3, 4, 5)):
    x = RNG.normal(size=shape)
    return x if name.startswith(("rfft", "ihfft")) else x + 1j * RNG.normal(size=shape)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_along_one_dimension(name, norm):
    x = given(name)
    for n, dim in ((None, -1), (3, -1), (9, 0), (4, 1)):
        got = getattr(F, name)(dt.tensor(x), n, dim, norm)
        np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, n, dim, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MANY)
def test_over_several_dimensions(name, norm):
    x = given(name)
    for s, dim in (((2, 6), (0, 2)), ((7, 3), (2, 1))):
        got = getattr(F, name)(dt.tensor(x), s, dim, norm)
        np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, s, dim, norm), atol=1e-12)
    assert getattr(F, name)(dt.tensor(x)).ndim == 3


def test_hermitian_transforms_over_several_dimensions():
    x = RNG.normal(size=(4, 6))
    half = F.ihfftn(dt.tensor(x))
    np.testing.assert_allclose(F.hfftn(half, (4, 6)).numpy(), x)
    np.testing.assert_allclose(F.hfft2(F.ihfft2(dt.tensor(x)), (4, 6)).numpy(), x)
    np.testing.assert_allclose(half.numpy(), np.fft.ifft(np.fft.ihfft(x), axis=0), atol=1e-12)


@pytest.mark.parametrize(("kind", "wanted"), [
    (dt.float32, dt.complex64), (dt.float64, dt.complex128), (dt.int32, dt.complex64),
    (dt.bool, dt.complex64), (dt.complex64, dt.complex64),
])  # fmt: skip
def test_types(kind, wanted):
    assert F.fft(dt.ones(3, dtype=kind)).dtype is wanted
    assert F.irfft(dt.ones(3, dtype=kind)).dtype is dt.ones(1, dtype=wanted).real.dtype


@pytest.mark.parametrize("name", (*ONE, "fft2", "irfftn", "hfftn", "ihfft2"))
def test_derivatives_of_second_order(name):
    x = dt.tensor(given(name, (2, 3, 3)), requires_grad=True)

    def run(t):
        return getattr(F, name)(t, norm="ortho")

    assert dt.autograd.gradcheck(run, x)
    assert dt.autograd.gradgradcheck(lambda t: run(t) ** 2, x)


def test_mapped_and_compiled_transforms():
    x = dt.tensor(RNG.normal(size=(3, 4, 5)))
    for call in (F.rfft, F.fft2, lambda t: F.irfft(F.rfft(t, dim=0), 4, dim=0)):
        wanted = dt.stack([call(t) for t in x]).numpy()
        np.testing.assert_allclose(dt.func.vmap(call)(x).numpy(), wanted)
        np.testing.assert_allclose(dt.compile(dt.func.vmap(call))(x).numpy(), wanted)


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        np.testing.assert_allclose(F.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(F.rfftfreq(n, 2).numpy(), np.fft.rfftfreq(n, 2), rtol=1e-6)
    x = RNG.normal(size=(3, 4))
    for dim in (None, 0, (0, 1)):
        got = F.fftshift(dt.tensor(x), dim)
        np.testing.assert_array_equal(got.numpy(), np.fft.fftshift(x, dim))
        np.testing.assert_array_equal(F.ifftshift(got, dim).numpy(), x)
    assert F.fftfreq(3, requires_grad=True).requires_grad
    assert F.fftfreq(3, dtype=dt.float64).dtype is dt.float64


@pytest.mark.parametrize(("call", "said"), [
    (lambda x: F.fft(x, 0), r"data points \(0\)"), (lambda x: F.fft(x, norm="x"), "normalization"),
    (lambda x: F.fft(x, dim=2), "Dimension out of range"),
    (lambda x: F.rfft(x.to(dt.complex64)), "expects a real input"),
    (lambda x: F.fft(x.half()), "Unsupported dtype"),
    (lambda x: F.fftn(x, (2, 2, 2)), "Got shape with 3 values"),
    (lambda x: F.fftn(x, (2,), (0, 1)), "must have the same length"),
    (lambda x: F.fftn(x, dim=(0, 0)), "must be unique"),
    (lambda x: F.rfftn(x, dim=()), "at least one axis"),
    (lambda x: F.irfft(x[:, :1]), r"data points \(0\)"),
    (lambda x: F.fftfreq(3, dtype=dt.int64), "floating point or complex"),
    (lambda x: F.fft(x[0, 0]), "no dimensions"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call, said):
    with pytest.raises((RuntimeError, IndexError), match=said):
        call(dt.ones(2, 3))
