"""Means weighted by samples: what gradients are multiplied by on their way to ``.grad``.

A rank multiplies the gradient of a mean over n samples by n, the sums of all ranks are divided by
the weights of all ranks, which are added up once per reduction. In between gradients are scaled by
a power of two, so that half types hold them. Knows shardings and choices; no unit, no array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....comm.group.blocks import Blocks
from ....errors import AutogradError, ConfigError


class Scales(NamedTuple):
    """Factors of a unit's gradients: of one that is deposited (0: it does not count), of all that
    was deposited when it is reduced, and of the result."""

    deposited: float
    before: float = 1.0
    after: float = 1.0


class Weight(NamedTuple):
    """What the backwards to come stand for, and the factor of their gradients; with the factor 0
    these do not count."""

    samples: float
    factor: float


class Weighing:
    """The weights of the backwards of one root's ``units``.

    ``given``: of the backward to come; ``total``: of this rank's backwards since the last
    reduction, None where they had none. ``run``: takes the weights of virtual shards instead.
    """

    def __init__(self) -> None:
        self.units: Sequence[Any] = ()
        self.given: Weight | None = None
        self.total: float | None = None
        self.unit = 1.0  # the power of two that gradients are multiplied by until they are reduced
        self.run: Any = None
        self._blocks: dict[Any, Blocks] = {}

    def begin(self, units: Sequence[Any]) -> None:
        """A backward of ``units`` begins."""
        if self.given is None and self.total is None:
            return
        if self.run is not None:
            self._each(units, lambda unit: Scales(_counted(self.given)))
            return
        self.units = units
        waiting = any(unit.has_gradients for unit in units)
        if self.total is not None and not waiting and not self._partial(units):
            self.total = None  # the program has dropped them
        if (self.given is None) != (self.total is None) and (self.total is not None or waiting):
            self.forget()
            raise AutogradError(_MIXED)
        if self.given is None:
            return
        if not self.total:
            self.unit = 2.0 ** -math.frexp(self.given.factor)[1]
        alone = self.total is None
        self.total = (self.total or 0.0) + self.given.samples
        self._each(units, lambda unit: Scales(_counted(self.given) * self.unit))
        if self._syncing(units):
            self._settle(units, alone)

    @staticmethod
    def _partial(units: Sequence[Any]) -> bool:
        return any(g.partial is not None for unit in units for g in unit.gradients())

    @staticmethod
    def _syncing(units: Sequence[Any]) -> bool:
        """Whether the backward is one that reduces, in all units or in none."""
        found = {unit.choices.sync for unit in units if unit.members and unit.trains}
        if len(found) > 1:
            raise ConfigError(
                "fully_shard: a backward under weighted(...) is to be reduced by some units and "
                "not by others, whose weights would differ; call "
                "set_requires_gradient_sync on the root"
            )
        return found == {True}

    def settle(self, units: Sequence[Any]) -> None:
        """What was deposited is going to be reduced."""
        if self.total is not None and self.run is None:
            self._settle(units, False)

    def _settle(self, units: Sequence[Any], alone: bool) -> None:
        """Add up the weights of all ranks. ``alone``: nothing was deposited before this backward,
        whose gradients may have their last factor at once."""
        totals: dict[tuple, float] = {}
        final = all(unit.choices.all_reduce for unit in units)
        partial = self._partial(units)

        def scales(unit: Any) -> Scales:
            sharding = unit.sharding
            deposited = _counted(self.given) * self.unit
            if not final:
                return Scales(deposited, 1 / self.unit)
            key = (id(sharding.group), id(sharding.replicas))
            if key not in totals:
                totals[key] = self._over(sharding)
            share = sharding.total / totals[key] if totals[key] else 0.0
            if partial:
                return Scales(deposited, 1 / self.unit, share)
            if alone:
                return Scales(_counted(self.given) * share)
            return Scales(deposited, share / self.unit)

        self._each(units, scales)
        if final:
            self.total = None

    def _over(self, sharding: Any) -> float:
        """The weight of all ranks of ``sharding``."""
        total = np.array([self.total], np.float64)
        for group in (sharding.group, sharding.replicas):
            if group is not None and group.size > 1:
                found = np.empty(group.size)
                if group not in self._blocks:  # the name stands in errors of ranks without weights
                    self._blocks[group] = Blocks(group, "weighted(n): on every rank or on none", ())
                self._blocks[group].gather(found, total)
                total = np.add.reduce(found, keepdims=True)
        return float(total[0])

    @staticmethod
    def _each(units: Sequence[Any], scales: Any) -> None:
        for unit in units:
            unit.choices.scales = scales(unit)

    def end(self, units: Sequence[Any]) -> None:
        """The backward is through."""
        if self.units or self.run is not None:
            self._each(units, lambda unit: None)

    def forget(self) -> None:
        """The step was broken off."""
        self.total = None
        self._each(self.units, lambda unit: None)


def _counted(given: Weight | None) -> float:
    return 0.0 if given is None else given.factor


_MIXED = (
    "fully_shard: some backwards since the last reduction had a weight and some had none, so their "
    "sum has no mean; put all of them into weighted(...) blocks, or none"
)
