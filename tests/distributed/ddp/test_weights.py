"""Weighted gradients: the mean over all samples or tokens, whoever has how many of them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.errors import AutogradError, ConfigError
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=30, depth=2 * 2)

DDP = dist.DistributedDataParallel
RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((30, 4)), RNG.integers(0, 3, 30)
PARTS = ((3, 5, 1), (7, 2, 4), (0, 6, 2))  # samples per rank and part of the accumulated batch


def net() -> nn.Module:
    manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def average(state, bucket):
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0])


def weighted(loss: str, hook: bool, cap: float | None) -> list[np.ndarray]:
    dist.init_process_group()
    m = DDP(net(), bucket_cap_mb=cap)
    if hook:
        m.register_comm_hook(None, average)
    counts = PARTS[dist.get_rank()]
    start = sum(map(sum, PARTS[: dist.get_rank()]))
    for _ in range(2):
        m.zero_grad()
        at = start
        for k, count in enumerate(counts):
            rows = slice(at, at + count)
            at += count
            with m.no_sync() if k < 2 else nullcontext(), m.weight(count, loss):
                out = F.cross_entropy(m(core.wrap(X[rows])), core.wrap(Y[rows]), reduction="sum")
                (out / count if loss == "mean" and count else out).backward()
    dist.destroy_process_group()
    return [p.grad.numpy().copy() for p in m.parameters()]


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("cap", [None, 1e-4])
def test_the_exact_mean_over_all_samples(loss: str, hook: bool, cap: float | None) -> None:
    m = net()
    F.cross_entropy(m(core.wrap(X)), core.wrap(Y)).backward()
    for grads in dist.simulate(lambda: weighted(loss, hook, cap), 3).results:
        for got, p in zip(grads, m.parameters(), strict=True):
            SUMS.equal(got, p.grad.numpy())


def one() -> DDP:
    return DDP(nn.Linear(1, 1, bias=False).double())


def back(m, value: float = 1.0) -> None:
    m(core.wrap(np.full((1, 1), value))).sum().backward()


def test_large_counts_are_exact_in_half_types() -> None:
    def body() -> float:
        dist.init_process_group()
        m = DDP(nn.Linear(1, 1, bias=False).bfloat16())
        with m.weight(1 + 2 * dist.get_rank()):
            m(core.wrap(np.full((1, 1), 4.0 * dist.get_rank())).bfloat16()).sum().backward()
        return m.module.weight.grad.float().item()

    assert dist.simulate(body, 2).results == [3.0, 3.0]


def test_no_samples_at_all() -> None:
    """The mean over nothing of a rank is no number, and does not count; over nothing at all, 0."""

    def body() -> list[float]:
        dist.init_process_group()
        out = []
        for count in (2 * dist.get_rank(), 0):
            m = one()
            with m.weight(count):
                back(m, 3.0 if count else float("nan"))
            out.append(m.module.weight.grad.item())
        return out

    assert dist.simulate(body, 2).results == [[3.0, 0.0]] * 2


def test_weights_on_some_ranks_only() -> None:
    def body() -> str:
        dist.init_process_group()
        m = one()
        with m.weight(3) if dist.get_rank() == 1 else nullcontext():
            with pytest.raises(AutogradError) as error:
                back(m)
        return str(error.value)

    texts = dist.simulate(body, 2).results
    assert texts[0] == texts[1]
    assert "rank 1 gave its gradients a weight and rank 0 did not" in texts[0]


def test_weights_for_some_backwards_only() -> None:
    def body() -> None:
        dist.init_process_group()
        m = one()
        with m.no_sync():
            back(m)
        with m.weight(2), pytest.raises(AutogradError, match="had a weight and some had none"):
            back(m)

    dist.simulate(body, 1)


def test_what_is_no_weight() -> None:
    def body() -> None:
        dist.init_process_group()
        for count, loss in ((-1, "mean"), (float("nan"), "mean"), (2, "median")):
            with pytest.raises(ConfigError, match="not negative"), one().weight(count, loss):
                pass

    dist.simulate(body, 1)


def ask(m: DDP, value: float, count: int, sync: bool = True) -> None:
    with nullcontext() if sync else m.no_sync(), m.weight(count):
        m(core.wrap(np.full((1, 1), value))).sum().backward()


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_means_of_several_steps_add_up(hook: bool, zeros: bool) -> None:
    """Without a zero_grad between: as gradients without weights do."""

    def body() -> list[float]:
        dist.init_process_group()
        m, rank = one(), dist.get_rank()
        if hook:
            m.register_comm_hook(None, average)
        if zeros:
            m.module.weight.grad = core.wrap(np.zeros((1, 1)))
        found = []
        for _ in range(2):
            ask(m, 2.0 + rank, 1 + rank)  # (2 * 1 + 3 * 2) / 3
            found.append(m.module.weight.grad.item())
        ask(m, 4.0, 1, sync=False)
        ask(m, 8.0, 3)  # (4 * 1 + 8 * 3) / 4
        return [*found, m.module.weight.grad.item()]

    for found in dist.simulate(body, 2).results:
        assert found == pytest.approx([8 / 3, 16 / 3, 16 / 3 + 7])


def test_a_weight_whose_gradients_were_dropped_does_not_count() -> None:
    def body() -> float:
        dist.init_process_group()
        m = one()
        ask(m, 5.0, 7, sync=False)
        m.zero_grad()
        ask(m, 2.0, 1, sync=False)
        ask(m, 4.0, 3)
        return m.module.weight.grad.item()

    assert dist.simulate(body, 2).results == [3.5, 3.5]


def test_nothing_stays_of_a_step_whose_weights_did_not_fit() -> None:
    def body() -> float:
        dist.init_process_group()
        m = one()
        with pytest.raises(AutogradError, match="gave its gradients a weight"):
            with m.weight(5) if dist.get_rank() else nullcontext():
                m(core.wrap(np.ones((1, 1)))).sum().backward()
        m.zero_grad()
        ask(m, 2.0 + dist.get_rank(), 1)
        return m.module.weight.grad.item()

    assert dist.simulate(body, 2).results == [2.5, 2.5]


def test_a_parameter_that_one_rank_does_not_use_keeps_its_mean() -> None:
    class Maybe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, x, both: bool):
            return self.a(x) + self.b(x) if both else self.a(x)

    def body() -> list[float]:
        dist.init_process_group()
        m = DDP(Maybe().double(), find_unused_parameters=True)
        found = []
        for step in range(3):  # all use b, rank 1 does, nobody does
            with m.weight(1 + dist.get_rank()):
                both = dist.get_rank() >= step
                m(core.wrap(np.full((1, 1), 3.0)), both or not step).sum().backward()
            found.append(m.module.b.weight.grad.item())
        return found

    for found in dist.simulate(body, 2).results:
        assert found == pytest.approx([3, 5, 5])
