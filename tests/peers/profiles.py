"""The kinds of random programs, and the check of one of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peers.compare import Difference, compare
from peers.deliberate import deliberate
from peers.generators import (
    chances,
    elementwise,
    fitting,
    layers,
    places,
    reducing,
    sampling,
    second,
    sparsity,
    tables,
    trainings,
    viewing,
)
from peers.generators.draw import Draw
from peers.program import Lines, Outcome, run, snippet
from peers.shrink import on_both, shrink

import disttrain

PROFILES: dict[str, Callable[[Draw], None]] = {
    "elementwise": elementwise.program,
    "viewing": viewing.program,
    "places": places.program,
    "reducing": reducing.program,
    "second": second.program,
    "layers": layers.program,
    "sampling": sampling.program,
    "fitting": fitting.program,
    "trainings": trainings.program,
    "tables": tables.program,
    "sparsity": sparsity.program,
    "chances": chances.program,
}
WRITTEN_TO = "has been modified by an inplace operation"


@dataclass(frozen=True)
class Found:
    """A program on which the two differ, shrunk."""

    profile: str
    seed: int
    lines: Lines
    difference: Difference
    errors: tuple[Any, ...]

    def report(self) -> str:
        head = f"{self.difference}\nprofile {self.profile}, seed {self.seed}:\n"
        return f"{head}{snippet(self.lines, self.errors)}"


def both(lines: Lines) -> tuple[Difference | None, Outcome]:
    """Run on both sides. Where the peer refuses a gradient because something that it has saved was
    written to, and we do not, what we compute must be what it computes from copies."""
    found, outcome = on_both(disttrain, torch)(lines)
    if found is None or found.kind != "no error" or WRITTEN_TO not in found.theirs:
        return found, outcome
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        return on_both(disttrain, torch)(lines)


def generate(profile: str, seed: int) -> Lines:
    """The program of a seed: always the same one for a version of the peer."""
    d = Draw(f"{profile} {seed}", torch, disttrain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PROFILES[profile](d)
    return tuple(d.lines)


def clear(lines: Lines) -> tuple[Difference | None, Outcome]:
    """As ``both``; what may be noise is no difference."""
    found, outcome = both(lines)
    return None if found and noisy(lines, found) else found, outcome


def noisy(lines: Lines, found: Difference) -> bool:
    """Whether rounding errors alone make as much of a difference, as where a step divides a
    gradient, which is zero by its nature, by its own size: the peer, begun that far away, differs
    from itself."""
    if "value" not in found.kind:
        return False
    away = tuple(trainings.nudged(line) for line in lines)
    return away != lines and compare(lines, run(away, torch), run(lines, torch)) is not None


def check(profile: str, seed: int, use_deliberate: bool = True) -> Found | None:
    """Run one program on both sides; what differs, shrunk, unless it is meant to differ."""
    lines = generate(profile, seed)
    difference, _ = both(lines)
    if difference is None or noisy(lines, difference):
        return None
    lines, difference = shrink(lines, difference, clear)
    if use_deliberate and deliberate(difference, lines):
        return None
    return Found(profile, seed, lines, difference, tuple(both(lines)[1].errors))
