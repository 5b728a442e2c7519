"""Views by strides on the double, whose ``as_strided`` names no base, as CuPy's: they are views for
programs, too."""

from __future__ import annotations

import disttrain as dt


def test_windows_and_strides_share_memory(double):
    x = dt.arange(12.0).to("cuda")
    for view in (x[3:].unfold(0, 3, 2), x.as_strided((3, 2), (2, 1), 4), x.view(3, 4).diagonal()):
        before, version = x.clone(), x._version
        view[0] = 50.0
        assert x._version > version
        assert not dt.equal(x, before)
        x.copy_(before)


def test_strides_of_strides(double):
    x = dt.arange(12.0).to("cuda")
    inner = x.as_strided((2, 3), (3, 1), 2)
    again = inner.as_strided((2,), (5,), 1)
    assert again.tolist() == [1.0, 6.0]
    again[0] = 70.0
    assert x[1].item() == 70.0


def test_gradients_through_strides(double):
    a = dt.arange(12.0)
    found = []
    for where in ("cpu", "cuda"):
        x = a.clone().to(where).requires_grad_()
        y = (x * 2).as_strided((3, 4), (2, 1), 1) * x[:4]
        y.unfold(1, 2, 1).square().sum().backward()
        found.append(x.grad.cpu())
    assert dt.allclose(*found)
    z = dt.view_as_complex(dt.arange(6.0).to("cuda").view(3, 2))
    dt.view_as_real(z)[1, 0] = 9.0
    assert z[1].item() == 9 + 3j
