"""Recordings for tests: rows by hand, and of a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import disttrain as dt
from disttrain.record import rows
from disttrain.record.reader import Row, Run, read

nn = dt.nn


def row(**given: Any) -> Row:
    """A row of which only what is given matters."""
    plain: dict[str, Any] = {
        "rank": 0, "at": 0, "kind": rows.OPERATION, "phase": rows.FORWARD, "step": 0, "name": "add",
        "module": "Net", "site": "", "shape": "float32[4]", "about": "", "hash": 1, "low": -1.0,
        "high": 1.0, "squares": 4.0, "nans": 0, "sketch": 0.5, "start": 0, "numel": 4, "whole": 0,
        "inputs": (),
    }  # fmt: skip
    return Row(**{**plain, **given})


def stream(*names: str, rank: int = 0, step: int = 0, **given: Any) -> list[Row]:
    """Operations of these names, one behind the other."""
    return [row(name=n, at=i, rank=rank, step=step, **given) for i, n in enumerate(names)]


def run(*streams: list[Row], name: str = "run", **about: Any) -> Run:
    """A run of these streams."""
    told = {"world": len(streams), "level": "ops", **about}
    return Run(name, told, dict(enumerate(streams)))


class Net(nn.Module):
    """Two layers, a normalisation with buffers, and dropout."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.drop, self.second = nn.Dropout(p), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(self.drop(self.norm(self.first(x)).relu()))


def train(folder: Path | None, level: str = "ops", steps: int = 2, p: float = 0.0, **how: Any):
    """Train it: the parameters as arrays. Recorded into ``folder``, where one is given."""
    dt.manual_seed(0)
    net = Net(p)
    optimizer = dt.optim.AdamW(net.parameters(), lr=0.01)
    x, y = dt.randn(steps, 5, 6), dt.randint(0, 3, (steps, 5))

    def go() -> None:
        for i in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[i]), y[i]).backward()
            optimizer.step()

    if folder is None:
        go()
    else:
        with dt.record(folder, level, **how):
            go()
    return [t.detach().numpy().copy() for t in net.state_dict().values()]


def only(folder: Path) -> list[Row]:
    """The rows of the one rank that has recorded there."""
    [found] = read(str(folder)).streams.values()
    return found
