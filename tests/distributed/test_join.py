"""Uneven inputs: ranks that have no more shadow the others, and all end with one model."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.errors import CommError, ConfigError
from disttrain_launcher import launch
from support.rounding import Sums

DDP = dist.DistributedDataParallel
RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((40, 4)), RNG.integers(0, 3, 40)
SUMS = Sums(terms=40, depth=2 * 2 * 5)  # rows; layers, there and back, and steps


def net() -> nn.Module:
    manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def params(m) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in m.parameters()]


def same(a: list, b: list) -> None:
    for p, q in zip(a, b, strict=True):
        np.testing.assert_array_equal(p, q)


def alike(a: list, b: list) -> None:
    """... but for rounding."""
    for p, q in zip(a, b, strict=True):
        SUMS.equal(p, q)


def average(state, bucket):
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0])


def uneven(hook: bool = False, micro: int = 1, **options) -> list[np.ndarray]:
    """Rank r has 2 + r steps of 4 samples."""
    dist.init_process_group()
    rank = dist.get_rank()
    m = DDP(net(), **options)
    if hook:
        m.register_comm_hook(None, average)
    optimizer = optim.SGD(m.parameters(), lr=0.3)
    with m.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            rows = slice(10 * rank + step, 10 * rank + step + 4)
            for i in range(micro - 1):
                with m.no_sync():
                    loss(m, slice(rows.start + i, rows.start + i + 1)).backward()
            loss(m, rows).backward()
            optimizer.step()
    dist.destroy_process_group()
    return params(m)


def loss(m, rows: slice):
    return F.cross_entropy(m(core.wrap(X[rows])), core.wrap(Y[rows]))


def uneven_alone(ranks: int, micro: int = 1) -> list[np.ndarray]:
    """The same by one process: ranks that are through add nothing to the sum."""
    m = net()
    optimizer = optim.SGD(m.parameters(), lr=0.3)
    for step in range(1 + ranks):
        optimizer.zero_grad()
        for rank in range(ranks):
            if step < 2 + rank:
                rows = slice(10 * rank + step, 10 * rank + step + 4)
                parts = [slice(rows.start + i, rows.start + i + 1) for i in range(micro - 1)]
                for part in [*parts, rows]:
                    (loss(m, part) / ranks).backward()
        optimizer.step()
    return params(m)


OPTIONS = {
    "plain": {},
    "buckets": {"bucket_cap_mb": 1e-4},
    "unused": {"find_unused_parameters": True},
    "hook": {"hook": True, "bucket_cap_mb": 1e-4},
    "static": {"static_graph": True},
    "accumulated": {"micro": 3},
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", list(OPTIONS))
def test_joined_ranks_add_zeros(name: str) -> None:
    results = dist.simulate(lambda: uneven(**OPTIONS[name]), 3).results
    for got in results:
        same(got, results[0])
        alike(got, uneven_alone(3, OPTIONS[name].get("micro", 1)))


def test_on_real_ranks() -> None:
    for got in launch(lambda: uneven(bucket_cap_mb=1e-4), 2):
        alike(got, uneven_alone(2))


@pytest.mark.simulated
def test_a_rank_without_any_input() -> None:
    def body() -> list[float]:
        dist.init_process_group()
        m = DDP(nn.Linear(1, 1, bias=False).double())
        with m.join(divide_by_initial_world_size=False):
            for _ in range(3 if dist.get_rank() else 0):
                m.zero_grad()
                m(core.wrap(np.full((1, 1), 4.0))).sum().backward()
        after = m.module.weight.grad
        m.zero_grad()
        m(core.wrap(np.full((1, 1), 1.0 + dist.get_rank()))).sum().backward()
        return [None if after is None else after.item(), m.module.weight.grad.item()]

    assert dist.simulate(body, 2).results == [[None, 1.5], [4.0, 1.5]]


@pytest.mark.simulated
def test_buffers_come_from_a_rank_that_has_input() -> None:
    def body() -> float:
        dist.init_process_group()
        inner = nn.BatchNorm1d(1).double()
        m = DDP(inner)
        with m.join():
            for _ in range(2 + dist.get_rank()):
                inner.running_mean.fill_(1.0 + dist.get_rank())
                inner.eval()
                m(core.wrap(np.ones((2, 1)))).sum().backward()
        return inner.running_mean.item()

    assert dist.simulate(body, 3).results == [3.0] * 3


@pytest.mark.simulated
def test_all_raise_when_one_has_no_more() -> None:
    def body() -> tuple[int, str]:
        dist.init_process_group()
        m, steps = DDP(net()), 0
        try:
            with m.join(throw_on_early_termination=True):
                for step in range(1 + 2 * dist.get_rank()):
                    loss(m, slice(0, 2)).backward()
                    steps = step + 1
        except CommError as error:
            return steps, str(error)
        return steps, ""

    found = dist.simulate(body, 2).results
    assert [steps for steps, _ in found] == [1, 1]
    assert "Rank 0 exhausted all inputs" in found[0][1]
    assert "at least one rank that exhausted inputs" in found[1][1]


@pytest.mark.simulated
def test_disabled_it_does_nothing_and_errors_pass() -> None:
    def body() -> str:
        dist.init_process_group()
        m = DDP(net())
        with m.join(enable=False):
            loss(m, slice(0, 2)).backward()
        with pytest.raises(ZeroDivisionError):
            with m.join():
                loss(m, slice(0, 2)).backward()
                raise ZeroDivisionError
        loss(m, slice(0, 2)).backward()
        return str(m._join_config.enable)

    assert dist.simulate(body, 2).results == ["False"] * 2


class Counter(dist.Joinable):
    """Sums one number per iteration over the ranks that have input."""

    def __init__(self) -> None:
        super().__init__()
        self.total, self.ended = 0, None

    def __call__(self) -> None:
        dist.Join.notify_join_context(self)
        self.add(1)

    def add(self, value: int) -> None:
        t = core.wrap(np.array([value]))
        dist.all_reduce(t)
        self.total += int(t.item())

    def join_hook(self, **kwargs):
        return CounterHook(self)

    join_device = property(lambda self: core.wrap(np.zeros(1)).device)
    join_process_group = property(lambda self: dist.group.WORLD)


class CounterHook(dist.JoinHook):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def main_hook(self) -> None:
        self.counter.add(0)

    def post_hook(self, is_last_joiner: bool) -> None:
        self.counter.ended = is_last_joiner


@pytest.mark.simulated
def test_several_joinables_in_one_block() -> None:
    def body() -> tuple:
        dist.init_process_group()
        m, counter = DDP(nn.Linear(1, 1, bias=False).double()), Counter()
        with dist.Join([counter, m], divide_by_initial_world_size=False):
            for _ in range(1 + dist.get_rank()):
                m.zero_grad()
                counter()
                m(core.wrap(np.full((1, 1), 3.0))).sum().backward()
        return counter.total, counter.ended, m.module.weight.grad.item()

    assert dist.simulate(body, 3).results == [(6, False, 3.0), (6, False, 3.0), (6, True, 3.0)]


@pytest.mark.simulated
def test_what_join_refuses() -> None:
    def body() -> None:
        dist.init_process_group()
        with pytest.raises(ConfigError, match="at least one joinable"):
            dist.Join([])
        m = DDP(net(), process_group=dist.new_group([0]))
        with pytest.raises(ConfigError, match="multiple process groups"):
            dist.Join([m, Counter()])

    dist.simulate(body, 1)


@pytest.mark.simulated
def test_weights_in_a_join_block_give_the_mean_over_all_samples() -> None:
    def body() -> list[float]:
        dist.init_process_group()
        m, out = DDP(nn.Linear(1, 1, bias=False).double()), []
        with m.join():
            for step in range(1 + dist.get_rank()):
                m.zero_grad()
                count = 1 + dist.get_rank() + step
                x = core.wrap(np.full((count, 1), 1.0 + dist.get_rank()))
                with m.weight(count):
                    m(x).mean().backward()
                out.append(m.module.weight.grad.item())
        return out

    first = (1 * 1 + 2 * 2) / 3
    np.testing.assert_allclose(dist.simulate(body, 2).results[1], [first, 2.0], rtol=1e-14)
