"""What is measured, written once for both libraries: ``T`` is ``disttrain`` or ``torch``.

Each case returns {name of a row: seconds (or bytes)}. A case named in ``RANKS`` runs on that many
ranks; rank 0's numbers count.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def median_time(fn: Callable[[], Any], repeats: int, inner: int = 1) -> float:
    """The median seconds of one call, over ``repeats`` blocks of ``inner`` calls."""
    for _ in range(max(2, inner // 10)):
        fn()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        times.append((time.perf_counter() - start) / inner)
    return statistics.median(times)


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


def _mlp(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def _stepper(T: Any, model: Any, x: Any, y: Any, loss_of: Any = None) -> Callable[[], None]:
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = loss_of or T.nn.functional.cross_entropy

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def _images(T: Any, batch: int, *shape: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = T.from_numpy(rng.standard_normal((batch, *shape), dtype=np.float32))
    return x, T.from_numpy(rng.integers(0, 10, batch))


def mlp(T: Any) -> dict[str, float]:
    """A training step of the 784-256-256-10 network, batch 64."""
    T.manual_seed(0)
    return {"step: MLP 784-256-256-10, batch 64": median_time(
        _stepper(T, _mlp(T), *_images(T, 64, 784)), 30, 10)}  # fmt: skip


def cnn(T: Any) -> dict[str, float]:
    """A training step of a small convolutional network on 28 x 28 images, batch 64."""
    T.manual_seed(0)
    nn = T.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    step = _stepper(T, model, *_images(T, 64, 1, 28, 28))
    return {"step: CNN 16-32, batch 64 of 28x28": median_time(step, 15, 3)}


def _gpt(T: Any, vocab: int, width: int, heads: int, layers: int, context: int) -> Any:
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            parts = self.qkv(self.ln1(x)).split(width, dim=2)
            q, k, v = [p.view(b, t, heads, c // heads).transpose(1, 2) for p in parts]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, idx: Any) -> Any:
            x = self.tokens(idx) + self.places(T.arange(idx.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT()


def gpt(T: Any) -> dict[str, float]:
    """A training step of a small GPT: 2 layers, 128 wide, 64 tokens, batch 8."""
    T.manual_seed(0)
    rng = np.random.default_rng(0)
    idx = T.from_numpy(rng.integers(0, 65, (8, 64)))
    target = T.from_numpy(rng.integers(0, 65, (8, 64)))
    F = T.nn.functional

    def loss_of(logits: Any, y: Any) -> Any:
        return F.cross_entropy(logits.view(-1, 65), y.view(-1))

    step = _stepper(T, _gpt(T, 65, 128, 4, 2, 64), idx, target, loss_of)
    return {"step: GPT 2 layers x 128, 8 x 64 tokens": median_time(step, 15, 3)}


def _ddp(T: Any) -> Any:
    found = getattr(T.distributed, "DistributedDataParallel", None)
    return found or T.nn.parallel.DistributedDataParallel


def ddp_mlp(T: Any) -> dict[str, float]:
    """The MLP's step under DDP on 2 ranks, batch 64 each."""
    T.distributed.init_process_group("gloo")
    T.manual_seed(0)
    model = _ddp(T)(_mlp(T))
    out = {"step: MLP under DDP, 2 ranks": median_time(
        _stepper(T, model, *_images(T, 64, 784)), 30, 5)}  # fmt: skip
    T.distributed.destroy_process_group()
    return out


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


CASES = {f.__name__: f for f in (dispatch, mlp, cnn, gpt, ddp_mlp, all_reduce, memory, launch)}
RANKS = {"ddp_mlp": 2, "all_reduce": 2, "memory": 2, "launch": 4}
WHOLE = {"launch": "launch 4 ranks, one all_reduce, exit"}  # timed from outside
