"""Random legal programs run to their end with the right numbers, on every kind of rank."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from launcher import launch
from support.programs import draw, follow


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
