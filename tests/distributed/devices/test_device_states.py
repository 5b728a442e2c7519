"""What is kept, cut and sent of device Tensors: checkpoints, optimizers, pipelines, calls."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed import checkpoint
from disttrain.distributed.device_mesh import init_device_mesh
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.optim import ZeroRedundancyOptimizer
from disttrain.distributed.pipelining import PipelineStage, Schedule1F1B
from disttrain.errors import PackError
from disttrain.rpc.calls.packing import Packer
from support.device_ranks import alone, data, equal, flat, loss_of, net, on_devices

pytestmark = pytest.mark.simulated


def test_checkpoints_are_taken_from_devices_and_loaded_in_place(double, tmp_path):
    def body():
        rank = dist.get_rank()
        model = fully_shard(net(), mesh=init_device_mesh("cuda", (2,)))
        loss_of(model, data(rank)).backward()
        before = flat(model.parameters())
        state = {"model": model.state_dict(), "beside": dt.ones(3, device="cuda")}
        checkpoint.save(state, checkpoint_id=tmp_path / "now")
        checkpoint.async_save(state, checkpoint_id=tmp_path / "later").result()
        for name in ("now", "later"):
            with dt.no_grad():
                for p in [*model.parameters(), state["beside"]]:
                    p.mul_(0)
            checkpoint.load(state, checkpoint_id=tmp_path / name)
            equal([flat(model.parameters())], before)
            assert state["beside"].cpu().tolist() == [1, 1, 1]
        return str(state["beside"].device)

    assert on_devices(double, body) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("views", [False, True])
def test_optimizer_states_are_cut_over_devices(double, views):
    def adam(params):
        return optim.Adam(params, lr=0.05)

    def body():
        rank = dist.get_rank()
        model = dist.DistributedDataParallel(net().cuda())
        zero = ZeroRedundancyOptimizer(
            model.parameters(), optim.Adam, parameters_as_bucket_view=views, lr=0.05
        )
        for _ in range(3):
            zero.zero_grad()
            loss_of(model, data(rank).cuda()).backward()
            zero.step()
        return flat(model.parameters())

    equal(on_devices(double, body), alone(adam, 2))


def test_stages_hand_on_tensors_of_devices(double):
    def body():
        rank = dist.get_rank()
        part = nn.Sequential(*list(net())[rank * 2 : rank * 2 + 2]).cuda()
        stage = PipelineStage(part, rank, 2, dt.device("cuda", rank))
        schedule = Schedule1F1B(stage, 2, loss_fn=lambda y, t: (y - t).pow(2).mean())
        if rank == 0:
            schedule.step(data(0).cuda())
        else:
            schedule.step(target=dt.zeros(4, 3, device="cuda"))
        return flat([p.grad for p in part.parameters()])

    model = net()
    loss_of(model, data(0)).backward()
    grads = [p.grad for p in model.parameters()]
    first, second = on_devices(double, body)
    equal([first], flat(grads[:2]))
    equal([second], flat(grads[2:]))


def test_calls_take_no_tensors_of_devices(double):
    t = dt.ones(2, device="cuda")
    for given in (t, nn.Parameter(t)):
        with pytest.raises(PackError, match="please move your tensors to CPU"):
            Packer().pack({"x": given})
