"""Ranks on several hosts agree on who goes on: every interleaving of small cases, and many random
ones of larger cases."""

from __future__ import annotations

import copy
import os
import random
from collections import deque

import pytest

from disttrain.comm.transports.tcp.agreement import (
    Agreement,
    Decision,
    Word,
    decode,
    is_quorum,
    room,
)

SCHEDULES = int(os.environ.get("SCHEDULES", "1"))


class World:
    """Ranks with a queue from each to each. ``dead``: those that have ended; who is asked tells."""

    def __init__(self, num_ranks: int) -> None:
        n = self.n = num_ranks
        self.ranks = {r: Agreement(r, range(n), 1, 100 + r) for r in range(n)}
        self.joined: set[int] = set()
        self.told: dict[int, Word | None] = dict.fromkeys(range(n))
        self.queues = {(a, b): deque() for a in range(n) for b in range(n) if a != b}
        self.dead: set[int] = set()

    def key(self) -> tuple:
        ranks = tuple(
            (tuple(sorted(a.lost)), tuple(sorted(a.said.items())), a.decision, r in self.joined)
            if r not in self.dead
            else None
            for r, a in self.ranks.items()
        )
        queues = tuple(tuple(q) for (_, b), q in self.queues.items() if b not in self.dead)
        return ranks, queues, tuple(sorted(self.dead))

    def events(self, deaths: int) -> list[tuple]:
        found: list[tuple] = []
        for r, agreement in self.ranks.items():
            if r in self.dead:
                continue
            if len(self.dead) < deaths:  # it dies while it tells the first so many of the others
                last = self.n if r in self.joined and agreement.word() != self.told[r] else 1
                found += [("die", r, k) for k in range(last)]
            if r not in self.joined:
                found.append(("join", r))
                continue
            if agreement.word() != self.told[r]:
                found.append(("tell", r))
            found += self._news_of(r, agreement)
        return found

    def _news_of(self, r: int, agreement: Agreement) -> list[tuple]:
        found = []
        if agreement.decision is None:
            for s in range(self.n):
                if s != r and self.queues[s, r]:
                    found.append(("hear", r, s))
                elif s != r and s in self.dead and s not in agreement.lost:
                    found.append(("lose", r, s))
        return found

    def happen(self, event: tuple) -> None:
        kind, r = event[:2]
        agreement = self.ranks[r]
        if kind == "join":
            self.joined.add(r)
        elif kind == "tell":
            self._tell(r, self.n)
        elif kind == "die":
            self._tell(r, event[2])
            self.dead.add(r)
        elif kind == "hear":
            agreement.hear(event[2], self.queues[event[2], r].popleft())
        else:
            agreement.lose(event[2], sure=len(event) == 3)
        agreement.settle()

    def _tell(self, r: int, count: int) -> None:
        if r in self.joined and count:
            word = self.told[r] = self.ranks[r].word()
            for other in range(r + 1, r + 1 + min(count, self.n - 1)):
                self.queues[r, other % self.n].append(word)

    def check(self) -> None:
        """Nobody that lives has decided anything else than others that live."""
        made = {a.decision for r, a in self.ranks.items() if a.decision and r not in self.dead}
        assert len(made) <= 1, made
        assert not any(a.excluded or a.refused for a in self.ranks.values())

    def check_end(self) -> None:
        for r, agreement in self.ranks.items():
            if r not in self.dead:
                assert agreement.decision is not None, (r, agreement)
                assert r in agreement.decision.members


def explore(world: World, deaths: int) -> int:
    seen, todo = {world.key()}, [world]
    while todo:
        now = todo.pop()
        now.check()
        events = now.events(deaths)
        if not [e for e in events if e[0] != "die"]:
            now.check_end()
        for event in events:
            after = copy.deepcopy(now)
            after.happen(event)
            key = after.key()
            if key not in seen:
                seen.add(key)
                todo.append(after)
    return len(seen)


def test_every_interleaving_of_one_death_in_two_ranks():
    assert explore(World(2), 1) > 50


@pytest.mark.parametrize("seed", range(300 * SCHEDULES))
def test_many_interleavings_of_several_deaths(seed):
    draw = random.Random(seed)
    world = World(draw.choice([3, 4, 5]))
    deaths, eager = draw.randrange(1, world.n), draw.choice([0.01, 0.05, 0.3])
    while True:
        events = world.events(deaths)
        alive = [e for e in events if e[0] != "die"]
        dying = [e for e in events if e[0] == "die"]
        falls = bool(dying) and draw.random() < eager
        if not alive and not falls:
            break
        world.happen(draw.choice(dying if falls else alive))
        world.check()
    world.check_end()


def suspicions(world: World) -> list[tuple]:
    """Whoever counts another one for lost, which lives."""
    return [
        ("lose", r, s, "silent")
        for r, a in world.ranks.items()
        for s in range(world.n)
        if r != s and r in world.joined and a.decision is None and s not in a.lost
    ]


@pytest.mark.parametrize("seed", range(200 * SCHEDULES))
def test_two_sides_of_a_cut_network_never_both_go_on(seed):
    draw = random.Random(seed)
    world = World(draw.choice([3, 4, 5]))
    n = world.n
    side = set(draw.sample(range(n), draw.randrange(1, n)))
    doubt = draw.choice([0.02, 0.2])
    for _ in range(2000):
        events = [
            e
            for e in world.events(draw.choice([0, 0, 1]))
            if e[0] != "hear" or (e[1] in side) == (e[2] in side)
        ]
        doubts = [e for e in suspicions(world) if (e[1] in side) != (e[2] in side)]
        if not events and not doubts:
            break
        world.happen(draw.choice(doubts if doubts and draw.random() < doubt else events or doubts))
    sides = [{a.decision for r, a in world.ranks.items() if (r in side) == which and a.decision
              and r not in world.dead} for which in (True, False)]  # fmt: skip
    assert all(len(made) <= 1 for made in sides)
    whole = [made.pop() for made in sides if made]
    if len(whole) == 2:  # then one of them needs a rank that is not there to do anything
        members = [set(d.members) for d in whole]
        assert members[0] & members[1]


def test_a_word_goes_through_bytes_and_torn_ones_are_refused():
    word = Word(3, 7 << 20, frozenset([1, 9]), frozenset([9]), True, Decision(2, (0, 2, 9), 5))
    data = word.encode(10)
    assert len(data) == room(10) and decode(data, 10) == word
    with pytest.raises(ValueError):
        decode(data[:-1], 10)
    with pytest.raises(ValueError):
        decode(data[:-1] + b"\7", 10)
    with pytest.raises(ValueError):
        decode(bytes(room(10)), 10)


def test_who_lags_behind_takes_the_decision_or_learns_that_it_is_out():
    late = Agreement(1, range(3), 1, 0)
    late.hear(0, Word(2, decided=Decision(1, (0, 1), 5)))
    assert late.decision == Decision(1, (0, 1), 5)
    out = Agreement(2, range(3), 1, 0)
    out.hear(0, Word(2, decided=Decision(1, (0, 1), 5)))
    assert out.excluded and out.decision is None
    accused = Agreement(2, range(3), 1, 0)
    accused.hear(0, Word(1, lost=frozenset([2])))
    assert accused.excluded


def test_silent_ranks_leave_one_side_at_most():
    assert is_quorum([0, 1], [0, 1, 2, 3]) and not is_quorum([2, 3], [0, 1, 2, 3])
    assert is_quorum([1, 2], [0, 1, 2]) and not is_quorum([0], [0, 1, 2])
    alone = Agreement(3, [0, 3], 1, 0)
    alone.lose(0, sure=False)
    alone.settle()
    assert alone.refused and alone.decision is None
    alone = Agreement(3, [0, 3], 1, 0)
    alone.lose(0, sure=True)
    alone.settle()
    assert alone.decision == Decision(1, (3,), 0)
