"""What is measured in one process and of the plain collectives, written once for both libraries:
``T`` is ``disttrain`` or ``torch``.

Each case returns {name of a row: seconds (or MB)}.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.models import gpt_stepper, images, make_mlp, median_time, small_gpt, stepper


def dispatch(T: Any) -> dict[str, float]:
    """One small operation with a gradient to be recorded."""
    a = T.ones(8, requires_grad=True)
    b = T.ones(8)
    m = T.ones(8, 8, requires_grad=True)
    rows = {
        "add [8]": lambda: a + b,
        "mul by scalar [8]": lambda: a * 2.0,
        "relu [8]": lambda: T.relu(a),
        "view [8]->[2,4]": lambda: a.view(2, 4),
        "matmul [8,8]": lambda: m @ m,
        "sum [8]": lambda: a.sum(),
    }
    out = {f"op: {name}": median_time(fn, 15, 2000) for name, fn in rows.items()}

    def chain() -> None:
        x = a
        for _ in range(20):
            x = x * b + b
        x.sum().backward()

    out["op: 40-op chain, forward + backward"] = median_time(chain, 15, 50)
    return out


def mlp(T: Any) -> dict[str, float]:
    """A training step of the 784-256-256-10 network, batch 64."""
    T.manual_seed(0)
    return {"step: MLP 784-256-256-10, batch 64": median_time(
        stepper(T, make_mlp(T), *images(T, 64, 784)), 30, 10)}  # fmt: skip


def make_cnn(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


def cnn(T: Any) -> dict[str, float]:
    """A training step of a small convolutional network on 28 x 28 images, batch 64."""
    T.manual_seed(0)
    step = stepper(T, make_cnn(T), *images(T, 64, 1, 28, 28))
    return {"step: CNN 16-32, batch 64 of 28x28": median_time(step, 15, 3)}


def gpt(T: Any) -> dict[str, float]:
    """A training step of a small GPT: 2 layers, 128 wide, 64 tokens, batch 8."""
    T.manual_seed(0)
    step = gpt_stepper(T, small_gpt(T))
    return {"step: GPT 2 layers x 128, 8 x 64 tokens": median_time(step, 15, 3)}


def all_reduce(T: Any) -> dict[str, float]:
    """all_reduce of float32 by size, 2 ranks."""
    dist = T.distributed
    dist.init_process_group("gloo")
    out = {}
    for label, numel, inner in (
        ("4 KB", 1 << 10, 200), ("64 KB", 1 << 14, 100), ("1 MB", 1 << 18, 30),
        ("25 MB", 25 << 18, 3),
    ):  # fmt: skip
        x = T.zeros(numel)
        dist.barrier()
        out[f"all_reduce {label}, 2 ranks"] = median_time(lambda x=x: dist.all_reduce(x), 11, inner)
    dist.destroy_process_group()
    return out


def _in_a_group(T: Any, rows: dict[str, Any], turns: int = 7) -> dict[str, float]:
    """Seconds of calls that all ranks make together. ``rows``: name -> (call, how often a turn)."""
    out = {}
    for name, (call, inner) in rows.items():
        T.distributed.barrier()
        out[name] = median_time(call, turns, inner)
    T.distributed.destroy_process_group()
    return out


def _all_reduces(T: Any, n: int) -> dict[str, float]:
    dist = T.distributed
    dist.init_process_group("gloo")
    small, large = T.zeros(1 << 18), T.zeros(25 << 18)
    return _in_a_group(
        T,
        {
            f"all_reduce 1 MB, {n} ranks": (lambda: dist.all_reduce(small), 5),
            f"all_reduce 25 MB, {n} ranks": (lambda: dist.all_reduce(large), 1),
        },
    )


def all_reduce_4(T: Any) -> dict[str, float]:
    """all_reduce of arrays wherever they lie, 4 ranks."""
    return _all_reduces(T, 4)


def all_reduce_8(T: Any) -> dict[str, float]:
    """The same on 8 ranks."""
    return _all_reduces(T, 8)


def all_reduce_16(T: Any) -> dict[str, float]:
    """The same on 16 ranks."""
    return _all_reduces(T, 16)


def scatter_gather(T: Any) -> dict[str, float]:
    """reduce_scatter, then all_gather, of 25 MB on 2 ranks."""
    dist = T.distributed
    dist.init_process_group("gloo")
    whole, part = T.zeros(25 << 18), T.zeros(25 << 17)

    def both() -> None:
        dist.reduce_scatter_tensor(part, whole)
        dist.all_gather_into_tensor(whole, part)

    return _in_a_group(T, {"reduce_scatter + all_gather 25 MB, 2 ranks": (both, 3)})


def memory(T: Any) -> dict[str, float]:
    """Resident memory of a rank that has joined its group, before any model (MB)."""
    T.distributed.init_process_group("gloo")
    T.distributed.all_reduce(T.zeros(4))
    with open("/proc/self/status", encoding="ascii") as status:
        kb = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    T.distributed.destroy_process_group()
    return {"memory of a rank (MB)": kb / 1024}


def launch(T: Any) -> dict[str, float]:
    """Start 4 ranks, one all_reduce, exit. The driver times the whole command."""
    T.distributed.init_process_group("gloo")
    x = T.ones(4)
    T.distributed.all_reduce(x)
    assert x[0].item() == int(os.environ["WORLD_SIZE"])
    T.distributed.destroy_process_group()
    return {}
