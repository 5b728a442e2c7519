"""What sharded training takes of memory, as the system sees it, is what the arithmetic says."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from disttrain import core, nn, ops, optim
from disttrain import distributed as dist
from disttrain.core.types.dtypes import bfloat16, float32
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain_launcher import launch

WIDTH, LAYERS, ROWS = 640, 8, 8


def resident() -> int:
    """Bytes of this process; pages that it shares count in parts."""
    with open("/proc/self/smaps_rollup") as file:
        line = next(line for line in file if line.startswith("Pss:"))
    return int(line.split()[1]) << 10


class Peak:
    """The most that was there when somebody looked."""

    def __init__(self) -> None:
        self.value = 0

    def look(self, *args: Any) -> None:
        self.value = max(self.value, resident())


def step(m: nn.Module, optimizer: Any, width: int, peak: Peak) -> None:
    optimizer.zero_grad()
    x = core.wrap(np.ones((ROWS, width), np.float32)).requires_grad_()
    m(x).float().square().sum().backward()
    peak.look()
    optimizer.step()
    peak.look()


def build(width: int, layers: int, policy: MixedPrecisionPolicy | None) -> nn.Module:
    """A network that no rank ever holds whole."""
    modules = [nn.Linear(width, width, bias=False, device="meta") for _ in range(layers)]
    m = nn.Sequential(*modules)
    for layer in m:
        fully_shard(layer, mp_policy=policy)
    fully_shard(m, mp_policy=policy)
    m.to_empty(device="cpu")
    with core.no_grad():
        for p in m.parameters():
            p.to_local().copy_(ops.randn(*p.to_local().shape) * 0.02)
    return m


def rank(policy: MixedPrecisionPolicy | None) -> int:
    dist.init_process_group()
    small = build(256, 1, policy)  # what is loaded and compiled at first use
    step(small, optim.AdamW(small.parameters()), 256, Peak())
    del small
    gc.collect()
    dist.barrier()
    before, peak = resident(), Peak()
    m = build(WIDTH, LAYERS, policy)
    for layer in m:
        layer.register_forward_hook(peak.look)
        layer.register_full_backward_hook(peak.look)
    optimizer = optim.AdamW(m.parameters())
    for _ in range(3):
        step(m, optimizer, WIDTH, peak)
    dist.barrier()
    dist.destroy_process_group()
    return peak.value - before


@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
def test_the_peak_is_what_the_shards_and_the_largest_unit_take(narrow: bool) -> None:
    policy = MixedPrecisionPolicy(bfloat16, float32) if narrow else None
    unit = WIDTH * WIDTH * 4
    kept = 4 * LAYERS * unit / 2  # parameters, gradients and two moments, over two ranks
    activations = (LAYERS + 2) * ROWS * WIDTH * 4
    # The block that is reduced, and the gradient that was just computed; a product of narrow
    # numbers is computed in wide ones.
    working = (3 if narrow else 2) * unit
    for got in launch(lambda: rank(policy), 2):
        assert got <= 1.1 * (kept + working + activations)
