"""Differentiable operations over ranks: every one is held to be the adjoint of another."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import ReduceOp
from disttrain.distributed.nn import functional as across
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def dot(a, b):
    return float((a.detach() * b).sum().item())


def test_gradients_are_adjoints():
    """The sum over ranks of <f(x), g> is that of <x, gradient>."""

    def body():
        dt.manual_seed(dist.get_rank())
        found = []
        calls = {
            "all_reduce": across.all_reduce,
            "broadcast": lambda x: across.broadcast(x, 1),
            "reduce": lambda x: across.reduce(x, 2),  # (only its root has a result)
            "all_gather": lambda x: across.all_gather(x)[0],
        }
        for name, call in calls.items():
            x = dt.randn(4).requires_grad_()
            y = call(x)
            g = dt.randn(*y.shape) * (name != "reduce" or dist.get_rank() == 2)
            y.backward(g)
            found.append((dot(y, g), dot(x.grad, x.detach())))
        return found

    for pairs in zip(*on_ranks(body, 3), strict=True):
        ahead, back = np.sum(pairs, axis=0)
        assert ahead == pytest.approx(back, rel=1e-4, abs=1e-5)


def test_products_have_the_gradient_of_products():
    def body():
        x = dt.full((1,), float(dist.get_rank() + 1)).requires_grad_()
        across.all_reduce(x, op=ReduceOp.PRODUCT).sum().backward()
        return x.grad.item()

    assert on_ranks(body, 3) == pytest.approx([3 * 6.0, 3 * 3.0, 3 * 2.0])
