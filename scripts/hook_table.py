"""What communication hooks cost and save: the table of docs/comm_hooks.md.

    OMP_NUM_THREADS=1 python scripts/hook_table.py [--ranks 2] [--width 512] [--layers 4]

Every rank trains the same network under DDP with each hook in turn; steps of different hooks take
turns, so that a busy machine slows all alike, and the best time of each is shown. "bytes" are what
one rank sends per step by the usual algorithms: 2 (n - 1) / n of an array that is summed over n
ranks, n - 1 times one that is gathered. "error" is how far the mean of all steps' gradients is from
the exact one (the parameters do not move), as a part of its length: what error feedback sends later
counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from disttrain_launcher import launch

START = 2  # iterations before PowerSGD compresses


class Counting:
    """A transport that counts the bytes that pass."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.sent = inner, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def all_reduce(self, call: Any, array: np.ndarray, *rest: Any, **how: Any) -> Any:
        self.sent += 2 * (self.inner.size - 1) / self.inner.size * array.nbytes
        return self.inner.all_reduce(call, array, *rest, **how)

    def all_gather(self, call: Any, outs: Any, array: np.ndarray, **how: Any) -> Any:
        self.sent += (self.inner.size - 1) * array.nbytes
        return self.inner.all_gather(call, outs, array, **how)


def power(rank: int, hook: Callable = powerSGD_hook.powerSGD_hook) -> tuple:
    make = powerSGD_hook.PowerSGDState
    return hook, lambda: make(None, rank, start_powerSGD_iter=START)


def hooks() -> dict[str, tuple[Callable | None, Callable[[], Any]]]:
    """Name -> (hook, what makes its state)."""
    none: Callable[[], Any] = lambda: None  # noqa: E731
    d, q, p = default_hooks, quantization_hooks, powerSGD_hook
    return {
        "no hook": (None, none),
        "`allreduce_hook`": (d.allreduce_hook, none),
        "`fp16_compress_hook`": (d.fp16_compress_hook, none),
        "`bf16_compress_hook`": (d.bf16_compress_hook, none),
        "`quantization_pertensor_hook`": (q.quantization_pertensor_hook, none),
        "`quantization_perchannel_hook`": (q.quantization_perchannel_hook, none),
        "`powerSGD_hook`, rank 1": power(1),
        "`powerSGD_hook`, rank 2": power(2),
        "`powerSGD_hook`, rank 4": power(4),
        "`bf16_compress_wrapper(powerSGD_hook)`, rank 2": power(
            2, d.bf16_compress_wrapper(p.powerSGD_hook)
        ),
        "`batched_powerSGD_hook`, rank 1": power(1, p.batched_powerSGD_hook),
        "`noop_hook`": (debugging_hooks.noop_hook, none),
    }


def measure(width: int, layers: int, steps: int) -> list[tuple[str, float, float, float]]:
    """(hook, bytes, seconds, error) per step, on one rank."""
    dist.init_process_group()
    group, rank = dist.group.WORLD, dist.get_rank()
    counter = group.transport = Counting(group.transport)
    rng = np.random.default_rng(rank)
    x = dt.from_numpy(rng.standard_normal((16, width)).astype(np.float32))
    y = dt.from_numpy(rng.integers(0, width, 16))
    runs = {}
    for name, (hook, state) in hooks().items():
        dt.manual_seed(0)
        model = dt.nn.Sequential(*[dt.nn.Linear(width, width) for _ in range(layers)])
        ddp = dist.DistributedDataParallel(model)
        if hook is not None:
            ddp.register_comm_hook(state(), hook)
        runs[name] = (ddp, [], [], [])

    def step(ddp: Any) -> None:
        ddp.zero_grad()
        dt.nn.functional.cross_entropy(ddp(x), y).backward()

    for ddp, *_ in runs.values():
        for _ in range(START + 1):
            step(ddp)
    for _ in range(steps):
        for ddp, times, sent, total in runs.values():
            dist.barrier()
            counter.sent, start = 0.0, time.perf_counter()
            step(ddp)
            times.append(time.perf_counter() - start)
            sent.append(counter.sent)
            total[:] = [flat(ddp) + (total[0] if total else 0.0)]
    exact = runs["no hook"][3][0]
    rows = []
    for name, (_, times, sent, total) in runs.items():
        error = np.linalg.norm(total[0] - exact) / np.linalg.norm(exact)
        rows.append((name, statistics.mean(sent), min(times), float(error)))
    dist.destroy_process_group()
    return rows


def flat(ddp: Any) -> np.ndarray:
    """All gradients, one behind the other."""
    return np.concatenate([p.grad.numpy().ravel() for p in ddp.parameters()])


def table(rows: list[tuple[str, float, float, float]]) -> str:
    """The rows as Markdown."""
    _, plain, base, _ = rows[0]
    lines = ["| hook | bytes per step | saved | step, ms | beside no hook, ms | error |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for name, sent, seconds, error in rows:
        saved = "all" if not sent else f"{plain / sent:.1f}x"
        added = f"{(seconds - base) * 1e3:+.2f}"
        lines.append(
            f"| {name} | {sent:,.0f} | {saved} | {seconds * 1e3:.2f} | {added} | {error:.1e} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("ranks", 2), ("width", 512), ("layers", 4), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    print(table(launch(lambda: measure(o.width, o.layers, o.steps), o.ranks)[0]))


if __name__ == "__main__":
    main()
