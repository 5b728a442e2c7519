"""Training steps under the strategies of data parallelism, on 2 ranks, for both libraries alike.

Each case joins the group, times steps on every rank, and leaves; rank 0's numbers count.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.compiled import in_turn
from benchmarks.models import gpt_stepper, images, make_mlp, median_time, small_gpt, stepper

WIDE, LAYERS = 1024, 25  # 25 matrices of 4 MB: 100 MB of gradients


def in_group(case: Callable[[Any], dict[str, float]]) -> Callable[[Any], dict[str, float]]:
    """``case`` inside a process group."""

    def run(T: Any) -> dict[str, float]:
        T.distributed.init_process_group("gloo")
        T.manual_seed(0)
        try:
            return case(T)
        finally:
            T.distributed.destroy_process_group()

    run.__name__, run.__doc__ = case.__name__, case.__doc__
    return run


def ddp(T: Any, model: Any) -> Any:
    """``model`` under DDP, with default settings."""
    found = getattr(T.distributed, "DistributedDataParallel", None)
    return (found or T.nn.parallel.DistributedDataParallel)(model)


@in_group
def ddp_mlp(T: Any) -> dict[str, float]:
    """The MLP's step under DDP, batch 64 each."""
    step = stepper(T, ddp(T, make_mlp(T)), *images(T, 64, 784))
    return {"step: MLP under DDP, 2 ranks": median_time(step, 30, 5)}


@in_group
def ddp_100mb(T: Any) -> dict[str, float]:
    """A step with 100 MB of gradients and little arithmetic: batch 4, plain SGD."""
    layers = [T.nn.Linear(WIDE, WIDE, bias=False) for _ in range(LAYERS)]
    model = ddp(T, T.nn.Sequential(*layers))
    optimizer = T.optim.SGD(model.parameters(), lr=1e-3)
    x, y = images(T, 4, WIDE)

    def step() -> None:
        optimizer.zero_grad()
        T.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return {"step: 100 MB of gradients under DDP, 2 ranks": median_time(step, 9, 1)}


@in_group
def compiled_ddp(T: Any) -> dict[str, float]:
    """The steps of the MLP and the small GPT under DDP, compiled; and in how much of the time of an
    eager step, measured in turn."""
    steps = {
        "MLP": lambda: stepper(T, ddp(T, make_mlp(T)), *images(T, 64, 784)),
        "GPT": lambda: gpt_stepper(T, ddp(T, small_gpt(T))),
    }
    found: dict[str, float] = {}
    for name, make in steps.items():
        times = in_turn(make(), T.compile(make()), 3)
        found[f"compiled step: {name} under DDP, 2 ranks"] = times["compiled"]
        found[f"ratio: compiled {name} under DDP to eager"] = times["compiled"] / times["eager"]
    return found


@in_group
def ddp_gpt(T: Any) -> dict[str, float]:
    """The small GPT's step under DDP, batch 8 each."""
    step = gpt_stepper(T, ddp(T, small_gpt(T)))
    return {"step: GPT under DDP, 2 ranks": median_time(step, 15, 3)}


def sharded(T: Any, model: Any, units: Any) -> Any:
    """``model`` under ``fully_shard``, with a unit for each of ``units`` and one for the rest."""
    fully_shard = importlib.import_module(f"{T.__name__}.distributed.fsdp").fully_shard
    meshes = getattr(T.distributed, "device_mesh", T.distributed)
    mesh = meshes.init_device_mesh("cpu", (T.distributed.get_world_size(),))
    for unit in units:
        fully_shard(unit, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@in_group
def fsdp_mlp(T: Any) -> dict[str, float]:
    """The MLP's step under fully_shard, a unit per layer, batch 64 each."""
    model = make_mlp(T)
    step = stepper(T, sharded(T, model, model[::2]), *images(T, 64, 784))
    return {"step: MLP under fully_shard, 2 ranks": median_time(step, 30, 5)}


@in_group
def compiled_fsdp(T: Any) -> dict[str, float]:
    """The steps of the MLP and the small GPT under fully_shard, compiled; and in how much of the
    time of an eager step, measured in turn."""
    found: dict[str, float] = {}
    for name in ("MLP", "GPT"):
        eager, run = (_sharded_step(T, name) for _ in range(2))
        times = in_turn(eager, T.compile(run), 2)
        found[f"compiled step: {name} under fully_shard, 2 ranks"] = times["compiled"]
        found[f"ratio: compiled {name} under fully_shard to eager"] = (
            times["compiled"] / times["eager"]
        )
    return found


def _sharded_step(T: Any, name: str) -> Callable[[], None]:
    if name == "MLP":
        model = make_mlp(T)
        return stepper(T, sharded(T, model, model[::2]), *images(T, 64, 784))
    model = small_gpt(T)
    return gpt_stepper(T, sharded(T, model, model.blocks))


@in_group
def fsdp_gpt(T: Any) -> dict[str, float]:
    """The small GPT's step under fully_shard, a unit per block, batch 8 each; and under DDP."""
    model = small_gpt(T)
    whole = gpt_stepper(T, ddp(T, small_gpt(T)))
    step = gpt_stepper(T, sharded(T, model, model.blocks))
    times: dict[str, list[float]] = {"fsdp": [], "ddp": []}
    for _ in range(5):  # in turn, so that a drift of the machine hits both
        times["fsdp"].append(median_time(step, 5, 2))
        times["ddp"].append(median_time(whole, 5, 2))
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return {
        "step: GPT under fully_shard, 2 ranks": seconds["fsdp"],
        "ratio: GPT under fully_shard to DDP": seconds["fsdp"] / seconds["ddp"],
    }
