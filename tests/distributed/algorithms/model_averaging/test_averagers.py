"""Models averaged now and then: when, over whom, and what an optimizer around it keeps."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.algorithms.model_averaging import utils
from disttrain.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from disttrain.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from disttrain.errors import ConfigError
from disttrain.nn.utils.swa import AveragedModel
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


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


def test_ranks_outside_the_group_do_nothing() -> None:
    def body() -> float:
        group = dist.new_group([0, 1])
        p = nn.Parameter(dt.full((1,), float(dist.get_rank())))
        utils.average_parameters([p], group)
        return p.item()

    assert on_ranks(body, 3) == [0.5, 0.5, 2.0]


# --- the optimizer -------------------------------------------------------------------------------


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
