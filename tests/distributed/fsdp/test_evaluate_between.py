"""An evaluation under ``no_grad`` leaves no full weights behind that a later write to the shards
would not reach: of the root, whose weights stay after forward, and of types that are copies."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import core, distributed, nn, optim
from disttrain.core.grad_mode import no_grad
from disttrain.core.random import manual_seed
from disttrain.core.types import dtypes
from disttrain.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)

pytestmark = pytest.mark.simulated

LOW = MixedPrecisionPolicy(param_dtype=dtypes.bfloat16)


def inner_kept(m):
    fully_shard(m[0], reshard_after_forward=False, mp_policy=LOW)
    return fully_shard(m, mp_policy=LOW)


KINDS = {
    "vector": FullyShardedDataParallel,
    "vector of the module's parameters": lambda m: FullyShardedDataParallel(
        m, use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP
    ),
    "low": lambda m: fully_shard(m, mp_policy=LOW),
    "inner unit kept": inner_kept,
}


def made() -> nn.Module:
    manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def numbers(spread) -> list[float]:
    m = spread(made())
    optimizer = optim.SGD(m.parameters(), 0.5)
    x = core.wrap(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    found = []

    def evaluate() -> None:
        with no_grad():
            found.append(float(m(x).float().square().mean()))

    m(x).float().square().mean().backward()
    evaluate()
    optimizer.step()
    evaluate()
    with no_grad():
        for p in m.parameters():
            p.mul_(0)
    evaluate()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_weights_written_between_evaluations_are_used(kind: str) -> None:
    def program() -> list[float]:
        distributed.init_process_group()
        found = numbers(KINDS[kind])
        distributed.destroy_process_group()
        return found

    expected = numbers(lambda m: m)
    for found in distributed.simulate(program, 2).results:
        np.testing.assert_allclose(found, expected, rtol=0.03)
        assert found[2] == 0 and found[1] < 0.95 * found[0]
