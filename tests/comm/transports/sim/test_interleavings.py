"""The search over interleavings, held against enumeration of all states of small programs."""

from __future__ import annotations

import random

import pytest

from disttrain.comm.transports.sim.choosing import prove, run_once
from disttrain.comm.transports.sim.fabric import Cluster
from disttrain.comm.transports.sim.interleavings import (
    ALL,
    ENDED,
    NONE,
    PRUNED,
    Chooser,
    Match,
    Ran,
    Schedule,
    independent,
    parse_schedule,
    runs,
    search,
)
from support.message_programs import SIZES, draw, outcomes, runner

pytestmark = pytest.mark.simulated

PROGRAMS = 60  # a part


def explored(program, limit):
    """What the search finds, to its end, and how many runs that takes."""
    run, cluster = runner(program), Cluster(len(program))
    found, tried = set(), 0
    for _, ran in runs(lambda schedule: run_once(run, cluster, schedule), limit):
        tried += 1
        assert not ran.varied, ran
        if ran.end != PRUNED:
            assert ran.end in (ENDED, "deadlock"), ran.text
            found.add((ran.end, ran.results) if ran.end == ENDED else (ran.end,))
    return found, tried


@pytest.mark.parametrize("part", range(6))
def test_what_is_found_is_what_enumeration_finds(part):
    """Programs with and without deadlocks: the same ends, the same results, for every limit; and
    verdicts that agree."""
    random_, kinds = random.Random(part), {}
    for _ in range(PROGRAMS):
        program = draw(random_, random_.choice((2, 3, 3)), 6)
        limits = [ALL, SIZES[0], NONE]
        whole = {limit: outcomes(program, limit) for limit in limits}
        for limit in limits:
            found, _ = explored(program, limit)
            assert found == whole[limit], (program, limit)
        sent = {SIZES[s[2]] for steps in program for s in steps if s[0] in ("send", "isend")}
        asked = [ALL, *sorted(sent)[:-1], *([NONE] if sent else [])]
        ends = set().union(*(whole[limit] for limit in asked))
        verdict = prove(runner(program), len(program), 10_000)
        if ("deadlock",) in ends:
            expected = ("deadlock", "results") if len(ends) > 2 else ("deadlock",)
        else:
            expected = ("results",) if len(ends) > 1 else ("proof",)
        assert verdict.kind in expected, (program, verdict)
        kinds[verdict.kind] = kinds.get(verdict.kind, 0) + 1
        if verdict.is_counterexample:
            again = run_once(runner(program), Cluster(len(program)), verdict.schedule)
            assert again.end == (ENDED if verdict.kind == "results" else "deadlock")
            assert parse_schedule(str(verdict.schedule)) == verdict.schedule
    assert kinds["proof"] >= 5 and kinds["deadlock"] >= 5 and "results" in kinds, kinds


def model(of):
    """A run of a program with choices only: ``of(way)`` gives the matches after ``way``."""

    def run(schedule):
        chooser, way = Chooser(schedule), []
        while (options := of(tuple(way))) and (at := chooser(options)) is not None:
            way.append(options[at])
        end = PRUNED if chooser.pruned else ENDED
        results = tuple(sorted(map(str, way)))
        return Ran(end, tuple(chooser.made), results, sizes=frozenset())

    return run


def test_choices_on_different_ranks_are_tried_in_one_order():
    """Four ranks with one choice of two each: 16 results, and no more runs to their end."""
    every = [(Match(r, 1, 4, r), Match(r, 1, 5, r)) for r in range(4)]

    def of(way):
        return tuple(m for two in every if not set(two) & set(way) for m in two)

    ends = [ran.end for _, ran in runs(model(of), ALL)]
    assert ends.count(ENDED) == 16 and len(ends) < 200


def test_matches_of_one_rank_depend_on_each_other():
    assert independent(Match(0, 1, 2, 1), Match(1, 1, 2, 1))
    assert not independent(Match(0, 1, 2, 1), Match(0, 1, 3, 1))


def test_a_budget_ends_the_search_without_a_proof():
    def of(way):
        return tuple(Match(0, len(way) + 1, s, 1) for s in range(3)) if len(way) < 8 else ()

    run = model(of)
    verdict = search(lambda s: Ran(*(run(s).end, run(s).choices)), 50)
    assert verdict.kind == "incomplete" and verdict.tried == 50
    assert "this is no proof" in str(verdict) and not verdict.is_counterexample
    assert verdict.as_json()["complete"] is False


def test_a_budget_that_is_just_enough_gives_a_proof():
    def of(way):
        return () if way else (Match(0, 1, 1, 1), Match(0, 1, 2, 1))

    run = model(of)
    alike = lambda s: Ran(run(s).end, run(s).choices)
    assert search(alike, 2).kind == "proof" and search(alike, 1).kind == "incomplete"


def test_a_program_that_varies_is_not_proved():
    calls = []

    def of(way):
        calls.append(way)
        return (Match(0, 1, 1 + len(calls) % 7, 1), Match(0, 1, 0, len(calls))) if not way else ()

    verdict = search(model(of), 50)
    assert verdict.kind in ("incomplete", "results")
    assert verdict.kind == "results" or "differs from run to run" in verdict.text


def test_results_that_differ_are_shown_with_both_schedules():
    def of(way):
        return () if way else (Match(0, 1, 1, 1), Match(0, 1, 2, 1))

    verdict = search(model(of), 50)
    assert verdict.kind == "results" and str(verdict.schedule) == "all:1"
    assert "in interleaving all, and" in str(verdict)


@pytest.mark.parametrize("text", ["all", "none", "8", "all:0.1.2", "none:3", "16:0"])
def test_schedules_as_text(text):
    assert str(parse_schedule(text)) == text
    assert parse_schedule("all:0.1") == Schedule(ALL, (0, 1))


@pytest.mark.parametrize("text", ["", "some", "all:a", "1:1,2"])
def test_texts_that_are_no_schedules(text):
    with pytest.raises(ValueError):
        parse_schedule(text)
