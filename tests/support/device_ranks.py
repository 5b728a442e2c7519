"""Ranks with a device each: threads of one process over a double of devices and NCCL's stand-in.

def body():
    return dist.get_rank()

assert on_devices(double, body) == [0, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from standins.nccl.binding import StandIn

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.groups.state import group_or_default


def on_devices(double: Any, body: Callable[[], Any], size: int = 2, backend: str = "nccl") -> list:
    """The results of ``body()`` by rank, rank r on device r; the first failure is raised."""
    if double.binding is None:
        double.binding = StandIn(double)

    def rank() -> Any:
        dist.init_process_group(backend)
        double.use(dist.get_rank())
        result = body()
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, size, seed=size).results


def meet() -> None:
    """All ranks come here; no device is waited for."""
    group_or_default().all_reduce(np.zeros(1))


def waits_in(double: Any, step: Callable[[], Any]) -> list[str]:
    """How often the host waited for a device while all ranks did ``step``."""
    meet()
    if dist.get_rank() == 0:
        double.counts.clear()
    meet()
    step()
    meet()
    found = list(double.counts.waits)
    meet()
    return found


def net() -> Any:
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def data(rank: int) -> Any:
    return dt.tensor(np.random.default_rng(rank).standard_normal((4, 6)).astype(np.float32))


def loss_of(model: Any, x: Any) -> Any:
    return model(x).float().pow(2).mean()


def alone(optimizer_of: Callable, size: int, steps: int = 3, make: Callable = net) -> np.ndarray:
    """The parameters that one process comes to, with the batches of ``size`` ranks."""
    model = make()
    optimizer = optimizer_of(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        for rank in range(size):
            (loss_of(model, data(rank)) / size).backward()
        optimizer.step()
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def flat(params: Any) -> np.ndarray:
    """Parameters as one vector on the host; of DTensors the whole."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in params]
    return np.concatenate([p.detach().cpu().numpy().ravel() for p in whole])


def equal(got: list, want: np.ndarray) -> None:
    for mine in got:
        np.testing.assert_allclose(mine[: want.size], want, rtol=1e-4, atol=1e-5)
