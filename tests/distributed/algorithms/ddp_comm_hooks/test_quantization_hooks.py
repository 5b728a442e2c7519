"""Gradients as numbers of eight bits."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import DistributedDataParallel
from disttrain.distributed.algorithms.ddp_comm_hooks import quantization_hooks as qh
from support.simulated import on_ranks


def test_rows_come_back_within_half_a_step_and_zero_exactly():
    rows = np.random.default_rng(0).normal(size=(4, 100)).astype(np.float32)
    rows[:, 7] = 0.0
    rows[2] = np.abs(rows[2])
    scales = qh.ranges(rows)
    numbers = qh.quantize(rows, scales)
    back = qh.dequantized_mean(numbers[None], scales[None])
    assert numbers.dtype == np.uint8 and (back[:, 7] == 0).all()
    assert (np.abs(back - rows) <= 0.51 * scales[0][:, None] + 1e-6).all()


def test_means_are_over_ranks():
    rows = [np.full((1, 3), v, np.float32) for v in (1.0, 3.0)]
    scales = [qh.ranges(r) for r in rows]
    numbers = [qh.quantize(r, s) for r, s in zip(rows, scales, strict=True)]
    found = qh.dequantized_mean(np.stack(numbers), np.stack(scales))
    np.testing.assert_allclose(found, 2.0, rtol=1e-2)


def test_hooks_average_gradients():
    def body():
        found = []
        for hook in (qh.quantization_pertensor_hook, qh.quantization_perchannel_hook, None):
            dt.manual_seed(0)
            model = DistributedDataParallel(nn.Linear(4, 3))
            if hook is not None:
                model.register_comm_hook(None, hook)
            x = dt.full((2, 4), float(dist.get_rank() + 1))
            model(x).square().sum().backward()
            found.append(model.module.weight.grad.numpy())
        return found

    for tensor, channel, exact in on_ranks(body, 2):
        near = 0.02 * np.abs(exact).max()
        np.testing.assert_allclose(tensor, exact, atol=near)
        np.testing.assert_allclose(channel, exact, atol=near)
