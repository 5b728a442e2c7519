"""Who is stuck, told from records of waits: against the definition, over generated waits; and what
a look costs where nobody is."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from disttrain.comm.job.segment import Segment
from disttrain.comm.transports.shm.deadlock import (
    _ANY,
    _WAIT_SHIFT,
    IDLE,
    LEFT,
    WAITING,
    DeadlockDetector,
)
from disttrain.comm.transports.shm.fences import words_of
from disttrain.comm.transports.shm.hub import Flags

WORDS_AT = 8  # of the flags in the segment's first page that the waits are for, in words
SEEDS = range(300)


@pytest.fixture
def segment():
    made = Segment.create(200, arena_bytes=1 << 20)
    yield made
    made.close()


def detector(segment, size: int, rank: int = 0) -> DeadlockDetector:
    address = np.frombuffer(segment.buffer, np.uint8).__array_interface__["data"][0]
    for r in range(size):
        segment.slot(r).pid, segment.slot(r).state = os.getpid(), "running"
    return DeadlockDetector(
        words_of(segment.buffer, address), segment.buffer, segment, rank, size, 0
    )


def waits_of(rng: random.Random, size: int) -> list:
    """Records of ranks, as ``DeadlockDetector._read`` gives them."""
    records = []
    for _ in range(size):
        state = rng.choice([IDLE, WAITING, WAITING, WAITING, LEFT])
        edges = []
        for wait in range(rng.randint(1, 3) if state == WAITING else 0):
            mark = wait << _WAIT_SHIFT | (_ANY if rng.random() < 0.3 else 0)
            for _ in range(rng.randint(1, 3)):
                edges.append((rng.randrange(size) | mark, WORDS_AT, rng.choice([5, 5, 5, 0])))
        records.append((2, state, 0, edges))
    return records


def by_definition(records: list, word: int) -> set[int]:
    """The largest set of ranks that do not go on, of which each one's waits are all in vain."""
    stuck = {r for r, record in enumerate(records) if record[1] != IDLE}

    def in_vain(edges: list) -> bool:
        waits: dict[int, list[bool]] = {}
        for head, _, value in edges:
            waits.setdefault(head >> _WAIT_SHIFT, []).append(
                head & 0xFFFF in stuck and word < value
            )
        return all(
            (all if wait & (_ANY >> _WAIT_SHIFT) else any)(hangs) for wait, hangs in waits.items()
        )

    while free := {r for r in stuck if records[r][1] == WAITING and not in_vain(records[r][3])}:
        stuck -= free
    return stuck


def test_the_stuck_are_those_of_the_definition(segment):
    judge, sizes = detector(segment, 8), set()
    judge._words[WORDS_AT] = 3
    for seed in SEEDS:
        rng = random.Random(seed)
        records = waits_of(rng, rng.randint(2, 8))
        expected = by_definition(records, 3)
        assert judge._stuck(records) == expected, (seed, records)
        sizes.add(len(expected))
    assert len(sizes) > 5


def need(judge: DeadlockDetector, idxs: list[int], ranks: list[int]) -> Flags:
    return Flags(judge._words, idxs, ranks, 1, lambda missing: f"rank {missing[:1]} and others")


def test_who_waits_for_ranks_that_go_on_reads_no_records(segment, monkeypatch):
    """However many they are: with 256 ranks that came one by one, reading all of everybody's was
    all that the processor did."""
    judge = detector(segment, 200)
    arrived = need(judge, [WORDS_AT + r for r in range(1, 200)], list(range(1, 200)))
    monkeypatch.setattr(judge, "_read", lambda rank: pytest.fail(f"the record of {rank} was read"))
    judge.look(arrived, lambda: [arrived])  # sets the clock
    judge._next = 0.0
    judge.look(arrived, lambda: [arrived])
    assert judge._words[judge._at[0] // 8 + 1] == WAITING


def test_of_a_wait_for_many_the_ranks_that_wait_are_published(segment):
    """Few flags are, and one of a rank that goes on says nothing."""
    judge = detector(segment, 200)
    judge._words[judge._at[150] // 8 + 1] = WAITING
    arrived = need(judge, [WORDS_AT + r for r in range(1, 200)], list(range(1, 200)))
    edges = judge._publish([arrived], arrived)
    assert 150 in {head & 0xFFFF for head, _, _ in edges}
    assert len(edges) == 16
