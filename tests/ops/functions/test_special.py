"""Special functions where they have no derivative."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import AutogradError


def test_the_order_of_the_incomplete_gamma_function_has_no_derivative():
    a, x = dt.ones(3, requires_grad=True), dt.ones(3, requires_grad=True)
    with pytest.raises(AutogradError, match=r"igamma.*not implemented.*detach"):
        dt.igamma(a, x).sum().backward()
    dt.igamma(a.detach(), x).sum().backward()
    assert x.grad is not None


def test_a_step_function_without_a_derivative_says_so():
    a, b = dt.ones(3, requires_grad=True), dt.ones(3)
    with pytest.raises(AutogradError, match=r"heaviside.*first argument is not implemented"):
        (dt.heaviside(a, b) + a).sum().backward()


def test_sinc_of_half_types_is_rounded_once():
    x = dt.tensor([1.0, 2.0, 0.3, 0.0])
    for kind in (dt.float16, dt.bfloat16):
        out = dt.special.sinc(x.to(kind))
        assert dt.equal(out, dt.special.sinc(x.to(kind).float()).to(kind))
