"""Ranks on devices: DDP and FSDP are one process, collectives are numpy's, calls that do not fit
and ranks that die are named errors in bounded time.

On a machine with one device all ranks share it: NCCL takes two ranks of one device only where they
look like two hosts (which ``comm/nccl`` arranges), and moves data over its network path then. Ranks
are forked from this process, which starts no device.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import context
from disttrain.comm.transports import sim
from disttrain.errors import BackendError, DeviceError, DisttrainError, LaunchError
from disttrain_launcher import launch

from ..journal import Job, Skip
from .places import settle

RANKS = 2
F = dt.nn.functional
dist = dt.distributed


def prove(job: Job) -> None:
    """Each case is a job of its own."""
    settle(job)
    for fn in (collectives, odd_types, ddp_is_one_process, fsdp_is_one_process, many_in_flight,
               a_call_that_does_not_fit, a_rank_that_raises, a_rank_that_is_killed):  # fmt: skip
        job.case(fn.__name__.replace("_", " "), lambda fn=fn: fn(job))


def on_ranks(job: Job, body: Callable[..., Any]) -> list:
    """What each rank returns; a ``LaunchError`` where one has failed. Processes on a device, and
    simulated ranks over a stand-in for NCCL where there is none."""
    if job.real:
        return launch(_rank, RANKS, (body,))
    tasks = sim.run_tasks(lambda: _rank(body), RANKS, seed=1).tasks
    failed = [f"rank {t.rank}: {type(t.error).__name__}: {t.error}" for t in tasks if t.error]
    failed += [f"rank {t.rank} was killed" for t in tasks if t.killed]
    if failed:
        raise LaunchError("; ".join(failed))
    return [t.result for t in tasks]


def _rank(body: Callable[..., Any]) -> Any:
    rank = context.current().rank
    try:
        dt.cuda.set_device(rank % dt.cuda.device_count())
        dist.init_process_group("nccl")
    except (BackendError, DeviceError) as error:
        return str(error)
    try:
        return body(rank)
    finally:
        dist.destroy_process_group()


def told(results: list) -> list:
    """The results; a rank that could not begin said why."""
    for one in results:
        if isinstance(one, str):
            raise Skip(one)
    return results


def _collectives(rank: int) -> list:
    x = (dt.arange(1000, device="cuda") * (rank + 1)).float()
    summed = x.clone()
    dist.all_reduce(summed)
    most = x.clone()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    gathered = dt.empty(RANKS * 1000, device="cuda")
    dist.all_gather_into_tensor(gathered, x)
    part = dt.empty(1000, device="cuda")
    dist.reduce_scatter_tensor(part, gathered)
    sent = x.clone()
    dist.broadcast(sent, 1)
    other = dt.empty(1000, device="cuda")
    work = [dist.isend(x, 1 - rank), dist.irecv(other, 1 - rank)]
    for one in work:
        one.wait()
    turned = dt.empty(1000, device="cuda")
    dist.all_to_all_single(turned, x)
    dist.barrier()
    return [t.cpu().numpy() for t in (summed, most, gathered, part, sent, other, turned)]


def collectives(job: Job) -> None:
    found = told(on_ranks(job, _collectives))
    base = np.arange(1000, dtype=np.float32)
    whole = np.concatenate([base, 2 * base])
    for rank, (summed, most, gathered, part, sent, other, turned) in enumerate(found):
        np.testing.assert_array_equal(summed, 3 * base)
        np.testing.assert_array_equal(most, 2 * base)
        np.testing.assert_array_equal(gathered, whole)
        np.testing.assert_array_equal(part, (rank + 1) * 2 * base)
        np.testing.assert_array_equal(sent, 2 * base)
        np.testing.assert_array_equal(other, (2 - rank) * base)
        halves = [base[rank * 500 : rank * 500 + 500] * k for k in (1, 2)]
        np.testing.assert_array_equal(turned, np.concatenate(halves))


def _types(rank: int) -> list:
    found = []
    for kind in ("bfloat16", "float16", "float64", "int64", "uint8"):
        x = dt.ones(33, device="cuda").to(getattr(dt, kind))
        dist.all_reduce(x)
        found.append((kind, x.cpu().float().sum().item()))
    for shape in ((), (0,), (3, 1, 5)):
        x = dt.ones(*shape, device="cuda") if shape else dt.tensor(1.0, device="cuda")
        dist.all_reduce(x)
        found.append((str(shape), x.sum().item()))
    return found


def odd_types(job: Job) -> None:
    for found in told(on_ranks(job, _types)):
        assert [value for _, value in found] == [66.0] * 5 + [2.0, 0.0, 30.0], found


def _net() -> Any:
    nn = dt.nn
    dt.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
    )


def _batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((16, 20), dtype=np.float32), rng.integers(0, 5, 16)


def _train(net: Any, rank: int, size: int) -> list[float]:
    x, y = (dt.from_numpy(a[rank::size].copy()).to("cuda") for a in _batch())
    steps, losses = dt.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(5):
        steps.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses


def _ddp(rank: int) -> list:
    net = _net().to("cuda")
    losses = _train(dist.DistributedDataParallel(net), rank, RANKS)
    return [losses, [p.detach().cpu().numpy() for p in net.parameters()]]


def _fsdp(rank: int) -> list:
    net = _net().to("cuda")
    mesh = dist.init_device_mesh("cuda", (RANKS,))
    for layer in (net[0], net[2]):
        dist.fsdp.fully_shard(layer, mesh=mesh)
    dist.fsdp.fully_shard(net, mesh=mesh)
    losses = _train(net, rank, RANKS)
    return [losses, [p.full_tensor().detach().cpu().numpy() for p in net.parameters()]]


def _one(rank: int) -> list:
    net = _net()
    x, y = (dt.from_numpy(a) for a in _batch())
    steps = dt.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        steps.zero_grad()
        F.cross_entropy(net(x), y).backward()
        steps.step()
    return [p.detach().numpy() for p in net.parameters()]


def _as_one_process(job: Job, body: Callable[..., Any]) -> str:
    want = _one(0)
    found = told(on_ranks(job, body))
    for _, weights in found:
        for mine, theirs in zip(weights, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4)
    assert all((a == b).all() for a, b in zip(found[0][1], found[1][1])), "ranks differ"
    return f"rank 0's losses {found[0][0][0]:.4f} to {found[0][0][-1]:.4f}"


def ddp_is_one_process(job: Job) -> str:
    return _as_one_process(job, _ddp)


def fsdp_is_one_process(job: Job) -> str:
    return _as_one_process(job, _fsdp)


def _flight(rank: int) -> float:
    parts = [dt.full((1000,), float(k + rank), device="cuda") for k in range(50)]
    work = [dist.all_reduce(p, async_op=True) for p in parts]
    total = dt.zeros(1000, device="cuda")
    for one, p in zip(work, parts):
        one.wait()
        total += p
    return total.sum().item()


def many_in_flight(job: Job) -> None:
    want = sum(2 * k + 1 for k in range(50)) * 1000
    assert told(on_ranks(job, _flight)) == [want] * RANKS


def _mismatch(rank: int) -> tuple:
    x = dt.ones(10 + rank, device="cuda")
    start = time.monotonic()
    try:
        dist.all_reduce(x)
        dt.cuda.synchronize()
    except DisttrainError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "nothing", "", 0.0


def a_call_that_does_not_fit(job: Job) -> str:
    try:
        found = told(on_ranks(job, _mismatch))
    except LaunchError as error:  # ranks may end with it where they leave the group
        return str(error).splitlines()[0][:200]
    for kind, text, seconds in found:
        assert kind != "nothing", "different sizes were summed"
        assert "10" in text and "11" in text and seconds < 30, (text, seconds)
    return f"{found[0][0]} after {found[0][2]:.2f} s"


def _raises(rank: int) -> str:
    x = dt.ones(10, device="cuda")
    dist.all_reduce(x)
    if rank == 1:
        raise ValueError("boom")
    dist.all_reduce(x)
    dt.cuda.synchronize()
    return ""


def _ends_soon(job: Job, body: Callable[..., Any], said: str) -> str:
    start = time.monotonic()
    try:
        told(on_ranks(job, body))
    except LaunchError as error:
        seconds = time.monotonic() - start
        assert said in str(error), str(error)[:500]
        assert seconds < 60, f"only after {seconds:.0f} s"
        return f"told after {seconds:.1f} s"
    raise AssertionError("nobody heard of it")


def a_rank_that_raises(job: Job) -> str:
    return _ends_soon(job, _raises, "boom")


def _killed(rank: int) -> str:
    x = dt.ones(10, device="cuda")
    dist.all_reduce(x)
    dt.cuda.synchronize()
    if rank == 1:
        if isinstance(context.current().waiter, sim.SimWaiter):
            sim.die()
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(100):
        dist.all_reduce(x)
        dt.cuda.synchronize()
    return ""


def a_rank_that_is_killed(job: Job) -> str:
    return _ends_soon(job, _killed, "SIGKILL" if job.real else "rank 1 was killed")
