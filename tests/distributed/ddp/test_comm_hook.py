"""Communication hooks: what they are given, what they return, in which order they run."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from disttrain import context, core, nn
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.errors import AutogradError, ConfigError, WaitTimeout
from disttrain.futures import Future
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=4, depth=2 * 2 * 3)


def net() -> nn.Module:
    manual_seed(2)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def mean_hook(state, bucket):
    """What DDP does without a hook."""
    state.append((bucket.index(), bucket.is_last(), bucket.buffer().numel(),
                  [tuple(p.shape) for p in bucket.parameters()],
                  [tuple(g.shape) for g in bucket.gradients()]))  # fmt: skip
    tensor = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(tensor, async_op=True)
    return work.get_future().then(lambda f: f.value()[0])


def step(m) -> list[np.ndarray]:
    m.zero_grad()
    x = core.wrap(np.arange(6.0).reshape(2, 3) * (1 + dist.get_rank()))
    m(x).sum().backward()
    return [p.grad.numpy().copy() for p in m.parameters()]


def hooked(cap: float | None = None) -> tuple:
    dist.init_process_group()
    plain, m = (dist.DistributedDataParallel(net(), bucket_cap_mb=cap) for _ in range(2))
    calls: list = []
    m.register_comm_hook(calls, mean_hook)
    out = [(step(plain), step(m)) for _ in range(3)]
    dist.destroy_process_group()
    return out, calls


@pytest.mark.parametrize("run", ["shm", pytest.param("sim", marks=pytest.mark.simulated)])
def test_a_hook_that_averages_equals_none(run: str) -> None:
    results = launch(hooked, 2) if run == "shm" else dist.simulate(hooked, 3).results
    for steps, calls in results:
        for a, b in steps:
            for p, q in zip(a, b, strict=True):
                SUMS.equal(p, q)
        shapes = [(2,), (2, 4), (4,), (4, 3)]
        assert calls[0] == (0, True, 26, shapes, shapes)


@pytest.mark.simulated
def test_buckets_are_rebuilt_after_the_first_iteration_and_come_in_order() -> None:
    for _, calls in dist.simulate(lambda: hooked(1e-4), 2).results:
        assert [c[:3] for c in calls[:1]] == [(0, True, 26)]
        assert [c[0] for c in calls[1:]] == list(range(len(calls) // 2)) * 2
        assert [c[1] for c in calls[1:]].count(True) == 2


@pytest.mark.simulated
def test_nothing_is_divided_and_what_the_future_gives_counts() -> None:
    def hook(state, bucket):
        future = Future()
        future.set_result(bucket.buffer() + 1)
        return future

    def body() -> float:
        dist.init_process_group()
        m = dist.DistributedDataParallel(nn.Linear(1, 1, bias=False).double())
        m.register_comm_hook(None, hook)
        m(core.wrap(np.full((1, 1), 5.0 + dist.get_rank()))).sum().backward()
        return m.module.weight.grad.item()

    assert dist.simulate(body, 2).results == [6.0, 7.0]


@pytest.mark.simulated
def test_set_buffer_and_a_callback_that_communicates() -> None:
    """Callbacks run at the end of backward, in bucket order, on all ranks alike."""

    def again(future):
        value = future.value()[0]
        dist.all_reduce(value)
        return value

    def hook(state, bucket):
        bucket.set_buffer(bucket.buffer() * 2)
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)

    def body() -> list:
        dist.init_process_group()
        m = dist.DistributedDataParallel(net(), bucket_cap_mb=1e-5)
        m.register_comm_hook(None, hook)
        step(m)
        ones = nn.Linear(1, 1).double()
        assert ones.bias.grad is None
        return step(m)[3].tolist()

    for seed in range(5):
        for got in dist.simulate(body, 2, seed=seed).results:
            assert got == [2.0 * 2 * 2 * 2] * 2  # 2 samples, doubled, summed twice over 2 ranks


@pytest.mark.simulated
def test_only_one_hook_and_only_a_future() -> None:
    def body() -> None:
        dist.init_process_group()
        m = dist.DistributedDataParallel(net())
        with pytest.raises(TypeError, match="must be callable"):
            m.register_comm_hook(None, 1)
        m.register_comm_hook(None, lambda state, bucket: bucket.buffer())
        with pytest.raises(ConfigError, match="only be called once"):
            m.register_comm_hook(None, mean_hook)
        with pytest.raises(TypeError, match="returned a Tensor; needed is a"):
            step(m)

    dist.simulate(body, 1)


@pytest.mark.simulated
def test_accumulated_gradients_reach_the_hook() -> None:
    def body() -> list:
        dist.init_process_group()
        m = dist.DistributedDataParallel(nn.Linear(1, 1, bias=False).double())
        m.register_comm_hook([], mean_hook)
        x = core.wrap(np.full((1, 1), 1.0 + dist.get_rank()))
        with m.no_sync():
            m(x).sum().backward()
        m(x).sum().backward()
        return m.module.weight.grad.item()

    assert dist.simulate(body, 2).results == [3.0, 3.0]


class Branches(nn.Module):
    """Skips a layer when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(1, 1).double(), nn.Linear(1, 1).double()

    def forward(self, x, both: bool):
        return self.a(x) + self.b(x) if both else self.a(x)


@pytest.mark.simulated
def test_a_missing_gradient_leaves_nobody_waiting() -> None:
    """The rank that misses it sends zeros through the hook, and raises."""

    def body() -> str:
        dist.init_process_group()
        m = dist.DistributedDataParallel(Branches(), bucket_cap_mb=1e-6)
        m.register_comm_hook([], mean_hook)
        try:
            m(core.wrap(np.ones((1, 1))), both=dist.get_rank() == 0).sum().backward()
        except AutogradError as error:
            return str(error)
        return str(m.module.b.weight.grad.item())

    fine, text = dist.simulate(body, 2).results
    assert fine == "0.5"
    assert "on rank 1" in text and "b.weight, b.bias" in text and "b (Linear)" in text


@pytest.mark.simulated
def test_a_future_that_never_comes_ends_at_the_deadline_of_the_group() -> None:
    def body() -> None:
        dist.init_process_group(timeout=timedelta(seconds=5))
        m = dist.DistributedDataParallel(net())
        m.register_comm_hook(None, lambda state, bucket: Future())
        beside = context.now() + 1e3
        if dist.get_rank() == 1:
            context.sleep(beside)  # somebody can go on, so it is no deadlock
        with pytest.raises(WaitTimeout, match="the communication hook returned for bucket 0"):
            m(core.wrap(np.ones((1, 3)))).sum().backward()

    dist.simulate(body, 2)
