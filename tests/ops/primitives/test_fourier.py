"""Fourier transforms: numpy's numbers in the type of the input, and adjoints."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import fourier as f

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_narrow_types_stay_narrow(norm):
    x = RNG.normal(size=(3, 6)).astype("f")
    half = f.rfft(x, dims=(0, 1), norm=norm)
    assert half.dtype == np.complex64
    back = f.irfft(half, dims=(0, 1), size=6, norm=norm)
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, x, atol=1e-6)
    whole = f.fft(x.astype("F"), dims=(0, 1), inverse=False, norm=norm)
    assert whole.dtype == np.complex64
    np.testing.assert_allclose(whole[:, :4], half, atol=1e-5)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize(("shape", "dims"), [((5,), (0,)), ((4, 6), (0, 1)), ((3, 4, 5), (2, 0))])
def test_rules_are_adjoints(shape, dims, norm):
    """<g, F x> = <F' g, x>, of real parts."""
    x = RNG.normal(size=shape)
    y = f.rfft(x, dims=dims, norm=norm)
    g = RNG.normal(size=y.shape) + 1j * RNG.normal(size=y.shape)
    back = f._rfft_rule(g, dims, norm, shape)
    np.testing.assert_allclose((g.conj() * y).sum().real, (back * x).sum())
    size = shape[dims[-1]]
    z = f.irfft(g, dims=dims, size=size, norm=norm)
    w = RNG.normal(size=z.shape)
    back = f._irfft_rule(w, dims, size, norm)
    np.testing.assert_allclose((w * z).sum(), (back.conj() * g).sum().real)


def test_half_types_are_refused():
    for call in (lambda x: f.rfft(x, dims=(0,), norm="ortho"),
                 lambda x: f.fft(x, dims=(0,), inverse=True, norm="ortho")):  # fmt: skip
        with pytest.raises(TypeError, match="Unsupported dtype float16"):
            call(np.ones(3, np.float16))
