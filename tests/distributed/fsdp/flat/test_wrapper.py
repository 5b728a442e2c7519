"""FullyShardedDataParallel equals one process, whatever the strategy."""

from __future__ import annotations

import functools
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import MixedPrecision, ShardingStrategy, comm_hooks
from disttrain.distributed.fsdp.activation import CheckpointImpl, checkpoint_wrapper
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy, always_wrap_policy
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError, LaunchError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=24, depth=2 * 4 * 3)

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
            SUMS.equal(out[name], value, err_msg=name)


@pytest.mark.simulated
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


@pytest.mark.simulated
@pytest.mark.parametrize("orig", [False, True], ids=["flat", "orig"])
@pytest.mark.parametrize("micro", [2, 4])
def test_accumulation_without_communication(micro: int, orig: bool) -> None:
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "use_orig_params": orig}
    check(dist.simulate(lambda: train_rank(micro, **options), 2).results)


@pytest.mark.simulated
@pytest.mark.parametrize("orig", [False, True], ids=["flat", "orig"])
@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"])
@pytest.mark.parametrize("how", ["mesh", "groups"])
def test_hybrid_strategies(how: str, strategy: str, orig: bool) -> None:
    def body() -> dict[str, np.ndarray]:
        dist.init_process_group()
        options: dict[str, Any] = {}
        mesh = init_device_mesh("cpu", (2, 2))
        if how == "mesh":
            options["device_mesh"] = mesh
        else:
            options["process_group"] = (mesh.get_group(1), mesh.get_group(0))
        m = FSDP(build(), sharding_strategy=ShardingStrategy[strategy], use_orig_params=orig,
                 auto_wrap_policy=ModuleWrapPolicy({Block}), **options)  # fmt: skip
        assert (m.world_size, m._inter_node_pg.size) == (2, 2)
        train(m, ranks_part(batch()))
        return whole(m)

    check(dist.simulate(body, 4).results)


@pytest.mark.simulated
def test_strategies_mixed_and_wrapped_by_hand() -> None:
    def body() -> dict[str, np.ndarray]:
        dist.init_process_group()
        m = build()
        m.blocks[0] = FSDP(m.blocks[0], sharding_strategy=ShardingStrategy.NO_SHARD)
        m.blocks[1] = FSDP(m.blocks[1], use_orig_params=True)
        m = FSDP(m, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        train(m, ranks_part(batch()))
        return {n.replace("_fsdp_wrapped_module.", ""): p for n, p in whole(m).items()}

    check(dist.simulate(body, 2).results)


def test_on_real_processes() -> None:
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "use_orig_params": True}
    check(launch(lambda: train_rank(**options), 2))


@pytest.mark.simulated
@pytest.mark.parametrize("inside", [False, True], ids=["around units", "in units"])
@pytest.mark.parametrize("impl", list(CheckpointImpl))
def test_activation_checkpointing(impl: CheckpointImpl, inside: bool) -> None:
    def body() -> dict[str, np.ndarray]:
        dist.init_process_group()
        wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=impl)
        m = build()
        for i in range(2):
            block = m.blocks[i]
            m.blocks[i] = FSDP(wrap(block)) if inside else wrap(FSDP(block))
        m = FSDP(m)
        train(m, ranks_part(batch()))
        return whole(m)

    check(dist.simulate(body, 2).results)


class Parts(nn.Module):
    """Adapters beside frozen weights, a scalar, a part that only some ranks use."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6)
        self.base.requires_grad_(False)
        self.a, self.b = nn.Linear(6, 1, bias=False), nn.Linear(1, 6, bias=False)
        self.scale = nn.Parameter(core.wrap(np.array(0.5, "f4")))
        self.rare = nn.Linear(6, 6)
        self.never = nn.Linear(3, 1)

    def forward(self, x: Any, rare: bool) -> Any:
        x = self.base(x) + self.scale * self.b(self.a(x))
        return self.rare(x) if rare else x


def parts() -> nn.Module:
    manual_seed(5)
    return Parts().double()


def parts_steps(m: nn.Module, rank: int, size: int, rare: bool) -> None:
    """Two halves of a batch, of which the first uses the rare part (with ``rare`` both)."""
    optimizer = optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=0.05)
    x = np.random.default_rng(2).standard_normal((4, 6))
    for _ in range(3):
        optimizer.zero_grad()
        if size == 1:
            one, two = m(core.wrap(x[:2]), True), m(core.wrap(x[2:]), rare)
            ((one.pow(2).sum() + two.pow(2).sum()) / 2).backward()
        else:
            mine = core.wrap(x[2 * rank : 2 * rank + 2])
            m(mine, rare or rank == 0).pow(2).sum().backward()
        optimizer.step()


@pytest.mark.simulated
@pytest.mark.parametrize("apart", [False, True], ids=["one unit", "units"])
def test_frozen_scalar_and_unused_parameters(apart: bool) -> None:
    """Parameters that no rank uses keep ``.grad`` None, and weight decay leaves them alone."""
    ref = parts()
    parts_steps(ref, 0, 1, apart)  # ranks call the same units

    def body() -> dict[str, np.ndarray]:
        dist.init_process_group()
        policy = ModuleWrapPolicy({nn.Linear}) if apart else None
        m = FSDP(parts(), auto_wrap_policy=policy, use_orig_params=True)
        parts_steps(m, dist.get_rank(), 2, apart)
        assert all(p.grad is None for n, p in m.named_parameters() if "never" in n)
        return whole(m)

    for out in dist.simulate(body, 2).results:
        for name, p in ref.named_parameters():
            SUMS.equal(out[name], p.detach().numpy())


class Convs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(48, 2))  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.net(x)


@pytest.mark.simulated
def test_batch_norm_in_half_types_keeps_its_own() -> None:
    def body() -> None:
        dist.init_process_group()
        manual_seed(1)
        low = MixedPrecision(core.dtypes.bfloat16, core.dtypes.float32, core.dtypes.bfloat16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m = FSDP(Convs(), auto_wrap_policy=ModuleWrapPolicy({nn.Conv2d}), mixed_precision=low)
        assert isinstance(m.net[1], FSDP)
        x = core.wrap(np.random.default_rng(dist.get_rank()).standard_normal((3, 2, 6, 6)))
        out = m(x.float())
        assert out.dtype is core.dtypes.bfloat16
        assert m.net[1].module.running_mean.dtype is core.dtypes.float32
        out.float().pow(2).mean().backward()
        for p in m.parameters():
            assert p.dtype is core.dtypes.float32
            assert p.grad.dtype is core.dtypes.float32
        assert all(t.dtype in (core.dtypes.float32, core.dtypes.int64)
                   for t in m.state_dict().values())  # fmt: skip

    dist.simulate(body, 2)


@pytest.mark.simulated
@pytest.mark.parametrize("keep", [False, True])
def test_gradients_in_the_type_of_the_reduction(keep: bool) -> None:
    def body() -> None:
        dist.init_process_group()
        low = MixedPrecision(reduce_dtype=core.dtypes.float16, keep_low_precision_grads=keep)
        m = FSDP(nn.Linear(4, 3), mixed_precision=low)
        m(core.wrap(np.ones((2, 4), "f4"))).sum().backward()
        (p,) = m.parameters()
        assert p.grad.dtype is (core.dtypes.float16 if keep else core.dtypes.float32)

    dist.simulate(body, 2)


@pytest.mark.simulated
def test_more_ranks_than_elements() -> None:
    def body() -> list[float]:
        dist.init_process_group()
        m = FSDP(nn.Linear(1, 1, bias=False).double(), use_orig_params=True)
        optimizer = optim.SGD(m.parameters(), lr=1.0)
        with FSDP.summon_full_params(m), core.no_grad():
            m.weight.fill_(3.0)
        m(core.wrap(np.ones((1, 1)))).sum().backward()
        optimizer.step()
        return [v.item() for v in whole(m).values()]

    assert dist.simulate(body, 4).results == [[2.0]] * 4


@pytest.mark.simulated
def test_a_step_that_broke_off_is_forgotten() -> None:
    class Once(Exception):
        pass

    def body() -> dict[str, np.ndarray]:
        dist.init_process_group()
        m = FSDP(build(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        x = ranks_part(batch())

        def fail(*args: Any) -> None:
            raise Once

        handle = m.blocks[1].module.register_forward_pre_hook(fail)
        with pytest.raises(Once):
            loss(m, x, 1)
        handle.remove()
        out = loss(m, x, 1)
        out.register_hook(fail)
        with pytest.raises(Once):
            out.backward()
        train(m, x)
        return whole(m)

    check(dist.simulate(body, 2).results)


@pytest.mark.simulated
def test_comm_hooks_reduce_instead() -> None:
    def body(strategy: ShardingStrategy) -> dict[str, np.ndarray]:
        dist.init_process_group()
        m = FSDP(build(), auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy=strategy)
        calls = []

        def sharded(state: Any, grad: Any, out: Any) -> None:
            calls.append(state)
            dist.reduce_scatter_tensor(out, grad)
            out.div_(dist.get_world_size())

        def replicated(state: Any, grad: Any) -> None:
            calls.append(state)
            dist.all_reduce(grad)
            grad.div_(dist.get_world_size())

        flat = strategy is ShardingStrategy.NO_SHARD
        m.register_comm_hook("mine", replicated if flat else sharded)
        with pytest.raises(AssertionError, match="already registered"):
            m.register_comm_hook("mine", sharded)
        train(m, ranks_part(batch()))
        assert calls == ["mine"] * 12
        return whole(m)

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
        check(dist.simulate(functools.partial(body, strategy), 2).results)


@pytest.mark.simulated
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
@pytest.mark.parametrize("hook", ["mean", "fp16", "bf16"])
def test_comm_hooks_that_come_along(hook: str, strategy: str) -> None:
    def body() -> list:
        dist.init_process_group()
        m = FSDP(build(), sharding_strategy=ShardingStrategy[strategy])
        group = dist.group.WORLD
        if hook == "mean":
            plain = strategy == "NO_SHARD"
            mean: Any = comm_hooks.allreduce_hook if plain else comm_hooks.reduce_scatter_hook
            m.register_comm_hook(comm_hooks.DefaultState(group), mean)
        else:
            state = comm_hooks.LowPrecisionState(group, core.dtypes.float64)
            m.register_comm_hook(state, getattr(comm_hooks, f"{hook}_compress_hook"))
        loss(m, ranks_part(batch()), 1).backward()
        (p,) = m.parameters()
        assert p.grad.dtype is core.dtypes.float64
        return [float(p.grad.abs().sum()) if strategy == "NO_SHARD" else whole_norm(p.grad)]

    ref = build()
    loss(ref, batch(), 1).backward()
    want = sum(float(p.grad.abs().sum()) for p in ref.parameters())
    bound = {"mean": 1e-12, "fp16": 2e-3, "bf16": 2e-2}[hook]
    for (got,) in dist.simulate(body, 4).results:
        assert abs(got - want) <= bound * want


def whole_norm(grad: Any) -> float:
    total = grad.abs().sum()
    dist.all_reduce(total)
    return float(total)


@pytest.mark.simulated
def test_values_come_from_rank_0_or_later() -> None:
    def body(meta: bool) -> dict[str, np.ndarray]:
        dist.init_process_group()
        if not meta:
            manual_seed(3 + dist.get_rank())
            m = FSDP(Tied().double(), sync_module_states=True, auto_wrap_policy=always_wrap_policy,
                     ignored_modules=[])  # fmt: skip
        else:
            with core.device("meta"):
                m = Tied().double()
            manual_seed(3)
            m = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({Block}))
        return whole(m)

    with pytest.raises(LaunchError, match="is shared with a unit inside"):
        dist.simulate(lambda: body(False), 2)
    built = dist.simulate(lambda: body(True), 2).results
    for name, value in built[0].items():
        np.testing.assert_array_equal(built[1][name], value)
        assert np.isfinite(value).all()


def test_a_model_is_built_unit_by_unit() -> None:
    """Without memory first, a model needs its shards and a unit or two, not the whole."""

    def body() -> float:
        dist.init_process_group()
        with core.device("meta"):
            m = nn.Sequential(*[nn.Linear(128, 128, bias=False) for _ in range(32)])
        tracemalloc.start()
        FSDP(m, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
        return tracemalloc.get_traced_memory()[1] / (32 * 128 * 128 * 4)

    assert max(launch(body, 4)) < 0.6  # a quarter, what building one unit takes, and objects


@pytest.mark.simulated
def test_settings_that_cannot_be() -> None:
    def body() -> None:
        dist.init_process_group()
        m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        m[0].weight.requires_grad_(False)
        with pytest.raises(ConfigError, match="uniform requires_grad"):
            FSDP(m)
        with pytest.raises(ConfigError, match="to be callable"):
            FSDP(nn.Linear(1, 1), param_init_fn=3)
        with pytest.raises(ConfigError, match="explicit specification of process group"):
            FSDP(nn.Linear(1, 1), sharding_strategy=ShardingStrategy.HYBRID_SHARD)
        mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
        with pytest.raises(ConfigError, match="uniform dtype"):
            FSDP(mixed)
        with pytest.raises(ConfigError, match="plain parameters with a shape"):
            FSDP(nn.LazyLinear(2))
        on_mesh = nn.Linear(2, 2)
        on_mesh.weight = nn.Parameter(
            distribute_tensor(on_mesh.weight.detach(), init_device_mesh("cpu", (2,)), [Shard(0)])
        )
        with pytest.raises(ConfigError, match="Use fully_shard"):
            FSDP(on_mesh)
        inner = FSDP(nn.Linear(2, 2))
        with pytest.raises(ConfigError, match="should not include FSDP modules"):
            FSDP(nn.Sequential(inner), ignored_modules=[inner])

    dist.simulate(body, 2)
