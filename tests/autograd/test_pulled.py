"""Functions that say their gradients themselves."""

from __future__ import annotations

import disttrain as dt
from disttrain.autograd.pulled import pulled


def test_gradients_as_said():
    x = dt.tensor(3.0, requires_grad=True)
    a, b = pulled(lambda v: ((v * 2, v * 3), lambda g, h: [g * 10 + h]), x)
    assert (a.item(), b.item()) == (6.0, 9.0)
    (a + 2 * b).backward()
    assert x.grad.item() == 12.0
