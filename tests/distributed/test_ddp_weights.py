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
            np.testing.assert_allclose(got, p.grad.numpy(), rtol=0, atol=1e-12)


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
