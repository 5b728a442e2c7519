"""Drawn programs of collectives, compiled against eager, bit by bit: on simulated ranks, on real
ones of which some run calls eagerly or capture anew while others replay."""

from __future__ import annotations

import warnings

import pytest

from disttrain import distributed as dist
from disttrain_launcher import launch
from support.cases import collective_programs
from support.simulated import on_ranks

SIMULATED, REAL = range(1, 9), range(20, 28)


def quietly(seed, aside):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collective_programs.difference(seed, aside)


@pytest.mark.simulated
@pytest.mark.parametrize("ranks", [2, 3])
def test_programs_on_simulated_ranks_are_as_without_compile(ranks):
    told = ""
    for seed in SIMULATED:
        for found, said in on_ranks(lambda seed=seed: quietly(seed, bool(seed % 2)), ranks, seed):
            assert found is None, f"seed {seed}\n{found}"
            told += said
    assert "is waited for at" in told and "one message" in told


@pytest.mark.parametrize("ranks", [2, 3])
def test_programs_on_ranks_are_as_without_compile(ranks):
    def body():
        dist.init_process_group()
        found = [(seed, quietly(seed, bool(seed % 2))[0]) for seed in REAL]
        dist.destroy_process_group()
        return found

    for rank in launch(body, ranks):
        for seed, found in rank:
            assert found is None, f"seed {seed}\n{found}"
