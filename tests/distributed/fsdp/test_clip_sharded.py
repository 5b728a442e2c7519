"""Clipping by the norm of all elements of all gradients, sharded ones and plain ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import fully_shard
from disttrain.nn.utils import clip_grad_norm_, get_total_norm
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3 + 1)


def network() -> nn.Module:
    manual_seed(5)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 2)).double()


def gradients(m: nn.Module) -> list[core.Tensor]:
    m(core.wrap(np.linspace(-1, 1, 24).reshape(4, 6))).square().sum().backward()
    return list(m.parameters())


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5, math.inf, -math.inf])
def test_the_norm_is_that_of_one_process(order: float) -> None:
    plain = gradients(network())
    want = float(get_total_norm([p.grad for p in plain], order))
    clip_grad_norm_(plain, 0.1, order)
    kept = [p.grad.numpy() for p in plain]

    def rank() -> tuple[float, list[np.ndarray]]:
        dist.init_process_group()
        m = network()
        fully_shard(m[0])
        fully_shard(m[2])  # the last layer's parameters stay plain
        params = gradients(m)
        got = float(clip_grad_norm_(params, 0.1, order))
        grads = [p.grad for p in params]
        out = [g.full_tensor() if isinstance(g, dist.tensor.DTensor) else g for g in grads]
        result = got, [g.numpy() for g in out]
        dist.destroy_process_group()
        return result

    for got, grads in dist.simulate(rank, 3).results:
        assert got == pytest.approx(want, rel=1e-12)
        for a, b in zip(grads, kept, strict=True):
            SUMS.equal(a, b)
