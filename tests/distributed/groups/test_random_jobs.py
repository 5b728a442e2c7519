"""Random legal programs run to their end with the right numbers, on every kind of rank; those in
which one rank skips or repeats a call do not."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from disttrain.errors import Deadlock, LaunchError
from disttrain_launcher import launch
from support.cases.programs import draw, follow, spoil


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(24))
def test_on_simulated_ranks(seed):
    plan = draw(seed)
    checks = dist.simulate(lambda: follow(plan), plan.size, seed=seed).results
    assert sum(checks) > 0


@pytest.mark.parametrize("seed", range(100, 116))
def test_on_real_ranks(seed):
    plan = draw(seed)
    assert sum(launch(lambda: follow(plan), plan.size)) > 0


@pytest.mark.parametrize("seed", range(200, 208))
def test_on_real_ranks_with_threads(seed):
    plan = draw(seed, threads=True)
    assert sum(launch(lambda: follow(plan), plan.size)) > 0


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(300, 324))
def test_a_call_that_one_rank_skips_or_repeats_is_found(seed):
    plan = draw(seed)
    odd = spoil(plan)
    assert odd is not None
    with pytest.raises((LaunchError, Deadlock)):
        dist.simulate(lambda: follow(plan, odd), plan.size, seed=seed)


@pytest.mark.parametrize("seed", range(400, 408))
def test_on_real_ranks_too(seed):
    plan = draw(seed)
    odd = spoil(plan)
    assert odd is not None
    with pytest.raises(LaunchError):
        launch(lambda: follow(plan, odd), plan.size)
