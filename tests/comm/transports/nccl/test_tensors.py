"""Programs on Tensors of devices over NCCL's stand-in: PyTorch's calls, waits, groups and ends."""

from __future__ import annotations

import logging
import os

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain import context, nn, optim
from disttrain import distributed as dist
from disttrain.backends.device.platform import platform
from disttrain.comm.calls.reduce_ops import ReduceOp
from disttrain.comm.transports import sim
from disttrain.comm.transports.nccl import connecting
from disttrain.comm.transports.nccl.reductions import Native, native
from disttrain.distributed.ddp import DistributedDataParallel
from disttrain.errors import CommError, ConfigError, DeviceError, DTypeError, PeerFailed

pytestmark = pytest.mark.simulated


def tasks_on_devices(body):
    """As ``on_devices``, of ranks of which some may fail, and the others end as they like."""

    def rank():
        dist.init_process_group("nccl", timeout=30.0)
        platform("cuda").use(context.current().rank)
        return body(context.current().rank)

    return sim.run_cluster(rank, sim.Cluster(3, compute=0.0))[0].tasks


def on_devices(body, size=3, backend="nccl", **named):
    """``body(rank)`` on ranks that each have the device of their number."""

    def rank():
        me = context.current().rank
        device = {"device_id": dt.device("cuda", me)} if named.get("bound") else {}
        dist.init_process_group(backend, timeout=30.0, **device)
        platform("cuda").use(me)
        found = body(me)
        dist.destroy_process_group()
        return found

    return dist.simulate(rank, size).results


def test_collectives_on_tensors_of_both_kinds(four):
    def body(me):
        x = dt.full((4,), me + 1.0, device="cuda")
        dist.all_reduce(x)
        y = dt.full((2,), me + 1.0)
        dist.all_reduce(y)
        parts = [dt.empty(1, device="cuda") for _ in range(3)]
        dist.all_gather(parts, dt.full((1,), float(me), device="cuda"))
        whole = dt.empty(6, device="cuda")
        dist.all_gather_into_tensor(whole, dt.full((2,), float(me), device="cuda"))
        mine = dt.empty(2, device="cuda")
        dist.reduce_scatter_tensor(mine, whole, op=dist.ReduceOp.MAX)
        objects = [None] * 3
        dist.all_gather_object(objects, {"rank": me})
        dist.barrier()
        return [x.tolist(), y.tolist(), [p.item() for p in parts], whole.tolist(), mine.tolist(),
                objects]  # fmt: skip

    for me, got in enumerate(on_devices(body, backend="cpu:gloo,cuda:nccl")):
        want = [[6.0] * 4, [6.0] * 2, [0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0],
                [float(me)] * 2, [{"rank": r} for r in range(3)]]  # fmt: skip
        assert got == want


def test_the_host_waits_for_nothing_that_it_is_not_asked_for(four):
    def body(me):
        x = dt.full((1000,), me + 1.0, device="cuda")
        dist.all_reduce(x)
        before = len(four.counts.waits)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        y = dt.ones(1000, device="cuda") * 2
        assert work.wait()
        z = x + y
        waits = len(four.counts.waits) - before
        future = dist.all_reduce(z, async_op=True).get_future()
        total = future.then(lambda f: f.value()[0] * 10).wait()
        return waits, z[0].item(), total[0].item()

    assert on_devices(body, 2) == [(0, 28.0, 280.0)] * 2


def test_messages_in_a_batch_need_no_order(four):
    def body(me):
        big = 40_000  # more than NCCL keeps of a message that nobody has asked for
        mine, into = dt.full((big,), float(me), device="cuda"), dt.empty(big, device="cuda")
        ops = [
            dist.P2POp(dist.isend, mine, (me + 1) % 3),
            dist.P2POp(dist.irecv, into, (me - 1) % 3),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return into[-1].item()

    assert on_devices(body) == [2.0, 0.0, 1.0]
    assert ("recv", "send") in [tuple(sorted(x)) for x in four.binding.launches]


def test_single_messages_go_over_communicators_of_two(four):
    def body(me):
        x = dt.full((5,), float(me), device="cuda")
        if me == 0:
            dist.send(x, 1)
            dist.recv(x, 2)
        else:
            y = dt.empty(5, device="cuda")
            dist.recv(y, me - 1)
            dist.send(y + 1, (me + 1) % 3)
        return x.tolist()

    assert on_devices(body)[0] == [2.0] * 5
    assert {c.size for c in four.binding.cliques.values()} == {2}


def test_several_operations_as_one(four):
    def body(me):
        a, b = dt.ones(3, device="cuda"), dt.full((2,), 2.0, device="cuda")
        dist.all_reduce(a)
        with dist.distributed_c10d._coalescing_manager(device=a.device, async_ops=True) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        manager.wait()
        dist.all_reduce_coalesced([a, b])
        return a.tolist(), b.tolist()

    assert on_devices(body, 2) == [([8.0] * 3, [8.0] * 2)] * 2
    assert four.binding.launches.count(("all_reduce", "all_reduce")) == 4


def test_groups_of_a_bound_group_are_divided_from_it(four):
    def body(me):
        pair = dist.new_group([0, 2])
        x = dt.full((2,), me + 1.0, device="cuda")
        if me != 1:
            dist.all_reduce(x, group=pair)
        return x.tolist()

    assert on_devices(body, bound=True) == [[4.0] * 2, [2.0] * 2, [4.0] * 2]
    (whole,) = four.binding.cliques.values()
    assert [c.size for c in whole.children.values()] == [2]


def test_operators_and_types(four):
    def body(me):
        found = []
        for dtype in (dt.bfloat16, dt.float16, dt.float64, dt.int32):
            x = dt.full((2,), me + 1, dtype=dtype, device="cuda")
            dist.all_reduce(x, op=dist.ReduceOp.SUM)
            found.append(x.tolist())
        x = dt.full((2,), me + 1.0, device="cuda")
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
        found.append(x.tolist())
        truth = dt.tensor([me == 0, False], device="cuda")
        dist.all_reduce(truth)
        return [*found, truth.tolist()]

    assert on_devices(body, 2) == [[[3, 3]] * 4 + [[1.5, 1.5], [True, False]]] * 2


def test_what_nccl_reduces_itself():
    eight, foreign = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2fnuz)
    assert native(ReduceOp.SUM, eight, 2, 9) == Native("FLOAT8E4M3", "SUM")
    assert native(ReduceOp.SUM, np.dtype(bool), 2, 9) == Native("UINT8", "MAX")
    assert native(ReduceOp.AVG, np.dtype("c8"), 2, 9) == Native("FLOAT32", "AVG", None, 2)
    assert native(ReduceOp.PRODUCT, np.dtype("c8"), 2, 9) is None
    assert native(ReduceOp.SUM, np.dtype("i2"), 2, 9) is None
    assert native(ReduceOp.BXOR, np.dtype("i4"), 2, 9) is None
    for dtype, major in ((eight, 8), (foreign, 9)):
        with pytest.raises(DTypeError, match="Convert it to bfloat16"):
            native(ReduceOp.SUM, dtype, 2, major)
    with pytest.raises(DTypeError, match="floating"):
        native(ReduceOp.AVG, np.dtype("i4"), 2, 9)


def test_ranks_that_share_a_device_are_hosts_of_their_own(four, caplog, monkeypatch):
    monkeypatch.delenv("NCCL_HOSTID", raising=False)

    def rank():
        dist.init_process_group("nccl", device_id=dt.device("cuda", 0))
        dist.destroy_process_group()

    with caplog.at_level(logging.WARNING):
        dist.simulate(rank, 2)
    assert "ranks 0, 1 share devices" in caplog.text
    assert all(host is not None for _, host in four.binding.hosts)
    for rank in (0, 1):
        with connecting._as_own_host(rank):
            assert os.environ["NCCL_HOSTID"].endswith(f"-{rank}")
    assert "NCCL_HOSTID" not in os.environ


def test_a_pair_that_shares_a_device_is_of_two_hosts(four, monkeypatch):
    """NCCL refuses two ranks of one host on one device, in communicators of two, too."""
    monkeypatch.delenv("NCCL_HOSTID", raising=False)

    def rank():
        dist.init_process_group("nccl")
        me = dist.get_rank()
        with dt.cuda.stream(dt.cuda.Stream()):  # processes of their own would not share one
            x = dt.full((3,), 5.0 * (1 - me), device="cuda")
            (dist.recv if me else dist.send)(x, 1 - me)
            assert x.tolist() == [5.0] * 3
        dist.destroy_process_group()

    dist.simulate(rank, 2)
    assert [host is not None for _, host in four.binding.hosts] == [True] * 2


def test_arrays_of_two_places_are_refused(four):
    def body(me):
        with pytest.raises(DeviceError, match="different devices"):
            dist.all_gather_into_tensor(dt.empty(4), dt.ones(2, device="cuda"))
        return True

    assert on_devices(body, 2) == [True] * 2


def test_a_graph_takes_what_is_connected(four, monkeypatch):
    def body(me):
        x = dt.ones(2, device="cuda")
        monkeypatch.setattr(four, "capturing", lambda: True)
        with pytest.raises(CommError, match="while a graph is recorded"):
            dist.all_reduce(x)
        monkeypatch.setattr(four, "capturing", lambda: False)
        group = dist.new_group([0])
        if me == 0:
            dist.all_reduce(x, group=group)
            flight = next(iter(group.transport.devices.values()))._flight
            flight.clear()
            monkeypatch.setattr(four, "capturing", lambda: True)
            dist.all_reduce(x, group=group)
            assert not flight, "nobody asks for an event that lies in a graph"
            monkeypatch.setattr(four, "capturing", lambda: False)
        return True

    assert on_devices(body, 1) == [True]


def test_a_device_need_not_be_the_current_one(four):
    def body(me):
        four.use((me + 1) % 4)
        x = dt.full((2, 3), me + 1.0, device=f"cuda:{me}")
        dist.all_reduce(x.T)
        into = dt.empty((4, 3), device=f"cuda:{me}")
        work = dist.all_gather_into_tensor(into, x, async_op=True)
        work.wait()
        y = into + 1
        return y.sum().item(), x.tolist()

    assert on_devices(body, 2) == [(48.0, [[3.0] * 3] * 2)] * 2


def test_registered_memory_is_given_back(four):
    def body(me):
        x = four.upload(np.ones(100, np.float32), me)
        group = dist.group.WORLD
        group.all_reduce(x)
        forget = group.transport.on(four).register(x)
        kept = len(four.binding.registered)
        group.all_reduce(x)
        group.barrier()
        forget()
        return kept > 0, four.download(x)[0]

    assert on_devices(body, 2) == [(True, 4.0)] * 2
    assert not four.binding.registered


@pytest.mark.parametrize("fails", [False, True])
def test_those_that_are_left_go_on(four, fails):
    """Out of the communicator that they had, where that is well; else out of a new one."""

    def body(me):
        pair = dist.new_group([0, 1])
        x = dt.full((2,), me + 1.0, device="cuda")
        dist.all_reduce(x)
        if me < 2:
            dist.all_reduce(dt.ones(1, device="cuda"), group=pair)
        dist.barrier()
        if me == 1:
            if fails:
                raise ValueError("on purpose")
            return None
        if fails:
            with pytest.raises(PeerFailed, match="rank 1"):
                dist.all_reduce(x)
                dist.barrier()
            dist.shrink()
        else:
            dist.shrink_group([1])
        y = dt.full((2,), me + 1.0, device="cuda")
        dist.all_reduce(y)
        return x.tolist(), y.tolist(), dist.get_world_size()

    tasks = tasks_on_devices(body)
    for task in (tasks[0], tasks[2]):
        assert task.error is None, task.text
        assert task.result[1:] == ([4.0] * 2, 2)
    whole = next(iter(four.binding.cliques.values()))
    assert len(whole.children) == (0 if fails else 1)


def test_a_setting_that_means_nothing_is_refused(four, monkeypatch):
    monkeypatch.setenv("DISTTRAIN_NCCL_CHECK", "sometimes")

    def body(me):
        with pytest.raises(ConfigError, match=r"'beside'.*'before'"):
            dist.all_reduce(dt.ones(1, device="cuda"))
        return True

    assert on_devices(body, 1) == [True]


def test_without_the_binding_arrays_go_by_way_of_the_host(four):
    four.binding = None

    def body(me):
        x = dt.full((2, 3), me + 1.0, device="cuda")
        work = dist.all_reduce(x.T, async_op=True)
        work.wait()
        into = dt.empty((4, 3), device="cuda")
        dist.all_gather_into_tensor(into, x)
        if me == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        return x.tolist(), into.sum().item()

    for backend in (None, "gloo"):
        assert on_devices(body, 2, backend) == [([[3.0] * 3] * 2, 36.0)] * 2


def test_data_parallel_training_gives_the_numbers_of_the_host(four):
    def trained(where):
        dt.manual_seed(0)
        layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(where)
        model = DistributedDataParallel(layers)
        steps = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = dt.ones(2, 4, device=where) * (dist.get_rank() + 1)
            loss = model(x).pow(2).mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
        return np.concatenate([p.detach().cpu().numpy().ravel() for p in layers.parameters()])

    def body(me):
        return trained("cpu"), trained(f"cuda:{me}")

    (host, device), (_, other) = on_devices(body, 2)
    assert device.tobytes() == other.tobytes()
    np.testing.assert_allclose(device, host, rtol=1e-5, atol=1e-6)
    assert ("all_reduce",) in four.binding.launches
