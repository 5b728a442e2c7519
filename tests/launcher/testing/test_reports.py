"""One report of a test out of those of its ranks: who failed, and who only followed."""

from __future__ import annotations

import pytest

from launcher.testing.reports import Outcome, RanksFailed, Verdict, combine


def report(outcome: str, longrepr: object = None, **more: object) -> pytest.TestReport:
    return pytest.TestReport("t", ("t.py", 1, "t"), {}, outcome, longrepr, "call", **more)  # type: ignore[arg-type]


PASSED = report("passed")


def skipped(why: str) -> pytest.TestReport:
    return report("skipped", ("t.py", 1, f"Skipped: {why}"))


def test_all_have_passed():
    outcome = combine(2, [Verdict(0, PASSED), Verdict(1, PASSED)])
    assert outcome.kind == "passed"
    outcome.tell()


def test_who_fails_for_another_one_is_not_the_cause():
    verdicts = [Verdict(0, report("failed", "PeerFailed"), echo=1), Verdict(1, None, "died")]
    outcome = combine(2, verdicts, "seed 3; more")
    assert outcome.summary == "rank 1: died (seed 3)"
    assert "rank 0 ended with PeerFailed, for rank 1" in str(outcome.longrepr)
    with pytest.raises(RanksFailed, match="rank 1: died"):
        outcome.tell()


def test_who_follows_one_that_has_passed_has_failed_itself():
    verdicts = [Verdict(0, report("failed", "PeerFailed"), echo=1), Verdict(1, PASSED)]
    assert combine(2, verdicts).summary == "rank 0: PeerFailed"


def test_ranks_that_say_the_same_are_shown_once():
    same = [Verdict(r, report("failed", "boom")) for r in (0, 1)]
    outcome = combine(3, [*same, Verdict(2, PASSED)])
    assert outcome.summary == "ranks 0-1: boom"
    assert str(outcome.longrepr).count("boom") == 1


def test_who_was_to_die_has_passed():
    assert (
        combine(2, [Verdict(0, None, "killed", spared=True), Verdict(1, PASSED)]).kind == "passed"
    )


def test_reasons_to_skip():
    one = combine(2, [Verdict(0, skipped("slow")), Verdict(1, skipped("slow"))])
    assert (one.kind, one.summary) == ("skipped", "slow")
    assert "rank 1: slow" in combine(2, [Verdict(0, PASSED), Verdict(1, skipped("slow"))]).summary


def test_faults_that_were_never_reached_fail_a_test_that_passed():
    outcome = combine(1, [Verdict(0, PASSED)], amiss="not reached")
    assert (outcome.kind, outcome.summary) == ("failed", "not reached")


def test_subtests_that_failed():
    assert Outcome(1).with_subtests(0).kind == "passed"
    assert Outcome(1).with_subtests(2).summary == "contains 2 failed subtests"
