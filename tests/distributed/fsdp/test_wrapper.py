"""FullyShardedDataParallel equals one process, whatever the strategy."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import ShardingStrategy
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy

STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"]


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Tied(nn.Module):
    """Embedding and output share their weight; one part is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.blocks = nn.Sequential(Block(6), Block(6))
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        return self.out(self.blocks(self.embed(x)))


def build() -> nn.Module:
    manual_seed(3)
    return Tied().double()


def batch() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 11, (8, 5))


def train(m: nn.Module, x: np.ndarray, steps: int = 4, micro: int = 1) -> Any:
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        for i, piece in enumerate(np.split(x, micro)):
            if isinstance(m, FSDP) and i < micro - 1:
                with m.no_sync():
                    loss(m, piece, micro).backward()
            else:
                loss(m, piece, micro).backward()
        optimizer.step()
    return optimizer


def loss(m: nn.Module, x: np.ndarray, micro: int) -> Any:
    t = core.wrap(x)
    return F.cross_entropy(m(t[:, :-1]).reshape(-1, 11), t[:, 1:].reshape(-1)) / micro


def whole(m: nn.Module) -> dict[str, np.ndarray]:
    with FSDP.summon_full_params(m):
        return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}


def quiet(m: nn.Module, **kwargs: Any) -> FSDP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a world of one is told of
        return FSDP(m, **kwargs)


def ranks_part(x: np.ndarray) -> np.ndarray:
    return x[dist.get_rank() :: dist.get_world_size()]


def train_rank(micro: int = 1, **options: Any) -> dict[str, np.ndarray]:
    dist.init_process_group()
    m = quiet(build(), **options)
    train(m, ranks_part(batch()), micro=micro)
    out = whole(m)
    assert [tuple(p.shape) for p in m.parameters()] != []
    dist.destroy_process_group()
    return out


@functools.cache
def reference() -> dict[str, np.ndarray]:
    m = build()
    train(m, batch())
    return {n: p.detach().numpy() for n, p in m.named_parameters()}


def check(results: list[dict[str, np.ndarray]]) -> None:
    for out in results:
        assert list(out) == list(reference())
        for name, value in reference().items():
            np.testing.assert_allclose(out[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("orig", [False, True], ids=["flat", "orig"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_one_process(ranks: int, strategy: str, orig: bool) -> None:
    options = {
        "sharding_strategy": ShardingStrategy[strategy],
        "auto_wrap_policy": ModuleWrapPolicy({Block}),
        "use_orig_params": orig,
    }
    check(dist.simulate(lambda: train_rank(**options), ranks).results)
