"""Collectives on device Tensors, and DTensors whose parts lie on devices."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import _functional_collectives as functional
from disttrain.distributed.device_mesh import init_device_mesh
from disttrain.distributed.nn import functional as recorded
from disttrain.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from disttrain.distributed.tensor import randn as spread_randn
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from support.device_ranks import data, equal, flat, loss_of, net, on_devices, waits_in

pytestmark = pytest.mark.simulated


def cuda(*values):
    return dt.tensor(values, device="cuda", dtype=dt.float32)


def test_every_verb_on_tensors_of_devices(double):
    def body():
        r = dist.get_rank()
        out = {}

        def verbs():
            t = cuda(1 + r, 2)
            dist.all_reduce(t)
            out["sum"] = t
            work = dist.all_reduce(cuda(1), async_op=True)
            work.wait()
            parts = [cuda(0, 0) for _ in range(2)]
            dist.all_gather(parts, t + r)
            out["gathered"] = parts[1]
            both = cuda(0, 0, 0, 0)
            dist.all_gather_into_tensor(both, t)
            mine = cuda(0, 0)
            dist.reduce_scatter_tensor(mine, both)
            out["scattered"] = mine
            swapped = cuda(0, 0)
            dist.all_to_all_single(swapped, cuda(10 * r, 10 * r + 1))
            out["swapped"] = swapped
            rows = cuda(1, 2, 3, 4).reshape(2, 2).t()  # not in order
            dist.broadcast(rows, 1)
            dist.all_reduce_coalesced([rows, t])
            if r == 0:
                dist.send(rows, 1)
            else:
                dist.recv(rows, 0)
            out["rows"] = rows

        waits = waits_in(double, verbs)
        return {k: v.cpu().numpy().tolist() for k, v in out.items()}, waits

    for rank, (got, waits) in enumerate(on_devices(double, body)):
        assert got["sum"] == [6.0, 8.0] or got["sum"] == [3.0, 4.0]
        assert got["gathered"] == [4.0, 5.0]
        assert got["scattered"] == [6.0, 8.0]
        assert got["swapped"] == [rank, 10.0 + rank]
        assert got["rows"] == [[2.0, 6.0], [4.0, 8.0]]
        assert [w for w in waits if "upload" not in w] == []


def test_functional_and_recorded_collectives_and_objects(double):
    def body():
        r = dist.get_rank()
        world = dist.group.WORLD
        y = functional.wait_tensor(functional.all_reduce(cuda(1 + r), "sum", world))
        z = functional.all_gather_tensor(cuda(r), 0, world)
        x = cuda(1.0, 2.0).requires_grad_()
        (recorded.all_reduce(x) * (1 + r)).sum().backward()
        numbers = [y.item(), z.cpu().tolist(), x.grad.cpu().tolist()]
        found = [None, None]
        dist.all_gather_object(found, {"rank": r, "on": cuda(r) if r == 0 else None})
        return numbers, [f["rank"] for f in found], str(found[0]["on"].device)

    want = ([3.0, [0.0, 1.0], [3.0, 3.0]], [0, 1], "cuda:0")
    assert on_devices(double, body) == [want, want]


def test_parts_on_devices_move_compute_and_are_drawn_in_step(double):
    def body():
        mesh = init_device_mesh("cuda", (2,))
        t = distribute_tensor(dt.arange(12).reshape(4, 3).float(), mesh, [Shard(0)])
        assert t.device == t.to_local().device == dt.device("cuda", dist.get_rank())
        other = t.redistribute(placements=[Shard(1)])
        product = (other @ t.t()).full_tensor()
        t.t().mul_(2)
        t[0].add_(1)
        summed = DTensor.from_local(dt.ones(2), mesh, [Partial()]).full_tensor()
        dt.manual_seed(3)
        drawn = spread_randn(4, 4, device_mesh=mesh, placements=[Shard(0)])
        kept = nn.functional.dropout(drawn, 0.5)
        whole = drawn.full_tensor()
        half = [x.cpu().numpy() for x in (product, t.full_tensor(), summed, whole)]
        return [*half, (kept.full_tensor() != 0).cpu().numpy()]

    x = np.arange(12.0).reshape(4, 3)
    doubled = 2 * x
    doubled[0] += 1
    first, second = on_devices(double, body)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first[0], x @ x.T)
    np.testing.assert_array_equal(first[1], doubled)
    np.testing.assert_array_equal(first[2], [2, 2])
    assert len(np.unique(first[3])) == 16


def test_tensor_parallel_layers_equal_one_process(double):
    def body():
        mesh = init_device_mesh("cuda", (2,))
        model = parallelize_module(
            net().cuda(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
        )
        loss_of(model, data(0).cuda()).backward()
        return flat([p.grad for p in model.parameters()])

    model = net()
    loss_of(model, data(0)).backward()
    equal(on_devices(double, body), flat([p.grad for p in model.parameters()]))


def test_replicated_numbers_stay_where_they_are(double):
    def body():
        mesh = init_device_mesh("cuda", (2,))
        t = distribute_tensor(dt.ones(2, 2, device="cuda"), mesh, [Replicate()])
        return (t + 1).sum().full_tensor().item(), str(dt.zeros_like(t).to_local().device)

    assert on_devices(double, body) == [(8.0, "cuda:0"), (8.0, "cuda:1")]
