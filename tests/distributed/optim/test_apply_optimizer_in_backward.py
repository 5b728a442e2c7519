"""Optimizers that step inside backward equal optimizers that step after it."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.distributed.optim import (
    _apply_optimizer_in_backward,
    _get_in_backward_optimizers,
)
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(3, 2)).double()


def batch(rank: int, step: int) -> dt.Tensor:
    return core.wrap(np.random.default_rng([rank, step]).standard_normal((4, 5)))


def values(m: nn.Module) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in m.parameters()]


def split(m: nn.Module) -> tuple[list, list]:
    params = list(m.parameters())
    return params[:1], params[1:]


def with_optimizers(m: nn.Module) -> nn.Module:
    first, rest = split(m)
    _apply_optimizer_in_backward(optim.SGD, first, {"lr": 0.1, "momentum": 0.5})
    _apply_optimizer_in_backward(optim.Adam, rest, {"lr": 0.05})
    return m


def afterwards(m: nn.Module) -> list:
    first, rest = split(m)
    return [optim.SGD(first, lr=0.1, momentum=0.5), optim.Adam(rest, lr=0.05)]


def assert_same(a: list, b: list) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_steps_in_backward_equal_steps_after_it() -> None:
    m, plain = with_optimizers(model()), model()
    optimizers = afterwards(plain)
    for step in range(3):
        (m(batch(0, step)) ** 2).sum().backward()
        assert all(p.grad is None for p in m.parameters())
        plain.zero_grad()
        (plain(batch(0, step)) ** 2).sum().backward()
        for o in optimizers:
            o.step()
        assert_same(values(m), values(plain))
    assert [type(o) for o in _get_in_backward_optimizers(m)] == [optim.SGD] + [optim.Adam] * 5


def test_several_optimizers_of_one_parameter_all_step() -> None:
    p = nn.Parameter(dt.ones(1))
    for lr in (0.5, 0.25):
        _apply_optimizer_in_backward(optim.SGD, [p], {"lr": lr})
    (p * 1.0).sum().backward()
    assert p.item() == 0.25 and p.grad is None


def test_without_a_hook_they_are_only_noted() -> None:
    p = nn.Parameter(dt.ones(1))
    _apply_optimizer_in_backward(optim.SGD, [p], {"lr": 0.5}, register_hook=False)
    (p * 1.0).sum().backward()
    assert p.item() == 1.0 and p.grad.item() == 1.0
    assert p._optimizer_classes == [optim.SGD] and p._optimizer_kwargs == [{"lr": 0.5}]


@pytest.mark.parametrize("all_of_them", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_under_ddp_they_step_by_the_average(size: int, all_of_them: bool) -> None:
    def body(inside: bool) -> list:
        dist.init_process_group()
        m = model()
        first, rest = split(m)
        others: list = []
        if not inside:
            others = afterwards(m)
        elif all_of_them:
            with_optimizers(m)
        else:
            _apply_optimizer_in_backward(optim.SGD, first, {"lr": 0.1, "momentum": 0.5})
            others = [optim.Adam(rest, lr=0.05)]
        wrapped = dist.DistributedDataParallel(m, bucket_cap_mb=0.0002)
        for step in range(3):
            wrapped.zero_grad()
            (wrapped(batch(dist.get_rank(), step)) ** 2).sum().backward()
            assert not inside or first[0].grad is None
            for o in others:
                o.step()
        out = values(m)
        dist.destroy_process_group()
        return out

    inside = dist.simulate(body, size, args=(True,)).results
    after = dist.simulate(body, size, args=(False,)).results
    for a, b in zip(inside, after, strict=True):
        assert_same(a, b)


def test_too_late_is_refused() -> None:
    def body() -> str:
        dist.init_process_group()
        m = dist.DistributedDataParallel(model())
        try:
            with_optimizers(m.module)
        except ConfigError as error:
            said = str(error)
        dist.destroy_process_group()
        return said

    assert "before the module is wrapped" in dist.simulate(body, 1).results[0]
