"""Replicas that come apart are found by what travels anyway, and named."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain_launcher import launch

DDP = dist.DistributedDataParallel


def train(spoil: int | None) -> str:
    """What is found in a training in which rank 1 changes a weight after step ``spoil``."""
    dist.init_process_group()
    m = DDP(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
    optimizer = optim.SGD(m.parameters(), lr=0.1)
    for step in range(14):
        optimizer.zero_grad()
        m(core.wrap(np.ones((2, 3)))).sum().backward()
        optimizer.step()
        if step == spoil and dist.get_rank() == 1:
            m.module[2].weight.data[0, 0] += 1e-6
    dist.destroy_process_group()
    return m.reducer.drift.report


def train_and_catch() -> str:
    with pytest.warns(UserWarning, match="drifted") as seen:
        report = train(3)
    assert [str(w.message) for w in seen] == [report]  # it is told once
    return report


@pytest.mark.parametrize("run", ["shm", pytest.param("sim", marks=pytest.mark.simulated)])
def test_the_first_parameter_and_the_step_are_named(run: str) -> None:
    if run == "shm":
        results = launch(train_and_catch, 2)
    else:
        with pytest.warns(UserWarning, match="drifted"):
            results = dist.simulate(lambda: train(3), 3).results
    for rank, found in enumerate(results):
        assert f"on rank {rank}: the replicas have drifted" in found
        assert "parameter '2.weight' of rank 1 is not what rank 0 has" in found
        assert "before the backward of step 6" in found  # that slice comes every 4 steps
        assert "1 of 4 parameters differ" in found


@pytest.mark.simulated
def test_replicas_that_stay_alike() -> None:
    assert dist.simulate(lambda: train(None), 2).results == ["", ""]


@pytest.mark.simulated
def test_ranks_that_joined_earlier_compare_the_same_slices_afterwards() -> None:
    def body() -> str:
        dist.init_process_group()
        m = DDP(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
        with m.join():
            for _ in range(3 + dist.get_rank()):
                m(core.wrap(np.ones((2, 3)))).sum().backward()
        for _ in range(2):
            m(core.wrap(np.ones((2, 3)))).sum().backward()
        return m.reducer.drift.report

    assert dist.simulate(body, 2).results == ["", ""]


@pytest.mark.simulated
@pytest.mark.parametrize("deterministic", [None, "global"])
def test_a_parameter_that_is_unfrozen_later_is_told_and_compared(deterministic: str | None) -> None:
    def body() -> str:
        dist.init_process_group()
        inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        inner[0].requires_grad_(False)
        m = DDP(inner, deterministic=deterministic, virtual_shards=2)
        optimizer = optim.SGD(inner.parameters(), lr=0.1)
        for step in range(14):
            inner[0].requires_grad_(step > 2)
            optimizer.zero_grad()
            m(core.wrap(np.full((2, 3), 1.0 + dist.get_rank()))).sum().backward()
            optimizer.step()
        return "" if deterministic else m.reducer.drift.report

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        reports = dist.simulate(body, 2).results
    said = [str(w.message) for w in seen if issubclass(w.category, UserWarning)]
    told = "DistributedDataParallel on rank {}: 0.weight, 0.bias did not require grad when"
    for rank, report in enumerate(reports):
        assert sum(text.startswith(told.format(rank)) for text in said) == 1
        if not deterministic:
            assert "parameter '0.weight' of rank 1 is not what rank 0 has" in report
