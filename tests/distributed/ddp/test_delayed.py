"""Gradients that are averaged in one go, when another one is there."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.ddp.delayed import Delayed
from disttrain.errors import ConfigError
from support.simulated import on_ranks

DDP = dist.DistributedDataParallel


def line(value: float = 1.0) -> nn.Linear:
    """One weight."""
    m = nn.Linear(1, 1, bias=False).double()
    m.weight.data.fill_(value)
    return m


def x(value: float | None = None):
    """1 on rank 0, 2 on rank 1: a mean of 1.5."""
    return core.wrap(np.full((1, 1), 1.0 + dist.get_rank() if value is None else value))


def grads(m) -> list[float | None]:
    return [None if p.grad is None else p.grad.item() for p in m.parameters()]


def simulated(body, ranks: int = 2, seed: int = 0) -> list:
    def run():
        dist.init_process_group()
        out = body()
        dist.destroy_process_group()
        return out

    return dist.simulate(run, ranks, seed=seed).results


def test_delayed_gradients() -> None:
    """Averaged when the named one is there, in one go."""

    def body():
        inner = nn.Sequential(line(), line(2.0), line(3.0))
        late = [(n, p) for n, p in inner.named_parameters() if n != "0.weight"]
        m = DDP(inner, delay_all_reduce_named_params=late,
                param_to_hook_all_reduce=inner[0].weight)  # fmt: skip
        for _ in range(2):
            m.zero_grad()
            m(x()).sum().backward()
        return grads(m)

    assert simulated(body) == [[9.0, 4.5, 3.0]] * 2


def test_delayed_gradients_need_both_arguments() -> None:
    def body():
        with pytest.raises(ConfigError, match="need to be set at the same time"):
            DDP(line(), param_to_hook_all_reduce=line().weight)

    simulated(body, 1)


def test_gradients_are_views_of_one_memory_for_each_type() -> None:
    def body():
        params = [nn.Parameter(dt.ones(2)), nn.Parameter(dt.ones(3, dtype=dt.float64)),
                  nn.Parameter(dt.ones(2, 2))]  # fmt: skip
        late = Delayed(params, dt.ones(1, requires_grad=True), dist.group.WORLD, lambda: True)
        assert [(f.dtype.name, f.size) for f in late.flats] == [("float32", 6), ("float64", 3)]
        for p in params:
            assert p.grad.shape == p.shape and not p.grad.numpy().any()
        assert np.shares_memory(params[2].grad.numpy(), late.flats[0])
        own = dt.full((2,), 5.0)
        params[0].grad, params[1].grad = own, None
        params[2].grad.fill_(3.0)
        late.clear()  # what is there moves in, what was dropped is zeros, what lies there stays
        return [p.grad.reshape(-1).tolist() for p in params], params[0].grad is not own

    assert on_ranks(body, 1) == [([[5.0] * 2, [0.0] * 3, [3.0] * 4], True)]


def test_without_synchronisation_nothing_travels_and_gradients_add_up() -> None:
    def body():
        trigger, wanted = dt.ones(1, requires_grad=True), [False]
        p = nn.Parameter(dt.ones(1))
        late = Delayed([p], trigger, dist.group.WORLD, lambda: wanted[0])
        scale = dist.get_rank() + 1.0
        seen = []
        for sync in (False, True):
            wanted[0] = sync
            (p * trigger * scale).sum().backward()
            seen.append(p.grad.item())
        late.handle.remove()
        (p * trigger * scale).sum().backward()
        return seen, p.grad.item()

    assert on_ranks(body) == [([1.0, 3.0], 4.0), ([2.0, 3.0], 5.0)]
