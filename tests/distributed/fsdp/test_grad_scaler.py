"""Scaled losses where every rank has a part of the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import MixedPrecision, fully_shard
from disttrain.distributed.fsdp.grad_scaler import ShardedGradScaler
from disttrain.errors import AutogradError, ConfigError

pytestmark = pytest.mark.simulated


def linear(kind: str) -> nn.Module:
    m = nn.Linear(3, 3, bias=False)
    nn.init.ones_(m.weight)
    return fully_shard(m) if kind == "fully_shard" else FSDP(m)


@pytest.mark.parametrize("kind", ["fully_shard", "flat"])
def test_steps_are_those_without_a_scale_and_bad_ones_are_skipped_everywhere(kind: str) -> None:
    def body() -> list[float]:
        dist.init_process_group()
        m = linear(kind)
        optimizer = optim.SGD(m.parameters(), lr=0.5)
        scaler = ShardedGradScaler(init_scale=8.0, growth_interval=2)
        scales = []
        for bad in (False, True, False, False):
            optimizer.zero_grad()
            x = np.ones((1, 3), "f4")
            if bad and dist.get_rank() == 0:
                x[0, 0] = np.inf  # reaches one rank's part of the gradient, or two
            scaler.scale(m(core.wrap(x)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        (p,) = m.parameters()
        local: Any = p.to_local() if kind == "fully_shard" else p
        return [*scales, float(local.detach().reshape(-1)[0])]

    for got in dist.simulate(body, 3).results:
        assert got == [8.0, 4.0, 4.0, 8.0, 1.0 - 3 * 0.5]


def test_half_precision_gradients_need_a_scale() -> None:
    """A gradient below float16's smallest number survives the reduction when it is scaled."""

    def body(scale: float) -> float:
        dist.init_process_group()
        half = core.dtypes.float16
        m = FSDP(nn.Linear(1, 2, bias=False), mixed_precision=MixedPrecision(reduce_dtype=half))
        scaler = ShardedGradScaler(init_scale=scale)
        optimizer = optim.SGD(m.parameters(), lr=1.0)
        x = core.wrap(np.full((1, 1), 1e-9, "f4"))
        scaler.scale(m(x).sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(AutogradError, match="already been called"):
            scaler.unscale_(optimizer)
        (p,) = m.parameters()
        return float(p.grad.sum())

    assert dist.simulate(lambda: body(1.0), 2).results == [0.0, 0.0]
    np.testing.assert_allclose(dist.simulate(lambda: body(2.0**16), 2).results, 1e-9, rtol=1e-2)


def test_settings_and_state() -> None:
    off = ShardedGradScaler(enabled=False)
    assert (off.scale(3.0), off.get_scale(), off.state_dict()) == (3.0, 1.0, {})
    one, two = ShardedGradScaler(init_scale=4.0), ShardedGradScaler()
    two.load_state_dict(one.state_dict())
    assert two.get_scale() == 4.0
    two.scale([core.wrap(np.ones(1))])
    two.update(16.0)
    assert two.scale([core.wrap(np.ones(1))])[0].item() == 16.0
    with pytest.raises(ConfigError, match="one above 1 and one below"):
        ShardedGradScaler(growth_factor=1.0)
