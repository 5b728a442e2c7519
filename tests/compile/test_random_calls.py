"""Drawn sequences of calls in changing modes and worlds, compiled against eager, bit by bit."""

from __future__ import annotations

import warnings

import pytest

from support.cases import call_sequences

PARTS, EACH, LENGTH = 6, 6, 20


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_calls_are_eager_calls_whatever_changes_between_them(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parted = call_sequences.difference(seed, LENGTH)
        assert parted is None, f"seed {seed}\n{parted}"


def test_a_checkpointed_block_whose_results_have_a_graph_runs_eagerly():
    world = call_sequences.World(0, "checkpointed", True)
    with pytest.warns(UserWarning, match="runs eagerly"):
        for _ in range(3):
            x = call_sequences.dt.ones(3, 4, requires_grad=True)
            world.call(x).sum().backward()
    assert x.grad is not None
