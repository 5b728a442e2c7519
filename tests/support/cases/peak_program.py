"""A program that trains a GPT of 19 million parameters under a strategy of ``disttrain plan``
("fsdp", or "fsdp recompute" with activation checkpointing, "ddp twice" with two backwards a step)
and prints how much memory a rank took at its peak, and how much the plan says."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import planning
from disttrain.distributed.fsdp import fully_shard
from training.models import GPT, Block
from training.settings import Model, Optim, Parallel
from training.strategies import SPLIT, make_rank_optimizer, wrap

WIDTH, LAYERS, CONTEXT, BATCH = 512, 6, 64, 4


def kilobytes(file: str, name: str) -> int:
    with open(f"/proc/self/{file}", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def loss_of(model: Any, idx: Any, target: Any) -> Any:
    return dt.nn.functional.cross_entropy(model(idx).view(-1, 65), target.view(-1))


def make(width: int = WIDTH, layers: int = LAYERS) -> Any:
    return GPT(Model("gpt", num_layers=layers, num_heads=8, width=width), 65, CONTEXT)


def parallel_of(words: list[str]) -> Parallel:
    """The settings of the training program for a row of the plan."""
    names = {"single": "none", "zero1": "zero", "fsdp x tp": "2d"}
    row = row_of(words)
    return Parallel(names.get(row, row), recompute="recompute" in words, replicas=2, tensor=2)


def row_of(words: list[str]) -> str:
    return " ".join(w for w in words if w not in ("recompute", "twice"))


def train(net: Any, optimizer: Any, steps: int, forwards: int = 1) -> None:
    rng = np.random.default_rng(0)
    idx, target = (dt.from_numpy(rng.integers(0, 65, (BATCH, CONTEXT))) for _ in range(2))
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(forwards):
            loss_of(net, idx, target).backward()
        optimizer.step()


def wrapped(words: list[str], model: Any) -> tuple[Any, Any]:
    """The model under the strategy, and its optimizer."""
    if row_of(words) == "fsdp shard_grad_op":
        for block in model.blocks:
            fully_shard(block, reshard_after_forward=False)
        fully_shard(model, reshard_after_forward=False)
        return model, dt.optim.AdamW(model.parameters(), lr=1e-3)
    parallel = parallel_of(words)
    net = wrap(parallel, model).net
    return net, make_rank_optimizer(parallel, Optim("adamw"), model.parameters())


def planned(words: list[str], world: int) -> int:
    def loss(model: Any, batch: int) -> Any:
        idx = dt.zeros(batch, CONTEXT, dtype=dt.int64, device="meta")
        return loss_of(model, idx, idx)

    data = world // (2 if words[-1] == "tp" else 1)
    forwards = 2 if "twice" in words else 1
    subject = planning.Subject(
        make,
        loss,
        data * BATCH * forwards,
        dt.optim.AdamW,
        lambda module: isinstance(module, Block),
        {f"blocks.*.{name}": how for name, how in SPLIT.items()},
        checkpointing="recompute" in words,
        virtual_shards=data * forwards if forwards > 1 else 0,
    )
    needs = planning.needs_of(subject, world, 1, 0, 2)
    return next(n for n in needs if n.strategy == row_of(words)).total


def measured(words: list[str]) -> float:
    """Bytes beyond those of a process that has trained a small model. Memory that several ranks
    have mapped counts for each in equal parts."""
    small = make(64, 2)
    train(small, dt.optim.AdamW(small.parameters()), 2)
    del small
    gc.collect()
    before = kilobytes("status", "VmRSS")
    model = make()
    net, optimizer = wrapped(words, model)
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")  # the peak begins here
    train(net, optimizer, 2, 2 if "twice" in words else 1)
    dist.barrier()
    shared = kilobytes("status", "RssShmem") - kilobytes("smaps_rollup", "Pss_Shmem")
    peak = kilobytes("status", "VmHWM") - before - shared
    dist.barrier()
    return peak * 1024


if __name__ == "__main__":
    dist.init_process_group()
    print(f"{measured(sys.argv[1:]):.0f} {planned(sys.argv[1:], dist.get_world_size())}")
    dist.destroy_process_group()
