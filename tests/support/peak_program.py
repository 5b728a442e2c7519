"""A program that trains a GPT of 19 million parameters under a strategy of ``disttrain plan`` and
prints how much memory a rank took at its peak, and how much the plan says."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
from benchmarks.models import make_gpt

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import planning
from disttrain.distributed.fsdp import fully_shard

WIDTH, LAYERS, CONTEXT, BATCH = 512, 6, 64, 4


def kilobytes(file: str, name: str) -> int:
    with open(f"/proc/self/{file}", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def loss_of(model: Any, idx: Any, target: Any) -> Any:
    return dt.nn.functional.cross_entropy(model(idx).view(-1, 65), target.view(-1))


def make(width: int = WIDTH, layers: int = LAYERS) -> Any:
    return make_gpt(dt, 65, width, 8, layers, CONTEXT)


def adamw(parameters: Any) -> Any:
    return dt.optim.AdamW(parameters, lr=1e-3)


def train(model: Any, net: Any, steps: int) -> None:
    rng = np.random.default_rng(0)
    idx, target = (dt.from_numpy(rng.integers(0, 65, (BATCH, CONTEXT))) for _ in range(2))
    optimizer = adamw(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(net, idx, target).backward()
        optimizer.step()


def wrapped(strategy: str, model: Any) -> Any:
    if strategy == "single":
        return model
    if strategy == "ddp":
        return dist.DistributedDataParallel(model)
    reshard = None if strategy == "fsdp" else False
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard)
    return fully_shard(model, reshard_after_forward=reshard)


def planned(strategy: str, world: int) -> int:
    def loss(model: Any, batch: int) -> Any:
        idx = dt.zeros(batch, CONTEXT, dtype=dt.int64, device="meta")
        return loss_of(model, idx, idx)

    subject = planning.Subject(
        make, loss, world * BATCH, adamw, lambda module: type(module).__name__ == "Block"
    )
    return next(n.total for n in planning.needs_of(subject, world) if n.strategy == strategy)


def measured(strategy: str) -> float:
    """Bytes beyond those of a process that has trained a small model. Memory that several ranks
    have mapped counts for each in equal parts."""
    small = make(64, 2)
    train(small, small, 2)
    del small
    gc.collect()
    before = kilobytes("status", "VmRSS")
    model = make()
    net = wrapped(strategy, model)
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")  # the peak begins here
    train(model, net, 3)
    dist.barrier()
    shared = kilobytes("status", "RssShmem") - kilobytes("smaps_rollup", "Pss_Shmem")
    peak = kilobytes("status", "VmHWM") - before - shared
    dist.barrier()
    return peak * 1024


if __name__ == "__main__":
    dist.init_process_group()
    print(f"{measured(sys.argv[1]):.0f} {planned(sys.argv[1], dist.get_world_size())}")
    dist.destroy_process_group()
