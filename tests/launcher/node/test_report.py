"""What is said of a failure: the root cause on top, the other ranks below it."""

from __future__ import annotations

import json
import signal

import pytest

from disttrain_launcher.node.report import (
    BAR,
    RankReport,
    _moment,
    cause_of,
    elsewhere,
    headline,
    write_report,
)
from disttrain_launcher.plan.policy import Exit

pytestmark = pytest.mark.simulated


def report(rank=0, cause="exit code 1", **more):
    fields = {"pid": 100 + rank, "code": 1, "signal": 0, "traceback": "", "doing": "",
              "echo": False, "stopped": False}  # fmt: skip
    return RankReport(rank=rank, cause=cause, **{**fields, **more})


def test_the_recorded_exception_says_more_than_the_signal_and_that_more_than_the_code():
    killed = Exit(0, 137, 0.0, signal=signal.SIGKILL)
    assert cause_of(killed, "ValueError: bad") == "ValueError: bad"
    assert cause_of(killed, "") == "killed by SIGKILL (out of memory?)"
    assert cause_of(Exit(0, 139, 0.0, signal=signal.SIGSEGV), "") == "killed by SIGSEGV"
    assert cause_of(Exit(0, 3, 0.0), "") == "exit code 3"
    assert cause_of(Exit(0, 0, 0.0), "") == "finished"


def test_the_block_names_the_cause_and_what_the_rank_was_doing():
    first = report(
        3, "ValueError: bad\nmore", traceback="Traceback\n  line\n", doing="all_reduce", step=7,
        local_rank=1, host="node7", last=("barrier", "all_reduce"), said=("loss nan",),
        error_file="logs/error.json", time_ns=1_700_000_000_123_456_789,
    )  # fmt: skip
    lines = headline(first, [report(1, "PeerFailed: 3\nx", echo=True)], "train.py").splitlines()
    assert lines[0] == lines[-1] == BAR and lines[1] == "train.py FAILED"
    text = "\n".join(lines)
    for part in (
        "  host      : node7",
        "  rank      : 3 (local_rank: 1)",
        "  cause     : ValueError: bad\n              more",
        "  exitcode  : 1 (pid: 103)",
        "  error_file: logs/error.json",
        "  step      : 7",
        "  was in    : all_reduce",
        "  did last  : barrier\n              all_reduce",
        "  said last : loss nan",
        "  traceback :\n    Traceback\n      line",
        "Other ranks:\n  rank 1: PeerFailed: 3",
    ):
        assert part in text, text
    assert ".123456" in text


def test_what_is_not_known_is_left_out():
    text = headline(report(2, host="h"), [], "t.py")
    assert "  rank      : 2 (local_rank: 2)" in text and "error_file: <N/A>" in text
    for absent in ("step", "was in", "did last", "said last", "traceback", "Other ranks"):
        assert absent not in text


def test_other_ranks_in_a_line():
    others = [
        report(1, "killed by SIGTERM", stopped=True, doing="barrier"),
        report(2, "PeerFailed: rank 0\nmore", echo=True, stopped=True, doing="barrier"),
        report(3, "", doing="recv"),
    ]
    lines = headline(report(0), others, "t.py").splitlines()
    assert lines[lines.index("Other ranks:") + 1 : -1] == [
        "  rank 1: stopped by the launcher (killed by SIGTERM); was in barrier",
        "  rank 2: PeerFailed: rank 0",
        "  rank 3: finished; was in recv",
    ]


def test_the_block_of_a_node_where_it_did_not_happen():
    told = {"rank": 5, "local_rank": 1, "cause": "a\nb", "code": 9, "pid": 3}
    text = elsewhere("node2:77", told, "t.py")
    assert "on node node2:77:" in text and "  rank      : 5 (local_rank: 1)" in text
    assert "  cause     : a\n              b" in text and "  exitcode  : 9 (pid: 3)" in text
    assert "stands in the output of node2:77." in text
    assert "cause     : unknown" in elsewhere("n", {}, "t.py")


def test_a_moment_has_microseconds():
    assert _moment(5_000_000_999).endswith(".000000")
    assert _moment(5_000_001_000).endswith(".000001")


def test_the_same_for_machines(tmp_path):
    first, second = report(1, "bad", last=("barrier",)), report(0, "PeerFailed", echo=True)
    write_report(str(tmp_path / "logs"), first, [second, first], 3, [report(2, "replaced")])
    found = json.loads((tmp_path / "logs" / "report.json").read_text())
    assert found["exitcode"] == 3 and found["root_cause"]["cause"] == "bad"
    assert found["root_cause"]["last"] == ["barrier"]
    assert [r["rank"] for r in found["ranks"]] == [0, 1]
    assert [r["rank"] for r in found["replaced"]] == [2]
    write_report(str(tmp_path), None, [], 0)
    assert json.loads((tmp_path / "report.json").read_text())["root_cause"] is None


def test_a_report_that_cannot_be_written_is_told(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    write_report(str(tmp_path / "file"), None, [], 0)
    assert "dtrun: " in (told := capfd.readouterr().err) and "could not be written" in told
