"""Derivatives that are right pass, wrong ones do not."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd import Function
from disttrain.func.checking import check_grads


class Wrong(Function):
    """Half of the derivative of the square."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@pytest.mark.parametrize("order", [1, 2])
def test_right_ones(order):
    x, y = dt.randn(3, dtype=dt.float64), dt.randn(3, dtype=dt.float64)
    check_grads(lambda x, y: [x.sin() * y, (x * y).sum()], [x, y], order)


def test_wrong_ones():
    with pytest.raises(AssertionError, match="reverse"):
        check_grads(lambda x: [Wrong.apply(x)], [dt.ones(3, dtype=dt.float64)], 1, ["rev"])
