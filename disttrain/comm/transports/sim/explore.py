"""Trying many schedules and faults on a simulated cluster, and making a failing trial simple.

Pure functions from data to data; what runs a trial, and says what came of it, is the caller's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from .faults import DELAY, DROP, KILL, RPC, Fault, points_of

_KINDS = (KILL, DROP, DELAY)
_DELAYS = (1e-4, 1e-2, 1.0)
_SEEDS = 6  # schedules that are tried on fewer ranks
_SPARED = ("close",)  # leaving late or not at all is no fault of the network
# What ranks may end with where a rank was killed or a message lost, as the specification of
# failures says.
_EXPECTED = {KILL: ("PeerFailed",), DROP: ("PeerFailed", "WaitTimeout"), DELAY: ()}


@dataclass(frozen=True)
class Trial:
    """One run: how many ranks, which schedule, what goes wrong."""

    num_ranks: int
    seed: int
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What came of a trial. ``blame``: (rank, type of error, text) of the ranks that failed;
    ``named``: (rank, the rank that its ``PeerFailed`` names, and that one's cause)."""

    code: int
    blame: tuple[tuple[int, str, str], ...] = ()
    counts: tuple[tuple[tuple[int, str], int], ...] = ()
    named: tuple[tuple[int, int, str], ...] = ()


def unexpected(trial: Trial, verdict: Verdict) -> tuple[int, str, str] | None:
    """The first rank that failed in a way that the trial's faults do not explain; None where all
    went well, or as it must. Who is killed ends; who waits for it gets ``PeerFailed``, which names
    a rank that has failed (or, in a group that numbers ranks anew, its cause); who waits for what
    was lost gets ``WaitTimeout``. A late message changes nothing."""
    killed = {fault.rank for fault in trial.faults if fault.kind == KILL}
    fine = {name for fault in trial.faults for name in _EXPECTED[fault.kind]}
    failed = {rank for rank, _, _ in verdict.blame}
    causes = {text for _, _, text in verdict.blame}
    misled = {
        rank for rank, named, cause in verdict.named if named not in failed and cause not in causes
    }
    for rank, name, text in verdict.blame:
        struck = name == "Killed" and (rank in killed or None in killed)
        if rank in misled or (not struck and name not in fine):
            return rank, name, text
    return None


def trials(
    count: int, num_ranks: int, seed: int, counts: Mapping[tuple[int, str], int]
) -> Iterator[Trial]:
    """``count`` trials, drawn from ``seed``: half of them other schedules only, the others with one
    or two faults at points of a run in which ranks made so many calls (``counts``)."""
    draw = random.Random(seed)
    points = [point for point in points_of(counts) if point[1] not in _SPARED]
    for number in range(count):
        faults: list[Fault] = []
        if points and number % 2:
            for _ in range(draw.choice((1, 1, 2))):
                faults.append(_fault(draw, draw.choice(points)))
        yield Trial(num_ranks, seed + number + 1, tuple(faults))


def _fault(draw: random.Random, point: tuple[int, str, int]) -> Fault:
    kinds = (KILL, DELAY) if point[1] in (RPC, "recv") else _KINDS
    kind = draw.choice(kinds)
    return Fault(kind, *point, draw.choice(_DELAYS) if kind == DELAY else 0.0)


def shrink(
    trial: Trial, fails: Callable[[Trial], bool], fewest_ranks: int = 1, most: int = 60
) -> Trial:
    """The simplest trial near ``trial``, which fails, that fails as well: without faults that do
    not matter, on fewer ranks, at an earlier call, with a smaller seed. Asks ``fails`` at most
    ``most`` times."""
    asked = 0
    again = True
    while again:
        again = False
        for simpler in _simpler(trial, fewest_ranks):
            if asked >= most:
                return trial
            asked += 1
            if fails(simpler):
                trial, again = simpler, True
                break
    return trial


def _simpler(trial: Trial, fewest: int) -> Iterator[Trial]:
    """Trials that are a step simpler, the largest steps first."""
    faults = trial.faults
    if len(faults) > 1:
        yield replace(trial, faults=())
    for i in range(len(faults)):
        yield replace(trial, faults=faults[:i] + faults[i + 1 :])
    n = trial.num_ranks
    for size in dict.fromkeys((fewest, n // 2, n - 1)):
        if fewest <= size < n:
            fewer = replace(trial, num_ranks=size, faults=tuple(_on(f, size) for f in faults))
            for seed in (trial.seed, *range(_SEEDS)):  # the same seed is another schedule there
                yield replace(fewer, seed=seed)
    for i, fault in enumerate(faults):
        for number in dict.fromkeys((1, (fault.number or 1) // 2)):
            if fault.number is not None and 1 <= number < fault.number:
                earlier = replace(fault, number=number)
                yield replace(trial, faults=(*faults[:i], earlier, *faults[i + 1 :]))
    for seed in dict.fromkeys((0, trial.seed // 2)):
        if seed < trial.seed:
            yield replace(trial, seed=seed)


def _on(fault: Fault, num_ranks: int) -> Fault:
    """The same fault on a rank that is there."""
    return fault if fault.rank is None else replace(fault, rank=fault.rank % num_ranks)
