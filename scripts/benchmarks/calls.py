"""Remote calls and distributed autograd between 2 workers, for both libraries alike.

The first worker measures, the second one answers until it is told to leave. What is called are
functions of this module, so that both workers find them by name.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable
from typing import Any

from benchmarks.models import images, median_time

PEER = "worker1"
IN_FLIGHT = 100
CALLS = 10_000


def among_workers(
    case: Callable[[Any, Any], dict[str, float]],
) -> Callable[[Any], dict[str, float]]:
    """``case(T, rpc)`` on the first of the workers; the others serve its calls."""

    def run(T: Any) -> dict[str, float]:
        rpc = importlib.import_module(f"{T.__name__}.distributed.rpc")
        rank = int(os.environ["RANK"])
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
        T.manual_seed(0)
        try:
            return case(T, rpc) if rank == 0 else {}
        finally:
            rpc.shutdown()

    run.__name__, run.__doc__ = case.__name__, case.__doc__
    return run


def add(a: int, b: int) -> int:
    return a + b


def echo(value: Any) -> Any:
    return value


def parameters_of(rpc_name: str, module: Any) -> list[Any]:
    """References to the parameters of a module that lives on this worker."""
    rpc = importlib.import_module(rpc_name)
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]


@among_workers
def rpc_call(T: Any, rpc: Any) -> dict[str, float]:
    """A call that carries two numbers and brings one back."""
    return {"rpc: small call": median_time(lambda: rpc.rpc_sync(PEER, add, (1, 2)), 15, 200)}


@among_workers
def rpc_tensor(T: Any, rpc: Any) -> dict[str, float]:
    """A call with a tensor of 8 numbers, which comes back; outside of any autograd context."""
    x = T.ones(8)
    return {"rpc: call with a tensor [8]": median_time(
        lambda: rpc.rpc_sync(PEER, echo, (x,)), 15, 200)}  # fmt: skip


@among_workers
def rpc_echo(T: Any, rpc: Any) -> dict[str, float]:
    """A tensor of 16 MB there and back."""
    x = T.ones(4 << 20)
    return {"rpc: echo of 16 MB": median_time(lambda: rpc.rpc_sync(PEER, echo, (x,)), 9, 3)}


@among_workers
def rpc_flight(T: Any, rpc: Any) -> dict[str, float]:
    """100 small calls begun before the first answer is waited for."""

    def burst() -> None:
        futures = [rpc.rpc_async(PEER, add, (i, 1)) for i in range(IN_FLIGHT)]
        assert [future.wait() for future in futures] == list(range(1, IN_FLIGHT + 1))

    return {f"rpc: {IN_FLIGHT} calls in flight": median_time(burst, 15, 5)}


def _autograd_step(T: Any, rpc: Any, width: int, hidden: int, batch: int) -> Callable[[], None]:
    """A training step: the first layer here, the other ones on the other worker."""
    autograd = importlib.import_module(f"{T.__name__}.distributed.autograd")
    optim = importlib.import_module(f"{T.__name__}.distributed.optim")
    nn = T.nn
    first = nn.Linear(width, hidden)
    layers = (nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    rest = rpc.remote(PEER, nn.Sequential, layers)
    there = rpc.rpc_sync(PEER, parameters_of, (rpc.__name__, rest))
    owners = [*(rpc.RRef(parameter) for parameter in first.parameters()), *there]
    optimizer = optim.DistributedOptimizer(T.optim.SGD, owners, lr=0.01)
    x, y = images(T, batch, width)

    def step() -> None:
        with autograd.context() as context:
            logits = rest.rpc_sync().forward(T.relu(first(x)))
            autograd.backward(context, [nn.functional.cross_entropy(logits, y)])
            optimizer.step(context)

    return step


@among_workers
def rpc_autograd(T: Any, rpc: Any) -> dict[str, float]:
    """Steps of a model whose layers lie on two workers: a small one, and the MLP of other rows."""
    small = _autograd_step(T, rpc, 64, 64, 16)
    wide = _autograd_step(T, rpc, 784, 256, 64)
    return {
        "rpc: autograd step, 64-64-64-10, batch 16": median_time(small, 15, 10),
        "rpc: autograd step, 784-256-256-10, batch 64": median_time(wide, 15, 5),
    }


def _resident() -> float:
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:
        kb = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return kb / 1024


@among_workers
def rpc_memory(T: Any, rpc: Any) -> dict[str, float]:
    """How much memory both workers gain over 10,000 calls with tensors, after 1,000 others (MB)."""
    x = T.ones(1024)

    def calls(n: int) -> float:
        for _ in range(n):
            rpc.rpc_sync(PEER, echo, (x,))
        return _resident() + rpc.rpc_sync(PEER, _resident)

    before = calls(1000)
    return {f"memory: grown over {CALLS:,} calls": max(calls(CALLS) - before, 0.0)}
