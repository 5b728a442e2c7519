"""From the ends of ranks to a result: who is the cause, which code, what is said and to whom."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from disttrain.comm.job.segment import HAS_LEFT
from disttrain.outputs import UNHEARD
from disttrain_launcher.node import outcome as module
from disttrain_launcher.node.outcome import (
    Attempt,
    is_echo,
    outcome,
    report_of,
    tell,
    told_of,
)
from disttrain_launcher.node.report import VANISHED, RankReport
from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.job import Plan
from disttrain_launcher.plan.policy import Exit, Policy

pytestmark = pytest.mark.simulated

PLAN = Plan(("t.py", "--lr"), 3)
EVERYBODY = SimpleNamespace(members=lambda: [0, 1, 2])


def report(rank, code=1, **more):
    fields = {"pid": 9, "signal": 0, "cause": f"of {rank}", "traceback": "", "doing": "",
              "echo": False, "stopped": False}  # fmt: skip
    return RankReport(rank=rank, code=code, **{**fields, **more})


def ended(*exits, plan=PLAN, segment=EVERYBODY, signalled=0, **reports):
    policy = Policy(3, min_ranks=plan.min_ranks)
    for each in exits:
        policy.exited(each)
    if signalled:
        policy.signalled(signalled, 0.0)
    found = {e.rank: reports.get(f"r{e.rank}", report(e.rank, e.code)) for e in exits}
    return outcome(plan, segment, policy, found, [], [b"a"])


def test_the_first_failure_that_is_no_echo_is_the_cause_and_gives_the_code():
    exits = [Exit(0, 1, 1.0), Exit(2, 5, 2.0), Exit(1, 0, 3.0)]
    attempt = ended(*exits, r0=report(0, echo=True))
    assert attempt.first.rank == 2 and attempt.code == 5
    assert [r.rank for r in attempt.ranks] == [0, 1, 2] and attempt.results == [b"a"]


def test_all_is_well():
    attempt = ended(*[Exit(r, 0, 1.0) for r in range(3)])
    assert attempt.first is None and attempt.code == 0 and not attempt.stopped_by


def test_a_signal_that_the_job_got_is_its_code():
    attempt = ended(*[Exit(r, 1, 1.0) for r in range(3)], signalled=15)
    assert attempt.code == 143 and attempt.stopped_by == 15
    assert attempt.stopped(2).code == 130 and attempt.code == 143


def test_what_the_others_have_overcome_is_no_failure():
    plan = Plan(("t.py",), 3, min_ranks=2)
    exits = [Exit(1, 137, 1.0, signal=9), Exit(0, 0, 2.0), Exit(2, 0, 3.0)]
    members = SimpleNamespace(members=lambda: [0, 2])
    assert ended(*exits, plan=plan, segment=members).code == 0


def test_the_report_goes_to_the_folder_of_logs(tmp_path):
    plan = Plan(("t.py",), 3, log_dir=str(tmp_path))
    ended(Exit(0, 4, 1.0), plan=plan)
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["exitcode"] == 4 and found["root_cause"]["rank"] == 0


@pytest.mark.parametrize(
    "cause, echo",
    [
        ("PeerFailed: rank 1 failed", True),
        (f"CollectiveMismatch: x\n  rank 2: {HAS_LEFT}\n", True),
        ("CollectiveMismatch: shapes differ", False),
        ("ValueError: PeerFailed", False),
        ("", False),
    ],
)
def test_an_echo_only_says_that_another_rank_has_failed(cause, echo):
    assert is_echo(cause) is echo


def of(exit_, cause="", trace="", state="running", plan=PLAN, doing="", stopped=False):
    slot = SimpleNamespace(error=(cause, trace), state=state, doing=doing, pid=77)
    segment = SimpleNamespace(slot=lambda rank: slot)
    words = SimpleNamespace(doing="barrier", step=4, operations=("send",), time_ns=5)
    watching = SimpleNamespace(last_words=lambda rank, at, failed: words)
    return report_of(exit_, plan, Generation((1, 3), me=1), segment, watching, stopped)


def test_a_rank_that_failed_is_told_with_what_it_did():
    found = of(Exit(2, 1, 3.0), "ValueError: bad", "trace", stopped=True)
    assert (found.rank, found.local_rank, found.pid, found.code) == (2, 1, 77, 1)
    assert (found.cause, found.traceback, found.doing) == ("ValueError: bad", "trace", "barrier")
    assert (found.step, found.last, found.time_ns, found.stopped) == (4, ("send",), 5, True)
    assert found.error_file == "" and not found.echo and not found.vanished
    assert of(Exit(2, 1, 3.0), doing="all_reduce").doing == "all_reduce"


def test_a_rank_that_ended_well_did_nothing_last():
    found = of(Exit(2, 0, 3.0), doing="all_reduce")
    assert (found.doing, found.last, found.cause) == ("", (), "finished")


def test_a_rank_that_vanished_and_one_that_left_before_others():
    assert (found := of(Exit(1, 0, 3.0), state="vanished")).vanished and found.cause == VANISHED
    left = of(Exit(1, 0, 3.0), f"{HAS_LEFT}, though rank 2 waits")
    assert left.vanished and left.cause.startswith(HAS_LEFT)
    for more in ({"state": "vanished"}, {"cause": f"{HAS_LEFT}, though rank 2 waits"}):
        assert not of(Exit(1, 1, 3.0), **more).vanished, "its code says that it failed"


def test_an_exception_stands_in_a_file_where_there_is_a_folder(tmp_path):
    plan = Plan(("t.py",), 3, log_dir=str(tmp_path))
    assert of(Exit(2, 1, 3.0), "bad", plan=plan).error_file.endswith("attempt_0/1/error.json")
    assert of(Exit(2, 139, 3.0, signal=11), plan=plan).error_file == ""


def test_what_other_nodes_are_told():
    attempt = Attempt(5, report(2, 5, local_rank=0, echo=True), [], [], 0, 7, 1.5)
    assert told_of(attempt) == {
        "rank": 2, "local_rank": 0, "pid": 9, "cause": "of 2", "traceback": "", "echo": True,
        "code": 5, "seconds": 1.5, "operations": 7,
    }  # fmt: skip
    assert told_of(Attempt(3, None, [], [], 0))["cause"] == "exit code 3"


@pytest.fixture
def said(monkeypatch):
    texts = []
    monkeypatch.setattr(module, "put", lambda text, patience: texts.append(text))
    monkeypatch.setattr(module, "say", lambda text: texts.append(f"dtrun: {text}\n"))
    monkeypatch.setattr(module, "is_heard", lambda fd: False)
    return texts


def test_a_failure_here_is_told_with_its_block(said):
    first = report(1)
    tell(Attempt(1, first, [report(0), first], [], 0), PLAN)
    (text,) = said
    assert "t.py --lr FAILED" in text and "rank      : 1" in text
    assert "  rank 0: of 0" in text and "  rank 1: of 1" not in text


def test_a_failure_elsewhere_names_its_node(said):
    tell(Attempt(1, None, [], [], 0, node="n2:5", report={"rank": 7}, why="x"), PLAN)
    assert "on node n2:5" in said[0] and len(said) == 1


@pytest.mark.parametrize("first", [None, report(0, echo=True)])
def test_what_is_no_failure_of_a_rank_here_is_one_line(said, first):
    tell(Attempt(76, first, [], [], 0, why="this node was given up"), PLAN)
    assert said == ["dtrun: this node was given up\n"]


def test_nothing_is_said_of_what_people_have_asked_for_or_cannot_hear(said):
    tell(Attempt(143, report(0), [], [], 15), PLAN)
    tell(Attempt(UNHEARD, report(0), [], [], 0), PLAN)
    tell(Attempt(1, report(0), [], [], 0, superseded=True), PLAN)
    tell(Attempt(0, None, [], [], 0, why="the job is over"), PLAN)
    assert said == []
