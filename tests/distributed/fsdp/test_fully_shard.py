"""``fully_shard`` equals one process: on simulated ranks, and on real ones."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import FSDPModule, fully_shard
from disttrain.errors import LaunchError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=24, depth=2 * 3 * 4)

STEPS, BATCH = 4, 24


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((BATCH, 20)), rng.integers(0, 5, BATCH)


def mlp() -> nn.Module:
    """Uneven shards, and on four ranks empty ones."""
    manual_seed(3)
    inner = nn.Sequential(nn.Linear(16, 7), nn.ReLU())
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), inner, nn.Linear(7, 5)).double()


def shard_mlp(m: nn.Module) -> None:
    fully_shard(m[2])
    fully_shard(m[0])
    fully_shard(m)


def train(m: nn.Module, x: np.ndarray, y: np.ndarray, micro: int = 1, sync: bool = True) -> None:
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        pieces = list(zip(np.split(x, micro), np.split(y, micro), strict=True))
        for i, (px, py) in enumerate(pieces):
            if isinstance(m, FSDPModule):
                m.set_requires_gradient_sync(sync or i == micro - 1)
            (F.cross_entropy(m(core.wrap(px)), core.wrap(py)) / micro).backward()
        optimizer.step()


def fsdp_rank(make: Callable, shard: Callable, micro: int, sync: bool) -> list[np.ndarray]:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = data()
    m = make()
    shard(m)
    train(m, x[rank::size], y[rank::size], micro, sync)
    out = [p.full_tensor().detach().numpy() for p in m.parameters()]
    dist.destroy_process_group()
    return out


def expected(make: Callable) -> list[np.ndarray]:
    m = make()
    train(m, *data())
    return [p.detach().numpy().copy() for p in m.parameters()]


def assert_equal(results: list[list[np.ndarray]], want: list[np.ndarray]) -> None:
    for rank in results:
        assert len(rank) == len(want)
        for a, b in zip(rank, want, strict=True):
            SUMS.equal(a, b)


@pytest.mark.simulated
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_mlp_equals_one_process(size: int) -> None:
    result = dist.simulate(fsdp_rank, size, args=(mlp, shard_mlp, 1, True))
    assert_equal(result.results, expected(mlp))


@pytest.mark.simulated
@pytest.mark.parametrize("sync", [True, False])
def test_accumulation_equals_one_process(sync: bool) -> None:
    result = dist.simulate(fsdp_rank, 2, args=(mlp, shard_mlp, 3, sync))
    assert_equal(result.results, expected(mlp))


def test_real_ranks_equal_one_process() -> None:
    results = launch(lambda: fsdp_rank(mlp, shard_mlp, 1, True), 2)
    assert_equal(results, expected(mlp))


def test_a_rank_that_is_killed_in_backward_ends_the_others() -> None:
    def body() -> None:
        dist.init_process_group()
        m = mlp()
        shard_mlp(m)
        x, y = data()
        if dist.get_rank():
            m[2].register_full_backward_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        train(m, x[dist.get_rank() :: 2], y[dist.get_rank() :: 2])

    with pytest.raises(LaunchError, match="rank 1"):
        launch(body, 2)


class Writes(nn.Module):
    """Writes to its own weight in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: core.Tensor) -> core.Tensor:
        with core.no_grad():
            self.inner.weight.mul_(2.0)
        return self.inner(x)


@pytest.mark.simulated
def test_a_write_to_a_full_weight_is_refused_with_its_line() -> None:
    def rank() -> str:
        dist.init_process_group()
        m = Writes()
        fully_shard(m)
        with pytest.raises(ValueError, match="not writeable") as error:
            m(core.wrap(np.ones((2, 4), np.float32)))
        dist.destroy_process_group()
        return str(error.value)

    for text in dist.simulate(rank, 2).results:
        assert "test_fully_shard.py" in text
        assert "in forward" in text


@pytest.mark.simulated
def test_full_weights_exist_once_and_shards_are_parts_of_them() -> None:
    def rank() -> tuple[bool, bool, list[float]]:
        dist.init_process_group()
        m = nn.Linear(4, 4, bias=False)
        fully_shard(m)
        shard = m.weight.to_local().detach().numpy()
        m.unshard()
        full = m.weight.detach().numpy()
        inside = np.shares_memory(full, shard)
        seen = full[:, 0].tolist()
        m.reshard()
        result = inside, full.flags.writeable, seen
        dist.destroy_process_group()
        return result

    results = dist.simulate(rank, 2).results
    assert [r[:2] for r in results] == [(True, False), (True, False)]
    assert results[0][2] == results[1][2]


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(5))
def test_a_shard_is_not_written_while_others_still_read_it(seed: int) -> None:
    def rank() -> list[float]:
        dist.init_process_group()
        m = nn.Linear(6, 4, bias=False)
        fully_shard(m)
        x, seen = core.wrap(np.ones((1, 6), np.float32)), []
        with core.no_grad():
            m.weight.fill_(0.0)
            for i in range(5):
                seen.append(float(m(x).sum()))
                m.weight.fill_(float(i + 1))
        dist.destroy_process_group()
        return seen

    for seen in dist.simulate(rank, 3, seed=seed).results:
        assert seen == [24.0 * i for i in range(5)]


@pytest.mark.simulated
def test_models_that_are_gone_leave_nothing_in_shared_memory() -> None:
    def rank() -> list[int]:
        dist.init_process_group()
        arena, left = dist.group.WORLD.transport.hub.arena, []
        for _ in range(3):
            m = mlp()
            shard_mlp(m)
            x, y = data()
            train(m, x, y)
            del m
            for _ in range(2):  # what one rank lets go of, another one's sweep gives back
                gc.collect()
                dist.barrier()
            left.append(arena.used_bytes())
            dist.barrier()
        dist.destroy_process_group()
        return left

    assert dist.simulate(rank, 2).results == [[0, 0, 0]] * 2


@pytest.mark.simulated
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_error_on_one_rank_reaches_the_others(where: str) -> None:
    def rank() -> None:
        dist.init_process_group()
        m = mlp()
        shard_mlp(m)

        def fail(*args: object) -> None:
            raise KeyError("on one rank only")

        if dist.get_rank() == 1:
            inner = m[2]
            hooks = {
                "forward": inner.register_forward_hook,
                "backward": inner.register_full_backward_pre_hook,
            }
            hooks[where](fail)
        x, y = data()
        train(m, x, y)

    with pytest.raises(LaunchError, match="on one rank only"):
        dist.simulate(rank, 2)
