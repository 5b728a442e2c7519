"""Programs to be exported, for the tests of saved files: the same each time, whatever they are
called with before."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import nn, tree
from disttrain.core import Tensor, wrap


def drawn(seed: int, *shape: int) -> Tensor:
    """Numbers that are the same in every run of every version."""
    return wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def filled(module: nn.Module) -> nn.Module:
    """``module`` with numbers of its own in its parameters."""
    for i, p in enumerate(module.parameters()):
        p.data.copy_(drawn(i, *p.shape) * 0.3)
    return module


class Mixed(nn.Module):
    """Layers of several kinds, a branch, a write, tensors made of sizes, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.fc, self.last = nn.Linear(8, 4), nn.LayerNorm(4)
        self.table, self.rows = nn.Embedding(5, 4), nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor, i: Tensor) -> dict[str, Any]:
        y = dt.nn.functional.adaptive_avg_pool2d(self.norm(self.conv(x)), 2).flatten(1)
        y = self.last(self.fc(y).relu()).clone()
        z, _ = self.rows(self.table(i))
        y[:, 0] = 1.0
        w = dt.func.cond(y.sum() > 0, lambda a: a * 2, lambda a: a - 1, (y,))
        return {"y": y, "z": (z, x.shape[1]), "w": w, "r": dt.arange(x.shape[0])}


def loop(x: Tensor) -> tuple[Tensor, Tensor]:
    """A scan over what may have any length."""
    end, rows = dt.func.scan(lambda c, y: (c * 0.5 + y, c * y), dt.ones(3), x)
    return end, rows.cumsum(0)


CASES: dict[str, tuple[Callable[[], Any], Callable[[int, int], tuple], Any]] = {
    "mixed": (
        lambda: filled(Mixed()).eval(),
        lambda b, t: (drawn(1, b, 1, 6, 6), wrap(np.arange(b * t).reshape(b, t) % 5)),
        {"x": {0: "b"}, "i": {0: "b", 1: "t"}},
    ),
    "loop": (lambda: loop, lambda b, t: (drawn(2, b + 1, 3),), {"x": {0: "n"}}),
}  # fmt: skip


def made(name: str) -> Any:
    """The program of a case."""
    make, args, dynamic = CASES[name]
    return dt.export(make(), args(2, 3), dynamic=dynamic)


def reread(program: Any) -> Any:
    """A program that was saved and loaded."""
    file = io.BytesIO()
    program.save(file)
    file.seek(0)
    return dt.load_program(file)


def same(a: Any, b: Any) -> bool:
    """Whether two results have the same structure and the same bits."""
    one, other = tree.leaves(a), tree.leaves(b)
    if len(one) != len(other) or tree.structure(a) != tree.structure(b):
        return False
    return all(map(_same, one, other))


def _same(x: Any, y: Any) -> bool:
    if not isinstance(x, Tensor):
        return type(x) is type(y) and x == y
    x, y = x.detach().array, y.detach().array
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
