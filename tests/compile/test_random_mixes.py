"""Drawn steps of many kinds at once (rows, lengths and numbers that change, DDP, loss scaling,
state of Python's), compiled against eager, bit by bit."""

from __future__ import annotations

import warnings

import pytest

from support.cases import mixed_steps
from support.simulated import on_ranks

ALONE, EACH, ON_RANKS, EACH_ON_RANKS = 3, 8, 3, 4


def parts(seed: int, wrapped: bool) -> tuple[str | None, int]:
    """Where the compiled step and the eager one part, if they do; how often it was captured."""
    drawn = mixed_steps.draw(seed, wrapped)

    def ran(compiled: bool) -> list:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not wrapped:
                return [mixed_steps.ran(drawn, seed, compiled)]
            return on_ranks(lambda: mixed_steps.ran(drawn, seed, compiled))

    count = 0
    for rank, ((plain, _), (other, told)) in enumerate(zip(ran(False), ran(True), strict=True)):
        count += mixed_steps.captured(told)
        for i, (a, b) in enumerate(zip(plain, other, strict=True)):
            if a != b:
                return f"{drawn}\nrank {rank}, item {i}: {a!r:.300}\n{b!r:.300}\n{told:.900}", count
    return None, count


@pytest.mark.parametrize("part", range(ALONE))
def test_mixed_steps_are_eager_steps(part):
    count = 0
    for seed in range(part * EACH, (part + 1) * EACH):
        found, captures = parts(seed, False)
        assert found is None, f"seed {seed}\n{found}"
        count += captures
    assert count > EACH


@pytest.mark.simulated
@pytest.mark.parametrize("part", range(ON_RANKS))
def test_mixed_steps_on_ranks_are_eager_steps(part):
    count = 0
    for seed in range(part * EACH_ON_RANKS, (part + 1) * EACH_ON_RANKS):
        found, captures = parts(seed, True)
        assert found is None, f"seed {seed}\n{found}"
        count += captures
    assert count > EACH_ON_RANKS
