"""Steps of each bucket's parameters once it is reduced."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import (
    _hook_then_optimizer,
    _OptimizerHookState,
)
from disttrain.distributed.optim import as_functional_optim
from disttrain.errors import ConfigError
from support.simulated import on_ranks

STEPS = 4


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 3))


def batch(rank: int, step: int) -> dt.Tensor:
    rng = np.random.default_rng([rank, step])
    return core.wrap(rng.standard_normal((4, 20)).astype(np.float32))


def arrays(tensors) -> list[np.ndarray]:
    return [t.detach().numpy().copy() for t in tensors]


def assert_close(a: list, b: list, within: float = 0.0) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=within * np.abs(y).max())


def trained(make, size: int) -> list:
    """Parameters after some steps, on every rank. ``make(ddp)`` registers; it gives what to call
    after each backward."""

    def body() -> list:
        dist.init_process_group()
        m = dist.DistributedDataParallel(model(), bucket_cap_mb=0.0005)
        after = make(m)
        for step in range(STEPS):
            m.zero_grad()
            (m(batch(dist.get_rank(), step)) ** 2).mean().backward()
            after()
        out = arrays(m.parameters())
        dist.destroy_process_group()
        return out

    return dist.simulate(body, size).results


def plain_adam(m):
    return dt.optim.Adam(m.parameters(), lr=0.05).step


def nothing() -> None:
    pass


@pytest.mark.simulated
def test_an_optimizer_behind_a_hook_equals_one_after_backward() -> None:
    def behind(m):
        state = _OptimizerHookState(as_functional_optim(dt.optim.Adam, lr=0.05))
        m.register_comm_hook(None, _hook_then_optimizer(allreduce_hook, state))
        return nothing

    for ours, theirs in zip(trained(behind, 2), trained(plain_adam, 2), strict=True):
        assert_close(ours, theirs)


@pytest.mark.simulated
def test_only_chosen_parameters_are_stepped() -> None:
    def behind(m):
        first = next(m.parameters())
        state = _OptimizerHookState(as_functional_optim(dt.optim.SGD, lr=0.05), [first])
        m.register_comm_hook(None, _hook_then_optimizer(allreduce_hook, state))
        return nothing

    before = arrays(model().parameters())
    for ours in trained(behind, 2):
        assert [(a != b).any() for a, b in zip(ours, before, strict=True)] == [True] + [False] * 5


@pytest.mark.simulated
def test_only_what_steps_parameters_is_taken() -> None:
    with pytest.raises(ConfigError, match=r"must implement method step_param\(param, grad\)"):
        _OptimizerHookState(dt.optim.SGD([dt.ones(1, requires_grad=True)], lr=0.1))

    class Own:
        def step_param(self, param, grad):
            pass

    p = dt.ones(1, requires_grad=True)
    assert _OptimizerHookState(Own()).params_to_optimize is None
    assert _OptimizerHookState(Own(), [p, p]).params_to_optimize == {p}
    assert _OptimizerHookState(Own(), []).params_to_optimize == set()


@pytest.mark.simulated
def test_every_parameter_gets_the_reduced_gradient_in_its_shape() -> None:
    def body() -> dict:
        seen = {}

        class Own:
            def step_param(self, param, grad):
                seen[tuple(param.shape)] = (tuple(grad.shape), grad.reshape(-1)[0].item())

        m = dist.DistributedDataParallel(nn.Linear(3, 2))
        m.register_comm_hook(None, _hook_then_optimizer(allreduce_hook, _OptimizerHookState(Own())))
        m(dt.full((1, 3), float(dist.get_rank() * 2))).sum().backward()
        return seen

    assert on_ranks(body) == [{(2, 3): ((2, 3), 1.0), (2,): ((2,), 1.0)}] * 2
