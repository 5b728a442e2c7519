"""Reductions of gradients by hooks: means in two divisions, in the own type or in half types."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.fsdp import comm_hooks
from disttrain.errors import ConfigError
from support.simulated import on_ranks


@pytest.mark.simulated
@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 8])
def test_half_of_the_division_comes_before_the_sum(world: int) -> None:
    def body() -> tuple:
        state = comm_hooks.DefaultState(dist.group.WORLD)
        return state.gradient_predivide_factor, state.gradient_postdivide_factor

    before, after = on_ranks(body, world)[0]
    assert before * after == world and before >= after >= before / 4
    assert np.log2(before) % 1 == 0  # exact in any type


@pytest.mark.simulated
def test_means_in_place_and_of_a_part() -> None:
    def body() -> tuple:
        state = comm_hooks.DefaultState(dist.group.WORLD)
        grad = dt.arange(4.0) + dist.get_rank()
        part, same = dt.zeros(2), grad.clone()
        comm_hooks.allreduce_hook(state, same)
        comm_hooks.reduce_scatter_hook(state, grad.clone(), part)
        return same.tolist(), part.tolist()

    mean = [0.5, 1.5, 2.5, 3.5]
    assert on_ranks(body) == [(mean, mean[:2]), (mean, mean[2:])]


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_half_types_are_on_the_wire_alone(name: str) -> None:
    def body() -> tuple:
        state = comm_hooks.LowPrecisionState(dist.group.WORLD, dt.float64)
        hook = getattr(comm_hooks, f"{name}_compress_hook")
        assert hook in comm_hooks.LOW_PRECISION_HOOKS
        grad, part = dt.full((4,), 1 + 2.0**-9, dtype=dt.float64), dt.zeros(2)
        hook(state, grad.clone(), part)
        hook(state, grad)
        return grad.dtype, part.dtype, grad.tolist(), part.tolist()

    kept = 1 + 2.0**-9 if name == "fp16" else 1.0  # bfloat16 has 8 bits
    assert on_ranks(body) == [(dt.float64, dt.float64, [kept] * 4, [kept] * 2)] * 2


def test_a_group_must_be_given() -> None:
    with pytest.raises(
        ConfigError, match=r"LowPrecisionState: None given; .*explicit ProcessGroup"
    ):
        comm_hooks.LowPrecisionState(None)
    assert comm_hooks.LowPrecisionState.__init__.__defaults__ == (dt.float32,)
