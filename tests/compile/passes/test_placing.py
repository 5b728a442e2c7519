"""Gradients of weights computed where leaves take them: which are, and the bits of eager steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.compile import capture
from disttrain.compile.passes import place_products, placing, products
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(products, "LEAST", 0)


class Tied(nn.Module):
    """A weight that is used twice, and one that is used once."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 4, bias=False)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(dt.tanh(self.a(x))))


def single() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


def double() -> nn.Module:
    return single().double()


def trained(
    make: Any, compiled: bool, shape: tuple, hook: bool = False, keep: bool = False
) -> list:
    """Losses, gradients and parameters of some steps, and the primitives that were replayed."""
    dt.manual_seed(2)
    ddp = dist.DistributedDataParallel(make(), bucket_cap_mb=0.0002)
    opt = optim.SGD(ddp.parameters(), lr=0.1)
    weight = ddp.module.get_parameter("0.weight") if make is not Tied else ddp.module.b.weight
    if hook:
        weight.register_hook(lambda g: g * 0.5)
    kept: list = []

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = ddp(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    run: Any = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(dist.get_rank()), []
    for _ in range(6):
        loss = run(dt.tensor(rng.standard_normal(shape)).to(weight.dtype))
        if keep:  # a gradient that somebody holds stays what it is
            kept.append(weight.grad)
        seen.append([loss.item(), *(t.detach().numpy().tobytes() for t in ddp.parameters())])
        seen.append([p.grad.numpy().tobytes() for p in ddp.parameters()])
    return [seen, [g.numpy().tobytes() for g in kept], run.explain(graph=True) if compiled else ""]


@pytest.mark.parametrize("make", [single, double, Tied])
@pytest.mark.parametrize("options", [{}, {"hook": True}, {"keep": True}])
@pytest.mark.parametrize("shape", [(7, 6), (2, 3, 6)])
def test_bits_of_eager_steps(make, options, shape) -> None:
    eager = on_ranks(lambda: trained(make, False, shape, **options))
    found = on_ranks(lambda: trained(make, True, shape, **options))
    assert [r[:2] for r in found] == [r[:2] for r in eager]
    for *_, said in found:
        assert ("store_product" in said) == (make is not Tied and "hook" not in options)


def test_what_others_use_and_what_is_added_up_is_no_such_product(monkeypatch) -> None:
    joined: list = []

    def noted(self: Any, product: Any, store: Any) -> list:
        joined.append(store)
        return [product, store]

    monkeypatch.setattr(placing._Placing, "joined", noted)

    def body() -> None:
        dt.manual_seed(2)
        ddp = dist.DistributedDataParallel(Tied())

        def step(x: Any) -> None:
            ddp(x).square().mean().backward()  # gradients of before are added to

        run = dt.compile(step)
        for _ in range(4):
            run(dt.ones(3, 6))

    on_ranks(body)
    assert {ins.params["effect"].leaf.shape for ins in joined} <= {(4, 6)}


def test_graphs_without_such_stores_stay_as_they_are() -> None:
    graph = capture(lambda x: x * 2)(dt.ones(3)).graph
    assert place_products(graph) is graph
