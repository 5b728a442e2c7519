"""Training steps under the strategies of data parallelism, on 2 ranks, for both libraries alike.

Each case joins the group, times steps on every rank, and leaves; rank 0's numbers count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
def ddp_gpt(T: Any) -> dict[str, float]:
    """The small GPT's step under DDP, batch 8 each."""
    step = gpt_stepper(T, ddp(T, small_gpt(T)))
    return {"step: GPT under DDP, 2 ranks": median_time(step, 15, 3)}
