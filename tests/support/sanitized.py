"""What ``dt.sanitize`` finds in a small program, and parts that such programs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt
from disttrain import nn
from disttrain.nn import functional as F
from disttrain.sanitize.report import Finding


def findings(body: Callable[[], Any], **options: Any) -> list[Finding]:
    """All that is found while ``body`` runs."""
    dt.manual_seed(0)
    watch = dt.sanitize(quiet=True, **options)
    try:
        body()
    finally:
        watch.stop()
    if watch.failed:
        raise watch.failed[0]
    return watch.findings


def kinds(body: Callable[[], Any], advice: bool = False, **options: Any) -> set[str]:
    """The kinds of what is found; advice only where it is asked for."""
    found = findings(body, **options)
    return {f.kind for f in found if advice or f.severity != "advice"}


class Net(nn.Module):
    """Two layers with dropout and a batch norm between them."""

    def __init__(self, dropout: float = 0.1, norm: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 3)
        self.drop = nn.Dropout(dropout)
        self.norm: nn.Module = nn.BatchNorm1d(16) if norm else nn.Identity()

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu()))


def batch(n: int = 8) -> tuple[dt.Tensor, dt.Tensor]:
    """Inputs of ``Net``, and their classes."""
    return dt.randn(n, 4), dt.randint(0, 3, (n,))


def train(model: nn.Module, optimizer: Any, steps: int = 12) -> None:
    """A loop as it should be."""
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
