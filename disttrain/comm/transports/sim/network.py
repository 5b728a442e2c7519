"""What communication costs in a simulated cluster: the alpha-beta model, over hosts and links.

A message of n bytes takes ``latency + n / bandwidth`` seconds on its link (R. Hockney, 1994); an
operation takes so many rounds of messages, and moves so many bytes through the busiest rank, as its
algorithm needs (R. Thakur, R. Rabenseifner and W. Gropp, *Optimization of Collective Communication
Operations in MPICH*, 2005). Links are full duplex: what counts is what a rank sends, while it
receives as much. A group on several hosts works in two levels, as our transports do: inside every
host, and between hosts, where all ranks of a host share its link.

    ring       neighbours hand pieces on
    doubling   everybody exchanges, with partners twice as far in each round: recursive doubling,
               Bruck's algorithm; for what has a root a binomial tree
    tree       everything goes along a binomial tree, up to a root, or down from it, or both
    direct     everybody sends to everybody at once

Pure functions of numbers; no clock, no ranks that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....errors import ConfigError

RING, DOUBLING, TREE, DIRECT, AUTO = "ring", "doubling", "tree", "direct", "auto"
ALGORITHMS = (RING, DOUBLING, TREE, DIRECT, AUTO)


@dataclass(frozen=True)
class Link:
    """``latency`` in seconds, ``bandwidth`` in bytes per second; 0 for one that is no limit."""

    latency: float = 0.0
    bandwidth: float = 0.0

    def seconds(self, rounds: float, nbytes: float) -> float:
        """What ``rounds`` messages after each other take that carry ``nbytes`` in all."""
        return rounds * self.latency + (nbytes / self.bandwidth if self.bandwidth else 0.0)


def rounds_of_tree(n: int) -> int:
    """The depth of a binomial tree over ``n`` ranks; as often doubles 1 until it is ``n``."""
    return (n - 1).bit_length()


def _all_reduce(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    both, depth = 2 * (n - 1) / n * nbytes, rounds_of_tree(n)
    return {
        RING: (2 * (n - 1), both),
        DOUBLING: (depth, depth * nbytes),
        TREE: (2 * depth, 2 * depth * nbytes),
        DIRECT: (2, both),
    }


def _halves(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    """``nbytes`` in all are gathered on all ranks or scattered from all, who move what is not their
    own; the tree's root has them all at a time."""
    part, depth = (n - 1) / n * nbytes, rounds_of_tree(n)
    return {
        RING: (n - 1, part),
        DOUBLING: (depth, part),
        TREE: (2 * depth, part + depth * nbytes),
        DIRECT: (1, part),
    }


def _one_side(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    """The same from or to one rank alone."""
    both = _halves(n, nbytes)
    return both | {TREE: both[DOUBLING]}


def _rooted(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    """A broadcast or a reduction of ``nbytes``: the tree sends all of it in every round; the ring
    scatters it along a tree, then gathers."""
    depth = rounds_of_tree(n)
    return {
        RING: (depth + n - 1, 2 * (n - 1) / n * nbytes),
        DOUBLING: (depth, depth * nbytes),
        TREE: (depth, depth * nbytes),
        DIRECT: (1, (n - 1) * nbytes),
    }


def _exchange(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    """Everybody has ``nbytes`` for all ranks together, which a tree brings to its root and back."""
    part, depth = (n - 1) / n * nbytes, rounds_of_tree(n)
    return {
        RING: (n - 1, part),
        DOUBLING: (depth, depth * nbytes / 2),
        TREE: (2 * depth, 2 * part * n),
        DIRECT: (1, part),
    }


def _meeting(n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    depth = rounds_of_tree(n)
    return {RING: (2 * (n - 1), 0), DOUBLING: (depth, 0), TREE: (2 * depth, 0), DIRECT: (1, 0)}


_PLANS = {
    "all_reduce": _all_reduce,
    "all_gather": _halves,
    "reduce_scatter": _halves,
    "gather": _one_side,
    "scatter": _one_side,
    "broadcast": _rooted,
    "reduce": _rooted,
    "all_to_all": _exchange,
}


def plans(verb: str, n: int, nbytes: float) -> dict[str, tuple[float, float]]:
    """algorithm -> (rounds, bytes through the busiest rank) of ``verb`` on ``n`` ranks.

    ``nbytes``: of a rank's whole array for all_reduce, broadcast, reduce and all_to_all; of the
    arrays of all ranks together for what gathers or scatters. Other verbs are meetings.
    """
    if n <= 1:
        return dict.fromkeys((RING, DOUBLING, TREE, DIRECT), (0, 0))
    return _PLANS.get(verb, _meeting)(n, nbytes)


def seconds_on(link: Link, verb: str, n: int, nbytes: float, algorithm: str = AUTO) -> float:
    """How long ``verb`` takes on ``n`` ranks that are all joined by ``link``. ``auto``: the better
    one of ring and doubling."""
    found = plans(verb, n, nbytes)
    names = (RING, DOUBLING) if algorithm == AUTO else (algorithm,)
    return min(link.seconds(*found[name]) for name in names)


@dataclass(frozen=True)
class Network:
    """``hosts[r]`` is the host of rank r. ``local`` joins the ranks of one host, whose memory all
    of them see (``direct``); ``remote`` is a host's link to the others, which its ranks share."""

    hosts: tuple[int, ...]
    local: Link = Link()
    remote: Link = Link()
    algorithm: str = AUTO

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(
                f"network: algorithm={self.algorithm!r} given; needed is one of "
                f"{', '.join(ALGORITHMS)}"
            )

    def by_host(self, ranks: Sequence[int]) -> Mapping[int, int]:
        """host -> how many of ``ranks`` it has."""
        found: dict[int, int] = {}
        for rank in ranks:
            found[self.hosts[rank]] = found.get(self.hosts[rank], 0) + 1
        return found

    def seconds(self, verb: str, ranks: Sequence[int], nbytes: float) -> float:
        """How long ``verb`` takes on ``ranks`` (for ``nbytes`` see ``plans``)."""
        crowds = self.by_host(ranks)
        most, several = max(crowds.values()), len(crowds) > 1
        inside = seconds_on(self.local, verb, most, nbytes, DIRECT)
        if not several:
            return inside
        through = nbytes * most if verb == "all_to_all" else nbytes
        return inside + seconds_on(self.remote, verb, len(crowds), through, self.algorithm)

    def link(self, src: int, dst: int) -> Link:
        """The link between two ranks."""
        if src == dst:
            return Link()
        return self.local if self.hosts[src] == self.hosts[dst] else self.remote


def spread(num_ranks: int, num_hosts: int) -> tuple[int, ...]:
    """The host of each rank: neighbours together, hosts as equally full as can be."""
    if not 1 <= num_hosts <= num_ranks:
        raise ConfigError(
            f"network: {num_hosts} hosts for {num_ranks} ranks given; needed is 1 <= hosts <= ranks"
        )
    return tuple(rank * num_hosts // num_ranks for rank in range(num_ranks))
