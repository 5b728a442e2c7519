"""What the units of a sharded module keep in memory, as data and as a table. Moves nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ...nn.module import Module
from ...sizes import size
from .module import SLOT
from .shards.shared_weights import SharedWeights
from .unit import Unit


@dataclass(frozen=True)
class UnitMemory:
    """One unit, in bytes of this rank. ``full``: what its full weights take while they are there
    beside the shards (nothing where those are the full weights); ``reduced``: the block of all
    ranks' gradients that is reduced."""

    name: str
    parameters: int
    shards: int
    gradients: int
    full: int
    reduced: int
    state: str


@dataclass(frozen=True)
class MemoryReport:
    """All units below a module. ``peak``: shards and their gradients, and once the largest full
    weights and the largest block of gradients; without optimizer state and activations."""

    units: tuple[UnitMemory, ...]

    @property
    def shards(self) -> int:
        return sum(u.shards for u in self.units)

    @property
    def gradients(self) -> int:
        return sum(u.gradients for u in self.units)

    @property
    def peak(self) -> int:
        most = max((u.full for u in self.units), default=0)
        block = max((u.reduced for u in self.units), default=0)
        return self.shards + self.gradients + most + block

    def __str__(self) -> str:
        head = f"{'unit':30} {'parameters':>12} {'shards':>10} {'gradients':>10} {'full':>10} state"
        lines = [
            f"{u.name or '(root)':30} {u.parameters:12,d} {_cell(u.shards)} {_cell(u.gradients)} "
            f"{_cell(u.full)} {u.state}"
            for u in self.units
        ]
        sums = map(_cell, (self.shards, self.gradients, self.peak))
        total = f"{'at most':30} {'':12} {' '.join(sums)}"
        return "\n".join([head, *lines, total])


def memory_report(module: Module) -> MemoryReport:
    """The memory of every unit at or below ``module``, in the order of the tree."""
    found: dict[Unit, str] = {}
    for name, m in module.named_modules():
        place = m.__dict__.get(SLOT)
        if place is not None:
            found.setdefault(place.unit, name)
    return MemoryReport(tuple(_unit_memory(name, unit) for unit, name in found.items()))


def _unit_memory(name: str, unit: Unit) -> UnitMemory:
    rank = unit.sharding.rank
    shards = gradients = numel = 0
    for m in unit.members:
        n = 1
        for d in m.layout.local_shape(rank):
            n *= d
        numel += m.layout.numel
        shards += n * m.kind.itemsize
        gradients += n * m.kind.itemsize if m.sharded.requires_grad else 0
    beside = [w for w in unit.weights if not isinstance(w, SharedWeights)]
    full = sum(w.nbytes for w in beside)
    reduced = sum(g.size() * g.kind.itemsize for g in unit.gradients())
    return UnitMemory(name, numel, shards, gradients, full, reduced, unit.state.value)


def _cell(nbytes: int) -> str:
    return f"{size(nbytes):>10}"
