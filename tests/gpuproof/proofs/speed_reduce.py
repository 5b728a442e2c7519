"""All-reduce between two ranks by size. Where both are on one device, the data takes NCCL's network
path over the host: the numbers compare libraries, and say nothing of NVLink."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import statistics
import time
from typing import Any

import disttrain as dt
from disttrain.errors import LaunchError
from disttrain_launcher import launch

from ..journal import Job
from .places import settle
from .ranks import RANKS, on_ranks, told

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 27)  # bytes


def prove(job: Job) -> None:
    """Gigabytes a second of each size, ours and PyTorch's."""
    settle(job)
    sizes = SIZES if job.real else SIZES[:2]
    job.case("all-reduce by size", lambda: _measured(job, sizes))


def _measured(job: Job, sizes: tuple[int, ...]) -> None:
    found = {"disttrain": told(on_ranks(job, functools.partial(_ours, sizes)))[0]}
    if job.real and importlib.util.find_spec("torch") is not None:
        try:
            found["PyTorch"] = launch(_theirs, RANKS, (sizes,))[0]
        except LaunchError as error:
            job.journal.note(f"PyTorch: {str(error).splitlines()[0]}")
    for k, size in enumerate(sizes):
        beside = {n: size / v[k] / 1e9 for n, v in found.items() if n != "disttrain"}
        mine = size / found["disttrain"][k]
        unit = f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
        more: dict[str, Any] = {"beside": beside} if beside else {}
        job.journal.number(f"all-reduce of {unit}", mine / 1e9, "GB/s", **more)


def _ours(sizes: tuple[int, ...], rank: int) -> list[float]:
    return [_timed(dt, dt.distributed, size) for size in sizes]


def _theirs(sizes: tuple[int, ...]) -> list[float]:
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"gpuproof-{rank}"  # two ranks on one device, for NCCL
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl")
    try:
        return [_timed(torch, dist, size) for size in sizes]
    finally:
        dist.destroy_process_group()


def _timed(T: Any, dist: Any, size: int) -> float:
    """The median seconds of an all-reduce that is waited for."""
    x, times = T.ones(size // 4, device="cuda"), []
    for _ in range(12):
        dist.barrier()
        T.cuda.synchronize()
        start = time.perf_counter()
        dist.all_reduce(x)
        T.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])
