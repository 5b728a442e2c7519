"""Who reduces what between hosts, and in which order it is added: pure data.

All transports reduce by one balanced tree over the ranks of a group (``reduce_ops``). The ranks of
one host are leaves of it; where a whole subtree lies on one host, that host adds it up alone, and
sends what came out. The largest such subtrees are a host's *units*. An array is cut into pieces;
every piece has one *owner* who gets the units of all hosts and joins them in the tree's order, and
on every other host one *agent* who deals with the owner. So a host sends each element as often as
it has units (once, where its ranks are neighbours in number a power of two), and the bits are those
of every other transport. Owners and agents take turns, so that all ranks of a host share the work.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ...calls.reduce_ops import left_size

Unit = tuple[int, int]  # the first rank of a subtree, and how many it has


@dataclass(frozen=True)
class Join:
    """A subtree that lies on several hosts."""

    left: Join | Unit
    right: Join | Unit


@dataclass(frozen=True)
class Layout:
    """Which hosts the ranks of a group are on. ``host_of[rank]`` numbers them by their first
    rank."""

    host_of: tuple[int, ...]

    @functools.cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of every host."""
        count = max(self.host_of) + 1
        return tuple(
            tuple(r for r, h in enumerate(self.host_of) if h == host) for host in range(count)
        )

    @functools.cached_property
    def root(self) -> Join | Unit:
        """The tree, cut off at the units; a unit only where all ranks are on one host."""
        return self._subtree(0, len(self.host_of))

    @functools.cached_property
    def units(self) -> tuple[tuple[Unit, ...], ...]:
        """The units of every host, in the order of ranks."""
        found: list[list[Unit]] = [[] for _ in self.hosts]

        def visit(node: Join | Unit) -> None:
            if isinstance(node, Join):
                visit(node.left)
                visit(node.right)
            else:
                found[self.host_of[node[0]]].append(node)

        visit(self.root)
        return tuple(map(tuple, found))

    def _subtree(self, first: int, count: int) -> Join | Unit:
        if len(set(self.host_of[first : first + count])) == 1:
            return first, count
        cut = left_size(count)
        return Join(self._subtree(first, cut), self._subtree(first + cut, count - cut))


def layout_of(names: Sequence[str]) -> Layout:
    """The layout of ranks whose hosts have these names."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return Layout(tuple(numbers[name] for name in names))


@dataclass(frozen=True)
class Piece:
    """Elements ``[lo, hi)``. ``agents[host]``: who speaks for a host; on the owner's, the owner."""

    index: int
    lo: int
    hi: int
    owner: int
    agents: tuple[int, ...]


def shared_pieces(layout: Layout, count: int, step: int) -> tuple[Piece, ...]:
    """``count`` elements in pieces of at most ``step``: owners are on all hosts in turn."""
    hosts = layout.hosts
    turns = [(c, lo, c % len(hosts), c // len(hosts)) for c, lo in enumerate(range(0, count, step))]
    return tuple(
        Piece(c, lo, min(lo + step, count), _in_turn(hosts[h], turn), _agents(layout, h, turn))
        for c, lo, h, turn in turns
    )


def owned_pieces(layout: Layout, sizes: Sequence[int], step: int) -> tuple[Piece, ...]:
    """Every rank owns ``sizes[rank]`` elements, which lie one rank's behind the other's. The pieces
    of different owners follow each other in turn, so that all are busy."""
    starts = [sum(sizes[:r]) for r in range(len(sizes))]
    cuts = sorted((lo, r) for r, size in enumerate(sizes) for lo in range(0, size, step))
    found = []
    for c, (lo, r) in enumerate(cuts):
        host, hi = layout.host_of[r], min(lo + step, sizes[r])
        agents = list(_agents(layout, host, lo // step + r))
        agents[host] = r
        found.append(Piece(c, starts[r] + lo, starts[r] + hi, r, tuple(agents)))
    return tuple(found)


def _in_turn(ranks: Sequence[int], turn: int) -> int:
    return ranks[turn % len(ranks)]


def _agents(layout: Layout, host: int, turn: int) -> tuple[int, ...]:
    """Everybody's agent in a turn; on ``host`` itself the owner."""
    return tuple(_in_turn(ranks, turn) for ranks in layout.hosts)


def partner(ranks: Sequence[int], place: int, alive: Sequence[bool]) -> int | None:
    """Whom of another host's ``ranks`` the rank at ``place`` of its own host tells what all of them
    are to know; the next one where that one is gone, None where all are."""
    order = [(place + i) % len(ranks) for i in range(len(ranks))]
    return next((ranks[i] for i in order if alive[i]), None)
