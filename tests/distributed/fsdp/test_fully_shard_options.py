"""What ``fully_shard`` can be told: placements, types, replicas, prefetch, what is kept; and what
becomes of steps that break off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.comm.transports.shm import ShmTransport
from disttrain.core.random import manual_seed
from disttrain.core.types.dtypes import bfloat16, float32
from disttrain.distributed.fsdp import (
    DataParallelMeshDims,
    DiskOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
    memory_report,
)
from disttrain.distributed.tensor import Replicate, Shard, init_device_mesh
from disttrain.errors import ConfigError, LaunchError, ShapeError
from disttrain.ops import empty
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=12, depth=2 * 3 * 3)

ROWS = 12


def network() -> nn.Module:
    manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 6))


def shard(m: nn.Module, **options: Any) -> nn.Module:
    for i in (0, 2, 4):
        fully_shard(m[i], **options)
    return fully_shard(m, **options)


def step(m: nn.Module, x: np.ndarray) -> None:
    m(core.wrap(x)).square().mean().backward()


def train(m: nn.Module, x: np.ndarray, steps: int = 3) -> nn.Module:
    optimizer = optim.AdamW(m.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        step(m, x)
        optimizer.step()
    return m


def values(m: nn.Module) -> list[np.ndarray]:
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in m.parameters()]
    return [w.detach().numpy().copy() for w in whole]


def on_ranks(size: int, body: Callable[[int], Any], seed: int = 0) -> list[Any]:
    def rank() -> Any:
        dist.init_process_group()
        result = body(dist.get_rank())
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, size, seed=seed).results


def assert_trained(results: list, steps: int = 3) -> None:
    want = values(train(network().double(), data(), steps))
    for got in results:
        for a, b in zip(got, want, strict=True):
            SUMS.equal(a, b)


@pytest.mark.parametrize("shares", [True, False])
def test_shards_along_another_dimension(shares: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def place(param: nn.Parameter) -> Shard:
        return Shard(1 if param.ndim > 1 else 0)

    def body(rank: int) -> list[np.ndarray]:
        m = shard(network().double(), shard_placement_fn=place)
        assert m[2].weight.placements == (Shard(1),)
        assert m[2].weight.to_local().shape == (8, 4)
        return values(train(m, data()[rank::2]))

    assert_trained(on_ranks(2, body))


def test_uneven_shards_along_another_dimension_are_refused() -> None:
    def body(rank: int) -> str:
        with pytest.raises(ShapeError, match="uneven sharding on dim 1") as error:
            fully_shard(nn.Linear(5, 4), shard_placement_fn=lambda p: Shard(p.ndim - 1))
        return str(error.value)

    assert "'weight'" in on_ranks(2, body)[0]


@pytest.mark.parametrize("size", [4, 6])
def test_replicas_of_shards(size: int) -> None:
    def body(rank: int) -> list[np.ndarray]:
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
        m = shard(network().double(), mesh=mesh)
        assert m[0].weight.placements == (Replicate(), Shard(0))
        return values(train(m, data()[rank::size]))

    assert_trained(on_ranks(size, body))


def test_sums_over_replicas_may_wait() -> None:
    def body(rank: int) -> list[np.ndarray]:
        mesh = init_device_mesh("cpu", (2, 2))
        m = shard(network().double(), mesh=mesh)
        optimizer = optim.AdamW(m.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            for i, x in enumerate(np.split(data()[rank::4], 3)):
                m.set_requires_all_reduce(i == 2)
                (m(core.wrap(x)).square().mean() / 3).backward()
            optimizer.step()
        return values(m)

    assert_trained(on_ranks(4, body))


def test_weights_in_bfloat16_and_sums_in_float32() -> None:
    policy = MixedPrecisionPolicy(bfloat16, float32, float32)
    x = data().astype(np.float32)

    def body(rank: int) -> tuple[list[np.ndarray], list[str]]:
        m, seen = shard(network(), mp_policy=policy), []

        def look(module: nn.Module, args: tuple) -> None:
            seen.extend([str(module.weight.dtype), str(args[0].dtype)])

        m[2].register_forward_pre_hook(look)
        out = m(core.wrap(x[rank::2]))
        seen.append(str(out.dtype))
        out.square().mean().backward()
        seen.append(str(m[2].weight.grad.dtype))
        return [p.grad.full_tensor().numpy() for p in m.parameters()], seen

    results = on_ranks(2, body)
    whole = network()
    step(whole, x)
    for grads, seen in results:
        assert [s.rpartition(".")[2] for s in seen] == [
            "bfloat16",
            "bfloat16",
            "float32",
            "float32",
        ]
        for a, p in zip(grads, whole.parameters(), strict=True):
            np.testing.assert_allclose(a, p.grad.numpy(), rtol=0.1, atol=5e-3)


@pytest.mark.parametrize("shares", [True, False])
def test_types_and_cuts_of_all_kinds_give_what_gathering_gives(
    shares: bool, monkeypatch: Any
) -> None:
    """Weights large enough for their pages to be given back."""
    monkeypatch.setattr(ShmTransport, "shares", shares)
    policy = MixedPrecisionPolicy(bfloat16, float32)

    def body(rank: int) -> list[np.ndarray]:
        manual_seed(0)
        m = nn.Sequential(nn.Linear(700, 1000, bias=False), nn.Linear(1000, 20))
        fully_shard(m[0], mp_policy=policy)
        fully_shard(m, shard_placement_fn=lambda p: Shard(p.ndim - 1), mp_policy=policy)
        x = np.random.default_rng(rank).standard_normal((3, 700), dtype=np.float32)
        return [w[:4] for w in values(train(m, x, 2))]

    alone = dist.simulate(lambda: _one_by_one(policy), 1).results[0]
    for got in on_ranks(2, body):
        for a, b in zip(got, alone, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-2)


def _one_by_one(policy: MixedPrecisionPolicy) -> list[np.ndarray]:
    """The same steps on one rank."""
    dist.init_process_group()
    manual_seed(0)
    m = nn.Sequential(nn.Linear(700, 1000, bias=False), nn.Linear(1000, 20))
    fully_shard(m, mp_policy=policy)
    rows = [np.random.default_rng(r).standard_normal((3, 700), dtype=np.float32) for r in (0, 1)]
    result = [w[:4] for w in values(train(m, np.concatenate(rows), 2))]
    dist.destroy_process_group()
    return result


def test_weights_of_another_type_exist_once() -> None:
    policy = MixedPrecisionPolicy(bfloat16, float32)

    def body(rank: int) -> list[tuple]:
        m = fully_shard(nn.Linear(6, 8, bias=False), mp_policy=policy)
        seen = []
        for _ in range(3):
            m.unshard()
            full = m.weight.detach().float().numpy().copy()
            seen.append((m.weight.data_ptr(), full.tobytes()))
            m.reshard()
        return seen

    first, second = on_ranks(2, body)
    assert first == second  # ranks of a simulation see each other's memory at one address


@pytest.mark.parametrize("shares", [True, False])
def test_prefetch_and_setters_change_nothing(shares: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def body(rank: int) -> list[np.ndarray]:
        m = shard(network().double())
        m[0].set_modules_to_forward_prefetch([m[2], m[4]])
        m[4].set_modules_to_backward_prefetch([m[2], m[0]])
        m[2].set_reshard_after_forward(False)
        optimizer = optim.AdamW(m.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            handle = m[0].unshard(async_op=True)
            for i, x in enumerate(np.split(data()[rank::2], 2)):
                m.set_is_last_backward(i == 1)
                m.set_reshard_after_backward(i == 1)
                (m(core.wrap(x)).square().mean() / 2).backward()
            handle.wait()
            m[0].reshard()
            optimizer.step()
        return values(m)

    assert_trained(on_ranks(2, body))


def test_a_divide_factor_takes_the_place_of_the_number_of_ranks() -> None:
    def body(rank: int) -> tuple[np.ndarray, np.ndarray]:
        m = shard(network().double())
        step(m, data()[rank::2])
        mean = m[2].weight.grad.full_tensor().numpy()
        m.zero_grad()
        m[2].set_gradient_divide_factor(16.0)
        step(m, data()[rank::2])
        return mean, m[2].weight.grad.full_tensor().numpy()

    for mean, scaled in on_ranks(2, body):
        np.testing.assert_allclose(scaled * 8, mean, rtol=1e-12)


def test_ranks_whose_losses_use_other_parts_do_not_hang() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.left, self.right = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: core.Tensor) -> tuple:
            x = F.tanh(self.body(x))
            return self.left(x), self.right(x)

    def body(rank: int) -> list[float]:
        manual_seed(1)
        m = Heads().double()
        for part in (m.body, m.left, m.right):
            fully_shard(part)
        fully_shard(m)
        left, right = m(core.wrap(data()))
        (left if rank == 0 else right).sum().backward()
        return [float(p.grad.full_tensor().square().sum()) for p in m.parameters()]

    results = on_ranks(2, body)
    assert results[0] == results[1]
    assert all(value > 0 for value in results[0])


def test_two_forwards_before_two_backwards_and_a_second_backward() -> None:
    def grads(m: nn.Module, x: np.ndarray) -> None:
        a, b = np.split(x, 2)
        first, second = m(core.wrap(a)).square().sum(), m(core.wrap(b)).exp().sum()
        first.backward(retain_graph=True)
        second.backward()
        first.backward()

    plain = network().double()
    grads(plain, data())

    def body(rank: int) -> list[np.ndarray]:
        m = shard(network().double())
        grads(m, data())
        return [p.grad.full_tensor().numpy() for p in m.parameters()]

    for got in on_ranks(2, body):
        for a, p in zip(got, plain.parameters(), strict=True):
            SUMS.equal(a, p.grad.numpy())


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_that_broke_off_leaves_the_next_one_right(
    where: str, shares: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ShmTransport, "shares", shares)

    def body(rank: int) -> list[np.ndarray]:
        m = shard(network().double())
        x = data()[rank::2]

        def fail(*args: Any) -> None:
            raise KeyError("broken on purpose")

        if where == "forward":
            handle = m[3].register_forward_hook(fail)
        else:
            handle = m[2].register_full_backward_pre_hook(fail)
        with pytest.raises(KeyError):
            step(m, x)
        handle.remove()
        m.zero_grad()
        m.reset_iter_state()
        return values(train(m, x))

    assert_trained(on_ranks(2, body))


def test_modules_of_a_list_share_a_unit() -> None:
    def body(rank: int) -> list[np.ndarray]:
        m = network().double()
        fully_shard([m[0], m[2]])
        fully_shard(m)
        assert fully_shard.state(m[0]).unit is fully_shard.state(m[2]).unit
        return values(train(m, data()[rank::2]))

    assert_trained(on_ranks(2, body))


def test_ignored_parameters_stay_as_they_are() -> None:
    def body(rank: int) -> tuple[str, str]:
        m = network()
        fully_shard(m, ignored_params={m[0].weight})
        step(m, data().astype(np.float32))
        return type(m[0].weight).__name__, type(m[0].bias).__name__

    assert on_ranks(2, body) == [("Parameter", "ShardedParameter")] * 2


def test_a_model_on_the_meta_device_gets_its_memory_in_shards() -> None:
    whole = network().double()

    def body(rank: int) -> list[np.ndarray]:
        m = network().double().to("meta")
        shard(m)
        m.to_empty(device="cpu")
        with core.no_grad():
            for p, q in zip(m.parameters(), whole.parameters(), strict=True):
                lo, hi = p.shard_layout.rows(rank)
                p.to_local().copy_(q[lo:hi])
        return values(train(m, data()[rank::3]))

    assert_trained(on_ranks(3, body))


def test_ranks_that_run_other_units_are_told() -> None:
    def body(rank: int) -> None:
        m = shard(network())
        x = core.wrap(data().astype(np.float32))
        y = m(x) if rank == 0 else m[0](x)
        y.sum().backward()

    with pytest.raises(LaunchError, match="unit"):
        on_ranks(2, body)


def test_shards_on_disk_train_alike_and_leave_no_file(tmp_path: Path) -> None:
    def body(rank: int) -> list[np.ndarray]:
        m = shard(network().double(), offload_policy=DiskOffloadPolicy(str(tmp_path)))
        assert not list(tmp_path.iterdir())
        return values(train(m, data()[rank::2]))

    assert_trained(on_ranks(2, body))


def test_parameters_shared_between_units_are_refused_by_name() -> None:
    def body(rank: int) -> str:
        m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        m[1].weight = m[0].weight
        fully_shard(m[0])
        with pytest.raises(ConfigError) as error:
            fully_shard(m)
        return str(error.value)

    assert "'1.weight' is the same as parameter 'weight' of Linear" in on_ranks(2, body)[0]


def test_the_memory_report_counts_shards_and_gradients() -> None:
    def body(rank: int) -> tuple:
        m = shard(network())
        m[0].bias.requires_grad_(False)
        report = memory_report(m)
        return [(u.name, u.parameters, u.shards, u.gradients, u.full) for u in report.units], str(
            report
        )

    units, text = on_ranks(2, body)[0]
    assert units[0] == ("", 0, 0, 0, 0)
    assert units[1] == ("0", 56, 112, 96, 0)
    assert "(root)" in text
    assert "56" in text


class Gathers:
    """A program's own all-gather, which counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def allocate(self, size: tuple, *, dtype: Any, device: Any) -> core.Tensor:
        return empty(*size, dtype=dtype, device=device)

    def __call__(self, output: Any, given: Any, group: Any, async_op: bool = False) -> Any:
        self.calls += 1
        return dist.all_gather_into_tensor(output, given, group, async_op)


class Reduces(Gathers):
    """A program's own reduce-scatter."""

    def __call__(  # type: ignore[override]
        self, output: Any, given: Any, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        self.calls += 1
        return dist.reduce_scatter_tensor(output, given, op, group, async_op)


def test_a_program_may_bring_its_own_collectives() -> None:
    def body(rank: int) -> tuple[list[np.ndarray], int, int]:
        m, gathers, reduces = shard(network().double()), Gathers(), Reduces()
        m[2].set_custom_all_gather(gathers)
        m[4].set_custom_reduce_scatter(reduces)
        return values(train(m, data()[rank::2])), gathers.calls, reduces.calls

    results = on_ranks(2, body)
    assert_trained([r[0] for r in results])
    assert [r[1:] for r in results] == [(6, 3), (6, 3)]


def test_axes_of_a_larger_mesh_are_chosen_by_name() -> None:
    def body(rank: int) -> list[np.ndarray]:
        mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
        dims = DataParallelMeshDims(shard="c", replicate=("a", "b"))
        m = shard(network().double(), mesh=mesh, dp_mesh_dims=dims)
        assert m[0].weight.placements == (Replicate(), Shard(0))
        return values(train(m, data()[rank::4]))

    assert_trained(on_ranks(4, body))


@pytest.mark.parametrize("seed", range(4))
def test_writes_after_a_backward_that_did_not_wait_are_seen_by_nobody_too_early(seed: int) -> None:
    def body(rank: int) -> list[float]:
        m = shard(network().double())
        seen = []
        for i in range(4):
            m.set_is_last_backward(i == 3)
            m.set_requires_gradient_sync(i != 1)
            out = m(core.wrap(data()))
            seen.append(float(out.sum()))
            out.sum().backward()
            with core.no_grad():
                for p in m.parameters():
                    p.fill_(0.01 * (i + 1))
        return [*seen, float(m[2].weight.grad.full_tensor().sum())]

    want = on_ranks(1, body)[0]
    for got in on_ranks(3, body, seed):
        SUMS.equal(got, want)
