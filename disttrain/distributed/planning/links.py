"""What communication costs on machines of two levels: the alpha-beta model (R. Hockney, 1994) with
the bytes of rings (Patarasuk and Yuan, 2009) and the rounds of trees (what libraries take for short
messages), inside an island of fast links and between islands, where the groups that exist side by
side share a node's adapters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...comm.transports.sim.network import rounds_of_tree
from .clusters import Machines
from .constants import Constants


@dataclass(frozen=True)
class Crowd:
    """A group: ``size`` devices, of which ``near`` are in one island."""

    size: int
    near: int

    @property
    def islands(self) -> int:
        return self.size // self.near


def crowd(machines: Machines, size: int, stride: int) -> Crowd:
    """The group of ``size`` devices, ``stride`` apart in the order of devices."""
    fit = max(1, machines.island // stride)
    near = min(size, fit)
    while size % near:
        near -= 1
    return Crowd(size, near)


@dataclass(frozen=True)
class Links:
    """The links of ``machines`` as ``constants`` say that they are used."""

    machines: Machines
    constants: Constants

    def _near(self, rounds: float, nbytes: float) -> float:
        wire, c = self.machines.local, self.constants
        return rounds * wire.latency * c.get("latency") + nbytes / (
            wire.bandwidth * c.get("fast_links", self.machines.device.family)
        )

    def _far(self, rounds: float, nbytes: float, near: int) -> float:
        """``nbytes`` leave an island for each group; ``near`` devices of it share the adapters."""
        m, c = self.machines, self.constants
        rate = m.network.bandwidth * near * c.get("network") / m.oversubscription
        return rounds * m.network.latency * c.get("latency") + nbytes / rate

    def halves(self, group: Crowd, nbytes: float) -> float:
        """A gather on all, or a reduction that is scattered, of ``nbytes`` in all."""
        n, far = group.size, group.islands
        if n == 1 or not nbytes:
            return 0.0
        inside = 0.0
        if group.near > 1:
            inside = self._near(rounds_of_tree(group.near), nbytes * (n - 1) / n)
        if far == 1:
            return inside
        between = self._far(rounds_of_tree(far), nbytes * (far - 1) / far, group.near)
        return max(inside, between)

    def all_reduce(self, group: Crowd, nbytes: float) -> float:
        return 2.0 * self.halves(group, nbytes)

    def all_to_all(self, group: Crowd, nbytes: float) -> float:
        """Everybody has ``nbytes`` for all ranks together."""
        n = group.size
        if n == 1 or not nbytes:
            return 0.0
        inside = self._near(1, nbytes * (group.near - 1) / n)
        if group.islands == 1:
            return inside
        return max(inside, self._far(1, nbytes * (n - group.near) / n, 1))

    def send(self, stride: int, nbytes: float) -> float:
        """To the device ``stride`` places on."""
        if stride < self.machines.island:
            return self._near(1, nbytes)
        return self._far(1, nbytes, 1)
