"""Memory and checkpoints of sharded models on 2 ranks, for both libraries alike."""

from __future__ import annotations

import gc
import importlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.models import gpt_stepper, make_gpt, small_gpt
from benchmarks.strategies import in_group, sharded

WIDTH, LAYERS, CONTEXT, BATCH = 512, 6, 64, 4  # a GPT of 19 million parameters
MIB = 1 << 20


def _kilobytes(file: str, name: str) -> int:
    with open(f"/proc/self/{file}", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _make_big(T: Any) -> Any:
    return make_gpt(T, 65, WIDTH, 8, LAYERS, CONTEXT)


def _loss(T: Any, model: Any, idx: Any, target: Any) -> Any:
    return T.nn.functional.cross_entropy(model(idx).view(-1, 65), target.view(-1))


@in_group
def fsdp_memory(T: Any) -> dict[str, float]:
    """What a rank's memory grows by under fully_shard, at its peak (MB); and that against the plan.

    Memory that both ranks have mapped counts half for each.
    """
    warm = gpt_stepper(T, small_gpt(T))
    warm()
    del warm
    gc.collect()
    before = _kilobytes("status", "VmRSS")
    model = _make_big(T)
    model = sharded(T, model, model.blocks)
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    idx, target = (T.from_numpy(rng.integers(0, 65, (BATCH, CONTEXT))) for _ in range(2))
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")  # the peak begins here, without the weights that were not sharded yet
    for _ in range(3):
        optimizer.zero_grad()
        _loss(T, model, idx, target).backward()
        optimizer.step()
    T.distributed.barrier()
    twice = _kilobytes("status", "RssShmem") - _kilobytes("smaps_rollup", "Pss_Shmem")
    peak = (_kilobytes("status", "VmHWM") - before - twice) / 1024
    T.distributed.barrier()
    rows = {"memory: 19 M parameters under fully_shard": peak}
    if T.__name__ == "disttrain":
        rows["ratio: peak under fully_shard to plan"] = peak / (_planned(T) / MIB)
    return rows


def _planned(T: Any) -> int:
    planning = importlib.import_module("disttrain.distributed.planning")

    def loss(model: Any, batch: int) -> Any:
        idx = T.zeros(batch, CONTEXT, dtype=T.int64, device="meta")
        return _loss(T, model, idx, idx)

    subject = planning.Subject(
        lambda: _make_big(T),
        loss,
        2 * BATCH,
        lambda parameters: T.optim.AdamW(parameters, lr=1e-3),
        lambda module: type(module).__name__ == "Block",
    )
    return next(n.total for n in planning.needs_of(subject, 2) if n.strategy == "fsdp")


@in_group
def checkpoint(T: Any) -> dict[str, float]:
    """Save and load 256 MB of sharded weights."""
    dcp = importlib.import_module(f"{T.__name__}.distributed.checkpoint")
    model = T.nn.Sequential(*[T.nn.Linear(1024, 1024, bias=False) for _ in range(64)])
    model = sharded(T, model, [])
    names = [tempfile.mkdtemp(prefix="bench-") if T.distributed.get_rank() == 0 else None]
    T.distributed.broadcast_object_list(names, 0)
    folder = f"{names[0]}/checkpoint"

    def timed(act: Callable[[], Any]) -> float:
        times = []
        for _ in range(3):
            T.distributed.barrier()
            start = time.perf_counter()
            act()
            T.distributed.barrier()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    try:
        return {
            "checkpoint: save 256 MB, 2 ranks": timed(
                lambda: dcp.save(model.state_dict(), checkpoint_id=folder)
            ),
            "checkpoint: load 256 MB, 2 ranks": timed(
                lambda: dcp.load(model.state_dict(), checkpoint_id=folder)
            ),
        }
    finally:
        T.distributed.barrier()
        if T.distributed.get_rank() == 0:
            shutil.rmtree(names[0])
