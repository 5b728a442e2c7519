"""Models averaged now and then: when, over whom, and what an optimizer around it keeps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from disttrain.distributed.algorithms.model_averaging import utils
from disttrain.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from disttrain.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from disttrain.distributed.optim import PostLocalSGDOptimizer
from disttrain.errors import ConfigError
from disttrain.nn.utils.swa import AveragedModel
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def own(rank: int, steps: int) -> float:
    """A parameter that moves by rank + 1 at every step, with nobody averaging."""
    return float((rank + 1) * steps)


def drift(averager, steps: int) -> list[float]:
    """The parameter after every step."""
    p = nn.Parameter(dt.zeros(3).double())
    out = []
    for _ in range(steps):
        p.grad = dt.ones(3).double()
        p.data.add_(float(dist.get_rank() + 1))
        averager.average_parameters([p])
        out.append(p[0].item())
    return out


@pytest.mark.parametrize("period, warmup", [(2, 0), (3, 2), (4, 1)])
def test_periods_and_warm_up(period: int, warmup: int) -> None:
    results = on_ranks(lambda: drift(PeriodicModelAverager(period, warmup), 8), 3)
    here = [0.0] * 3
    for step in range(8):
        here = [v + r + 1 for r, v in enumerate(here)]
        if step >= warmup and (step - warmup) % period == 0:
            here = [sum(here) / 3] * 3
        assert [r[step] for r in results] == pytest.approx(here)


def test_a_hierarchy_averages_over_larger_groups_more_rarely() -> None:
    results = on_ranks(lambda: drift(HierarchicalModelAverager({2: 2, 4: 4}, 1), 9), 4)
    here = [0.0] * 4
    for step in range(9):
        here = [v + r + 1 for r, v in enumerate(here)]
        if step and step % 4 == 0:
            here = [sum(here) / 4] * 4
        elif step and step % 2 == 0:
            here = [sum(here[:2]) / 2] * 2 + [sum(here[2:]) / 2] * 2
        assert [r[step] for r in results] == pytest.approx(here)


def test_averages_keep_memory_types_and_what_has_no_gradient() -> None:
    def body() -> tuple:
        rank = dist.get_rank()
        ps = [nn.Parameter(t) for t in (
            dt.full((2, 2), 1.0 + rank), dt.full((3,), 2.0 * rank).double(),
            dt.full((1,), 4.0 * rank), dt.full((4,), 3.0 + rank).bfloat16(),
        )]  # fmt: skip
        before = [p.array for p in ps]
        for p in (*ps[:2], ps[3]):
            p.grad = dt.zeros_like(p)
        version = ps[0]._version
        utils.average_parameters_or_parameter_groups([{"params": ps[:3]}, {"params": ps[3:]}], None)
        same = all(p.array is a for p, a in zip(ps, before, strict=True))
        return same, ps[0]._version > version, [p.float().mean().item() for p in ps]

    for rank, (same, noticed, means) in enumerate(on_ranks(body)):
        assert same and noticed
        assert means == [1.5, 1.0, 4.0 * rank, 3.5]


def test_an_average_of_models_may_be_averaged_too() -> None:
    """Exponential averages have no gradients; all of their parameters are meant."""

    def body() -> list:
        rank = dist.get_rank()
        m = nn.Linear(2, 1, bias=False)
        m.weight.data.fill_(float(rank))
        ema = AveragedModel(m)
        ema.update_parameters(m)
        utils.average_parameters(ema.parameters(), None)
        return next(ema.parameters()).tolist()

    assert on_ranks(body) == [[[0.5, 0.5]]] * 2


def test_large_models_travel_in_several_messages(monkeypatch) -> None:
    monkeypatch.setattr(utils, "CHUNK_BYTES", 64)

    def body() -> list:
        ps = [nn.Parameter(dt.full((n,), float(dist.get_rank()))) for n in (5, 9, 30, 1, 1)]
        utils.average_parameters(ps, None)
        return [p.tolist() for p in ps]

    for values in on_ranks(body):
        assert all(set(np.ravel(v)) == {0.5} for v in values)


def test_ranks_outside_the_group_do_nothing() -> None:
    def body() -> float:
        group = dist.new_group([0, 1])
        p = nn.Parameter(dt.full((1,), float(dist.get_rank())))
        utils.average_parameters([p], group)
        return p.item()

    assert on_ranks(body, 3) == [0.5, 0.5, 2.0]


# --- the optimizer -------------------------------------------------------------------------------


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Linear(3, 2).double()


def backward(m: nn.Module, step: int, rank: int) -> None:
    x = dt.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 3)))
    (m(x) ** 2).mean().backward()


def test_post_local_sgd_with_its_hook() -> None:
    """Two warm-up steps as DDP, then local steps, averaged every second one."""

    def body() -> list:
        rank = dist.get_rank()
        m = dist.DistributedDataParallel(model())
        m.register_comm_hook(PostLocalSGDState(None, None, 2, False), post_localSGD_hook)
        o = PostLocalSGDOptimizer(
            optim.SGD(m.parameters(), lr=0.1, momentum=0.5), PeriodicModelAverager(2, 2)
        )
        out = []
        for step in range(6):
            o.zero_grad()
            backward(m, step, rank)
            o.step()
            out.append(m.module.weight.detach().numpy().copy())
        return out

    def by_hand() -> list:
        models = [model() for _ in range(2)]
        optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in models]
        out = []
        for step in range(6):
            for rank, (m, o) in enumerate(zip(models, optimizers, strict=True)):
                o.zero_grad()
                backward(m, step, rank)
            pairs = list(zip(*(m.parameters() for m in models), strict=True))
            if step < 2:
                for a, b in pairs:
                    a.grad = b.grad = (a.grad + b.grad) / 2
            for o in optimizers:
                o.step()
            if step >= 2 and step % 2 == 0:
                for a, b in pairs:
                    mean = (a.detach() + b.detach()) / 2
                    a.data.copy_(mean)
                    b.data.copy_(mean)
            out.append([m.weight.detach().numpy().copy() for m in models])
        return out

    wanted = by_hand()
    for rank, steps in enumerate(on_ranks(body)):
        for step, got in enumerate(steps):
            np.testing.assert_allclose(got, wanted[step][rank], rtol=0, atol=1e-12)


def test_state_keeps_the_averagers_step() -> None:
    def body() -> tuple:
        def make() -> PostLocalSGDOptimizer:
            m = model()
            o = optim.Adam(m.parameters(), lr=0.1)
            made = PostLocalSGDOptimizer(o, PeriodicModelAverager(3, 1))
            made.model = m
            return made

        first, second = make(), make()
        for step in range(4):
            backward(first.model, step, dist.get_rank())
            first.step()
        state = first.state_dict()
        second.load_state_dict(state)
        out = [second.averager.step, len(second.state), second.param_groups[0]["lr"], repr(second)]
        del state["step"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            second.load_state_dict(state)
        return out, second.averager.step, [str(w.message) for w in caught]

    (out, step, said) = on_ranks(body, 1)[0]
    assert out[:3] == [4, 2, 0.1] and out[3].startswith("Adam (")
    assert step == 0 and "does not contain a step counter" in said[0]


def test_schedulers_groups_and_closures_reach_the_local_optimizer() -> None:
    def body() -> tuple:
        m, extra = model(), nn.Parameter(dt.ones(1).double())
        o = PostLocalSGDOptimizer(optim.SGD(m.parameters(), lr=1.0), PeriodicModelAverager(9, 9))
        o.add_param_group({"params": [extra], "lr": 0.5})
        schedule = optim.lr_scheduler.ExponentialLR(o, 0.5)
        loss = o.step(lambda: 7.0)
        schedule.step()
        return loss, [g["lr"] for g in o.optim.param_groups], isinstance(o, optim.Optimizer)

    assert on_ranks(body, 1) == [(7.0, [0.5, 0.25], True)]


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make, text", [
    (lambda: PeriodicModelAverager(0), "``period`` must be a positive value."),
    (lambda: PeriodicModelAverager(2, -1), "non-negative number."),
    (lambda: HierarchicalModelAverager({}), "must not be empty."),
    (lambda: HierarchicalModelAverager({0: 2}), "must be a positive value."),
    (lambda: HierarchicalModelAverager({2: 2, 4: 3}), "must be equal to the size"),
    (lambda: HierarchicalModelAverager({2: 1}, -1), "non-negative number."),
])  # fmt: skip
def test_settings_without_a_meaning(make, text: str) -> None:
    def body() -> str:
        try:
            make()
        except ConfigError as error:
            return str(error)
        return ""

    assert text in on_ranks(body, 1)[0]


def test_an_average_at_every_step_is_said_to_save_nothing() -> None:
    def body() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PeriodicModelAverager(1)
            HierarchicalModelAverager({1: 1})
        return [str(w.message) for w in caught]

    said = on_ranks(body, 1)[0]
    assert [s.startswith("When") and "no need to use" in s for s in said] == [True, True]


def test_only_parameters_and_groups_are_averaged() -> None:
    with pytest.raises(NotImplementedError, match="not supported"):
        utils.get_params_to_average([1.0])
