"""Simulated ranks whose messages meet receives as a schedule says (see ``interleavings``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ....errors import Deadlock
from .cluster import first_failed, run_cluster
from .fabric import Cluster, Fabric
from .interleavings import ENDED, PRUNED, Chooser, Match, Ran, Schedule, Verdict, search
from .posts import Letter, Posts, Request, fit
from .scheduler import Scheduler

_PACKAGE = str(Path(__file__).parents[3]) + "/"


class ChosenPosts(Posts):
    """Receives from anybody get what ``choose`` says, once nobody can go on without."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.choose = Chooser(schedule)
        self.limit = schedule.limit
        self.told: list[str] = []
        self.sizes: set[int] = set()
        self.varied: set[str] = set()
        self._receives: dict[int, int] = {}  # of each rank, from anybody
        self._messages: dict[tuple[int, int], int] = {}
        self._numbers: dict[Letter | Request, int] = {}

    def waits(self, nbytes: int) -> bool:
        self.sizes.add(nbytes)
        return nbytes > self.limit

    def asked(self) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_name in ("is_completed", "is_success", "done") and frame.f_back:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            self.varied.add(
                f"whether something has ended already ({frame.f_code.co_filename}:{frame.f_lineno})"
            )

    def arrive(self, letter: Letter) -> None:
        pair = letter.src, letter.dst
        self._messages[pair] = self._numbers[letter] = self._messages.get(pair, 0) + 1
        self._came.setdefault(letter.dst, []).append(letter)
        self._settle(letter.dst)

    def want(self, rank: int, request: Request) -> None:
        if request.src is None:
            self._receives[rank] = self._numbers[request] = self._receives.get(rank, 0) + 1
        self._wanted.setdefault(rank, []).append(request)
        self._settle(rank)

    def _settle(self, rank: int) -> None:
        """Give what has only one meaning: to receives that name their source, which no earlier one
        from anybody may want."""
        again = True
        while again:
            again = False
            for letter in self._came.get(rank, ()):
                request = self._first(letter)
                if request is not None and request.src is not None:
                    self._meet(letter, request)
                    again = True
                    break

    def _first(self, letter: Letter) -> Request | None:
        """The earliest receive that may get it."""
        wanted = self._wanted.get(letter.dst, ())
        return next((r for r in wanted if fit(letter, r)), None)

    def _meet(self, letter: Letter, request: Request) -> None:
        self._came[letter.dst].remove(letter)
        self._wanted[letter.dst].remove(request)
        self._give(letter, request)

    def options(self) -> list[tuple[Match, Letter, Request]]:
        """What receives from anybody can get now: of each source and key the first message."""
        found, seen = [], set()
        for dst, came in sorted(self._came.items()):
            for letter in came:
                request = self._first(letter)
                if request is None or (dst, letter.src, letter.key) in seen:
                    continue
                seen.add((dst, letter.src, letter.key))
                match = Match(dst, self._numbers[request], letter.src, self._numbers[letter])
                found.append((match, letter, request))
        return sorted(found, key=lambda row: row[0])

    def at_rest(self, somebody_sleeps: bool) -> bool:
        """Nobody can go on: choose, if there is anything to choose. Who sleeps may send more when
        it wakes up; but where ranks ask in place of waiting, they may sleep for ever meanwhile."""
        if somebody_sleeps and not self.varied:
            return False
        found = self.options()
        if not found or self.choose.pruned or self.choose.lost:
            return False
        at = self.choose(tuple(match for match, _, _ in found))
        if at is None:
            return False
        match, letter, request = found[at]
        self.told.append(
            f"rank {match.dst}: {request.call.text} gets {letter.call.text} of rank {match.src}"
            + (f" (one of {len(found)} that are possible)" if len(found) > 1 else "")
        )
        self._meet(letter, request)
        self._settle(match.dst)
        return True

    def ran(self, end: str, results: Sequence[str], text: str) -> Ran:
        """What came of the run that has ended so."""
        if self.choose.pruned:
            end = PRUNED
        return Ran(
            end, tuple(self.choose.made), tuple(results), text, tuple(self.told),
            frozenset(self.sizes), frozenset(self.varied),
        )  # fmt: skip


def install(scheduler: Scheduler, fabric: Fabric, schedule: Schedule) -> ChosenPosts:
    """Let the ranks of a cluster that has not begun to run meet by ``schedule``."""
    posts = fabric.posts = ChosenPosts(schedule)

    def at_rest(somebody_sleeps: bool) -> bool:
        if posts.at_rest(somebody_sleeps):
            return True
        if not (posts.choose.pruned or posts.choose.lost):
            return False
        ended = [rank for rank in range(fabric.cluster.num_ranks) if rank not in scheduler.ended]
        for rank in ended:
            scheduler.end_rank(rank, "what follows was tried before")
        return bool(ended)

    scheduler.at_rest = at_rest
    return posts


def end_of(scheduler: Scheduler) -> tuple[str, str]:
    """How a run has ended, and what is wrong."""
    first, _ = first_failed(scheduler)
    if first is None:
        return ENDED, ""
    if isinstance(first.error, Deadlock):
        return "deadlock", str(first.error)
    name = type(first.error).__name__
    return "failed", f"{first.where()}: {name}: {first.error}"


def run_once(fn: Callable[[], Any], cluster: Cluster, schedule: Schedule, seed: int = 0) -> Ran:
    """Run ``fn()`` on all ranks of ``cluster``; results are what they return, as texts."""
    made: list[ChosenPosts] = []
    scheduler, _ = run_cluster(
        fn,
        cluster,
        seed,
        lambda scheduler, fabric: made.append(install(scheduler, fabric, schedule)),
    )
    return made[0].ran(*_outcome(scheduler))


def _outcome(scheduler: Scheduler) -> tuple[str, list[str], str]:
    end, text = end_of(scheduler)
    return end, [repr(t.result) for t in scheduler.tasks], text


def prove(fn: Callable[[], Any], num_ranks: int, budget: int = 1000) -> Verdict:
    """Whether ``fn()`` on simulated ranks ends with the same results in every interleaving of its
    messages: tries all, or ``budget`` of them."""
    cluster = Cluster(num_ranks)
    return search(lambda schedule: run_once(fn, cluster, schedule), budget)
