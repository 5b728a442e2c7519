"""fully_shard and FullyShardedDataParallel on devices equal one process; gathers and reductions run
on streams of their own, which the double holds to their order."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.device_mesh import init_device_mesh
from disttrain.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from disttrain.distributed.fsdp.grad_scaler import ShardedGradScaler
from support.device_ranks import alone, data, equal, flat, loss_of, net, on_devices, waits_in

pytestmark = pytest.mark.simulated


def adam(params):
    return optim.Adam(params, lr=0.05)


def sharded(model, mesh=None, **settings):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def trained(double, model, steps=3):
    rank = dist.get_rank()
    optimizer = adam(model.parameters())
    x = data(rank).cuda()

    def step():
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    for _ in range(steps - 1):
        step()
    return waits_in(double, step)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"reshard_after_forward": False}], ids=str)
def test_shards_on_devices_equal_one_process_and_no_step_waits(double, size, settings):
    def body():
        model = sharded(net(), init_device_mesh("cuda", (size,)), **settings)
        assert all(p.device.type == "cuda" for p in model.parameters())
        waits = trained(double, model)
        return flat(model.parameters()), waits

    got = on_devices(double, body, size)
    equal([g for g, _ in got], alone(adam, size))
    assert [w for _, waits in got for w in waits] == []


class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.register_buffer("scale", dt.full((6,), 0.5))

    def forward(self, x):
        return super().forward(x) * self.scale


@pytest.mark.parametrize("wrapped", [False, True])
def test_buffers_come_along_and_frozen_parameters_wait_for_nothing(double, wrapped):
    def make():
        dt.manual_seed(0)
        model = nn.Sequential(Scaled(), Scaled())
        model[0].weight.requires_grad_(False)
        return model

    def body():
        rank = dist.get_rank()
        if wrapped:
            model = FullyShardedDataParallel(make(), device_id=rank, use_orig_params=True)
        else:
            mesh = init_device_mesh("cuda", (2,))
            model = make()
            fully_shard(model[0], mesh=mesh)
            fully_shard(model, mesh=mesh)
        waits = trained(double, model)
        if wrapped:
            with FullyShardedDataParallel.summon_full_params(model):
                return flat(model.parameters()), waits
        return flat(model.parameters()), waits

    got = on_devices(double, body)
    equal([g for g, _ in got], alone(adam, 2, make=make))
    assert [w for _, waits in got for w in waits] == []


def test_shards_may_stay_on_the_host(double):
    def body():
        mesh = init_device_mesh("cuda", (2,))
        model = sharded(net(), mesh, offload_policy=CPUOffloadPolicy())
        assert all(p.device.type == "cpu" for p in model.parameters())
        trained(double, model)
        assert all(p.grad.device.type == "cpu" for p in model.parameters())
        return np.concatenate([p.to_local().detach().numpy().ravel() for p in model.parameters()])

    first, second = on_devices(double, body)
    parts, at = [], 0
    for p in net().parameters():  # shards of 8 and 3 rows
        rows = -(-p.shape[0] // 2)
        n = p.numel() // p.shape[0]
        parts.append((rows * n, (p.shape[0] - rows) * n))
    whole, at = [], [0, 0]
    for counts in parts:
        for rank, source in enumerate((first, second)):
            whole.append(source[at[rank] : at[rank] + counts[rank]])
            at[rank] += counts[rank]
    equal([np.concatenate(whole)], alone(adam, 2))


def test_memory_follows_moves_conversions_and_the_meta_device(double):
    def body():
        rank = dist.get_rank()
        moved = sharded(net())
        moved.cuda()
        loss_of(moved, data(rank).cuda()).backward()
        with dt.device("meta"):
            empty = net()
        sharded(empty, init_device_mesh("cuda", (2,)))
        empty.to_empty(device="cuda")
        empty.load_state_dict(moved.state_dict())
        loss_of(empty, data(rank)).backward()  # the root takes its inputs along
        return flat([p.grad for p in moved.parameters()]), flat(
            [p.grad for p in empty.parameters()]
        )

    model = net()
    for rank in range(2):
        (loss_of(model, data(rank)) / 2).backward()
    want = flat([p.grad for p in model.parameters()])
    for moved, empty in on_devices(double, body):
        equal([moved, empty], want)


def test_replicas_mixed_precision_and_clipping(double):
    def body():
        rank = dist.get_rank()
        mesh = init_device_mesh("cuda", (2, 1), mesh_dim_names=("copies", "shards"))
        model = sharded(
            net(), mesh, mp_policy=MixedPrecisionPolicy(dt.bfloat16, dt.float32, dt.float32)
        )
        for sync in (False, True):
            model.set_requires_gradient_sync(sync)
            loss_of(model, data(rank)).backward()
        waits = waits_in(double, lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        return float(norm.full_tensor()), waits

    for norm, waits in on_devices(double, body):
        assert norm == pytest.approx(0.1, rel=1e-3)
        assert waits == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_orig_params": True},
        {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
        {"sharding_strategy": ShardingStrategy.NO_SHARD},
        {"cpu_offload": CPUOffload(True)},
    ],
    ids=["full", "orig", "grad", "none", "offload"],
)
def test_vectors_on_devices_equal_one_process(double, settings):
    fsdp = FullyShardedDataParallel

    def body():
        rank = dist.get_rank()
        model = net()
        for i in (0, 2):
            model[i] = fsdp(model[i], device_id=rank, **settings)
        model = fsdp(model, device_id=rank, **settings)
        assert str(model[0].compute_device) == f"cuda:{rank}"
        optimizer = adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, data(rank)).backward()
            model.clip_grad_norm_(1e6)
            optimizer.step()
        model.load_state_dict(model.state_dict())
        states = fsdp.optim_state_dict(model, optimizer)
        optimizer.load_state_dict(fsdp.optim_state_dict_to_load(model, optimizer, states))
        with fsdp.summon_full_params(model):
            return flat(model.parameters())

    equal(on_devices(double, body), alone(adam, 2))


def test_scaled_losses_skip_steps_that_are_not_finite_anywhere(double):
    def body():
        rank = dist.get_rank()
        model = sharded(net(), init_device_mesh("cuda", (2,)))
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        scaler, told = ShardedGradScaler(init_scale=4.0), []
        for factor in (1.0, float("inf") if rank else 1.0):
            before = flat(model.parameters())
            scaler.scale(loss_of(model, data(rank)) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            told.append(bool((flat(model.parameters()) == before).all()))
        return told

    assert on_devices(double, body) == [[False, True]] * 2


def test_gathered_memory_does_not_pile_up(double):
    """Few units' weights are there at once, however many there are."""

    def body():
        width, layers = 128, 16
        dt.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
        sharded(model, init_device_mesh("cuda", (2,)))
        x = dt.ones(1, width, device="cuda").requires_grad_()
        rank = dist.get_rank()
        for layer in model:  # a device that keeps up with its host
            layer.register_forward_hook(lambda *args: double.synchronize(rank))
            layer.register_full_backward_hook(lambda *args: double.synchronize(rank))
        model(x).sum().backward()
        double.reset_peak(rank)
        before = double.memory_stats(rank)["allocated"]
        model(x).sum().backward()
        return (double.memory_stats(rank)["peak_allocated"] - before) / (4 * width * width)

    for units in on_devices(double, body):
        assert units < 6  # of the 16 of the model; gradients and what is reduced among them


@pytest.mark.parametrize("kind", ["fully_shard", "flat", "offload"])
def test_means_are_weighed_by_samples(double, kind):
    """Accumulated parts of different sizes, one of them empty, equal one mean over all rows."""

    def rows(rank):
        x = data(rank)
        return x[: 2 + rank], x[2 + rank :] if rank else x[:0]

    def body():
        if kind == "flat":
            model = FullyShardedDataParallel(net().cuda())
        else:
            policy = CPUOffloadPolicy() if kind == "offload" else None
            model = sharded(net(), init_device_mesh("cuda", (2,)), offload_policy=policy)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for last, part in enumerate(rows(dist.get_rank())):
            model.set_requires_gradient_sync(bool(last))
            with model.weighted(len(part)):
                loss_of(model, part.cuda()).backward()
        optimizer.step()
        return flat(model.parameters())

    model = net()
    x = dt.cat([part for rank in range(2) for part in rows(rank)])
    loss_of(model, x).backward()
    optim.SGD(model.parameters(), lr=0.1).step()
    found = on_devices(double, body, 2)
    equal([np.concatenate(found)] if kind == "flat" else found, flat(model.parameters()))
