"""DistributedDataParallel on devices equals one process, and its host waits for nothing."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from disttrain.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from disttrain.distributed.ddp.reducer.mixed_precision import MixedPrecision
from disttrain.errors import AutogradError, ConfigError, LaunchError
from support.device_ranks import alone, data, equal, flat, loss_of, net, on_devices, waits_in

pytestmark = pytest.mark.simulated

DDP = dist.DistributedDataParallel


def sgd(params):
    return optim.SGD(params, lr=0.1, momentum=0.9)


def trained(double, steps=3, hook=None, state=None, **settings):
    rank = dist.get_rank()
    model = DDP(net().to(f"cuda:{rank}"), device_ids=[rank], bucket_cap_mb=1e-4, **settings)
    if hook is not None:
        model.register_comm_hook(state and state(), hook)
    optimizer = sgd(model.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(model, data(rank)).backward()  # the input comes from the host
        optimizer.step()

    for _ in range(steps - 1):
        step()
    waits = waits_in(double, step)
    return flat(model.parameters()), waits


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"broadcast_buffers": False},
    ],
    ids=str,
)
def test_it_equals_one_process_and_no_step_waits(double, settings):
    got = on_devices(double, lambda: trained(double, **settings))
    equal([g for g, _ in got], alone(sgd, 2))
    for _, waits in got:
        assert [w for w in waits if "upload" not in w] == []


def state_of_power():
    return power.PowerSGDState(None, 1, start_powerSGD_iter=2)


@pytest.mark.parametrize(
    ("hook", "state", "rtol"),
    [
        (default_hooks.allreduce_hook, None, 1e-4),
        (default_hooks.bf16_compress_hook, None, 2e-2),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None, 1e-2),
        (quantization_hooks.quantization_perchannel_hook, None, 5e-2),
        (power.powerSGD_hook, state_of_power, None),
        (power.batched_powerSGD_hook, state_of_power, None),
    ],
)
def test_hooks_reduce_on_devices(double, hook, state, rtol):
    (first, _), (second, _) = on_devices(double, lambda: trained(double, 4, hook, state))
    np.testing.assert_array_equal(first, second)
    if rtol is not None:
        np.testing.assert_allclose(first, alone(sgd, 2, 4), rtol=rtol, atol=rtol)


def test_gradients_accumulate_and_mixed_precision_averages(double):
    def body():
        rank = dist.get_rank()
        model = DDP(net().cuda())
        with model.no_sync():
            loss_of(model, data(rank).cuda()).backward()
        loss_of(model, data(rank).cuda()).backward()
        twice = flat([p.grad for p in model.parameters()])
        low = DDP(net().cuda(), mixed_precision=MixedPrecision(dt.bfloat16, dt.float32))
        loss_of(low, data(rank).cuda()).backward()
        return twice, flat([p.grad for p in low.parameters()])

    model = net()
    for rank in range(2):
        loss_of(model, data(rank)).backward()
    want = flat([p.grad for p in model.parameters()])
    for twice, low in on_devices(double, body):
        np.testing.assert_allclose(twice, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(2 * low, want, rtol=5e-2, atol=2e-2)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, both):
        return self.a(x) + (self.b(x) if both else 0)


def test_parameters_that_some_ranks_use_get_the_average_and_others_none(double):
    def body():
        dt.manual_seed(0)
        rank = dist.get_rank()
        model = DDP(Branches().cuda(), find_unused_parameters=True)
        told = []
        for step in range(2):
            model(data(rank).cuda(), step == 1 and rank == 0).sum().backward()
            grad = model.module.b.bias.grad
            told.append(None if grad is None else grad.cpu().tolist())
        return told

    assert on_devices(double, body) == [[None, [2.0] * 3]] * 2


def test_missing_gradients_are_told_here_at_once_and_to_others_in_their_next_forward(double):
    def body():
        rank = dist.get_rank()
        model = DDP(Branches().cuda())
        x = data(rank).cuda()
        if rank == 0:
            with pytest.raises(AutogradError, match=r"b\.weight"):
                model(x, False).sum().backward()
            return None
        model(x, True).sum().backward()
        double.synchronize(rank)
        with pytest.raises(AutogradError, match="on rank 0, whose own error names them"):
            model(x, True)
        return None

    on_devices(double, body)


def test_uneven_inputs_and_weights(double):
    def body():
        rank = dist.get_rank()
        model = DDP(net().cuda())
        with model.join():
            for _ in range(1 + rank):
                loss_of(model, data(rank).cuda()).backward()
        model.zero_grad()
        x = data(rank)[: 1 + rank]
        with model.weight(len(x)):
            loss_of(model, x.cuda()).backward()
        return flat([p.grad for p in model.parameters()])

    model = net()
    rows = dt.cat([data(0)[:1], data(1)[:2]])
    loss_of(model, rows).backward()
    equal(on_devices(double, body), flat([p.grad for p in model.parameters()]))


def test_device_ids_are_checked(double):
    def body():
        model = net().cuda()
        with pytest.raises(ConfigError, match="can only be None or contain a single element"):
            DDP(model, device_ids=[0, 1])
        other = 1 - dist.get_rank()
        with pytest.raises(ConfigError, match="move it there first"):
            DDP(model, device_ids=[other])
        model[0].to(f"cuda:{other}")
        with pytest.raises(ConfigError, match="on several devices of one rank"):
            DDP(model)
        model[0].cpu()
        with pytest.raises(ConfigError, match="must be on the same type of devices"):
            DDP(model)

    on_devices(double, body)


def test_batches_are_normalised_together(double):
    def make():
        dt.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def body():
        rank = dist.get_rank()
        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(make()).cuda())
        model(data(rank).cuda()).pow(2).mean().backward()
        stats = flat([model.module[1].running_var, model.module[1].running_mean])
        return np.concatenate([flat([p.grad for p in model.parameters()]), stats])

    model = make()
    model(dt.cat([data(0), data(1)])).pow(2).mean().backward()
    stats = flat([model[1].running_var, model[1].running_mean])
    equal(
        on_devices(double, body),
        np.concatenate([flat([p.grad for p in model.parameters()]), stats]),
    )


def test_a_cpu_backend_moves_gradients_by_way_of_the_host(double):
    got = on_devices(double, lambda: trained(double), backend="gloo")
    equal([g for g, _ in got], alone(sgd, 2))


def test_a_rank_without_device_is_told(double):
    def body():
        return net().to(f"cuda:{dist.get_rank() + 2}")

    with pytest.raises(LaunchError, match="invalid device ordinal"):
        on_devices(double, body)
