"""All-reduce between two ranks by size. Where both are on one device, the data takes NCCL's network
path over the host: the numbers compare libraries, and say nothing of NVLink."""

from __future__ import annotations

import importlib
import importlib.util
import os
import statistics
import time
from typing import Any

import disttrain as dt
from launcher import launch

from ..journal import Job, Skip
from .places import settle

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 27)  # bytes


def prove(job: Job) -> None:
    """Gigabytes a second of each size, ours and PyTorch's."""
    settle(job)
    sizes = SIZES if job.real else SIZES[:2]
    job.case("all-reduce by size", lambda: _measured(job, sizes))


def _measured(job: Job, sizes: tuple[int, ...]) -> None:
    names = ["disttrain"]
    if job.real and importlib.util.find_spec("torch") is not None:
        names.append("PyTorch")
    found = {}
    for name in names:
        try:
            found[name] = launch(_rank, 2, (name, job.real, sizes))[0]
        except Exception as error:
            if name == "disttrain":
                raise
            job.journal.note(f"{name}: {str(error).splitlines()[0]}")
    if isinstance(found["disttrain"], str):
        raise Skip(found["disttrain"])
    for k, size in enumerate(sizes):
        beside = {n: size / v[k] / 1e9 for n, v in found.items() if n != "disttrain"}
        mine = size / found["disttrain"][k]
        unit = f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
        job.journal.number(f"all-reduce of {unit}", mine / 1e9, "GB/s",
                           **({"beside": beside} if beside else {}))  # fmt: skip


def _rank(name: str, real: bool, sizes: tuple[int, ...]) -> Any:
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"gpuproof-{rank}"
    if real and importlib.util.find_spec("nccl") is None:
        return "nccl4py is not installed"
    T = dt if name == "disttrain" else importlib.import_module("torch")
    dist = dt.distributed if T is dt else importlib.import_module("torch.distributed")
    if real:
        T.cuda.set_device(rank % T.cuda.device_count())
    dist.init_process_group("nccl" if real else None)
    found = []
    for size in sizes:
        x = T.ones(size // 4, device="cuda")
        times = []
        for k in range(12 if real else 3):
            dist.barrier()
            T.cuda.synchronize()
            start = time.perf_counter()
            dist.all_reduce(x)
            T.cuda.synchronize()
            if k > 1:
                times.append(time.perf_counter() - start)
        found.append(statistics.median(times))
    dist.destroy_process_group()
    return found
