"""Ranks that do not move: what the launcher decides (pure), and what a job does."""

from __future__ import annotations

import os
import signal
import time

import pytest

from disttrain.liveness import LOOK_EVERY, Sample
from disttrain_launcher.plan.inactivity import CODE, Judge, Standing, awaited, moves
from support.dtrun import Job, until

SLEEPS, RUNS, STOPPED = Sample("S", 1), Sample("R", 1), Sample("T", 1)


def judged(judge: Judge, seconds: float, *states: Sample, since: float = 0.0):
    """All warnings, and the lost ranks, of so many seconds with ranks in these states."""
    warnings, lost, at = [], {}, since
    while at <= since + seconds:
        told, lost = judge.look(at, dict(enumerate(states)))
        warnings += told
        at += LOOK_EVERY
    return warnings, lost


def test_a_rank_that_is_stopped_alone_is_warned_of_and_then_lost():
    warnings, lost = judged(Judge(3), 1.5, RUNS, STOPPED, SLEEPS)
    assert len(warnings) == 1 and not lost
    assert warnings[0].startswith("rank 1 does not move: state T (stopped) for 0.5 s")
    assert list(judged(Judge(3), 2.25, RUNS, STOPPED, SLEEPS)[1]) == [1]
    assert not judged(Judge(3, limit=0), 60.0, RUNS, STOPPED, SLEEPS)[1]
    assert list(judged(Judge(3, limit=5.0), 5.25, RUNS, STOPPED, STOPPED)[1]) == [1, 2]


@pytest.mark.parametrize("ranks", [1, 4])
def test_where_all_are_stopped_somebody_means_it(ranks):
    warnings, lost = judged(Judge(ranks), 60.0, *[STOPPED] * ranks)
    assert not lost and warnings == [w for w in warnings if w.startswith("all ranks are stopped")]
    assert len(warnings) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_where_ranks_of_other_nodes_move_those_here_are_lost(ranks):
    judge = Judge(ranks, others_move=True)
    warnings, lost = judged(judge, 3.75, *[STOPPED] * ranks)
    assert judge.all_stopped and not lost, "the others may be known to be stopped, too, soon"
    assert len(warnings) == ranks and "others wait for it" in warnings[0]
    assert list(judged(judge, 0.5, *[STOPPED] * ranks, since=4.0)[1]) == list(range(ranks))


def test_nodes_know_together_who_moves_and_whom_all_wait_for():
    still, runs, waits = Standing(stopped=True), Standing(), Standing(stalled=True)
    assert moves([still, runs]) and not moves([still, still]) and not moves([])
    busy, other = Standing(stalled=True, busy=3), Standing(stalled=True, busy=5)
    assert awaited([waits, busy, waits]) == 3
    assert awaited([waits, waits]) == awaited([waits, runs, busy]) == awaited([busy, other]) == -1


@pytest.mark.parametrize(("state", "named"), [("t", "held by a debugger"), ("D", "a disk")])
def test_debuggers_and_disks_are_told_and_nothing_else(state, named):
    warnings, lost = judged(Judge(2), 50.0, RUNS, Sample(state))
    assert not lost and len(warnings) == 1 and named in warnings[0]


def test_short_stops_and_work_are_no_failure():
    judge, warnings = Judge(2), []
    for second in range(0, 120, 5):  # 1 s of every 5
        for since, other in ((second, STOPPED), (second + 1.25, Sample("R", 2 + second))):
            told, lost = judged(judge, 1.0, RUNS, other, since=since)
            warnings += told
            assert not lost
    assert warnings and all("rank 1" in text for text in warnings) and len(warnings) <= 3
    assert judged(Judge(2), 600.0, RUNS, RUNS) == ([], {})


SCRIPT = """
import os, signal
import disttrain as dt
from disttrain import distributed as dist
dist.init_process_group()
x, step = dt.ones(4), 0
while True:
    dist.all_reduce(x)
    step += 1
    if step == 5:
        open(f"up.{os.getpid()}", "w").close()
    if step == 50 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if step == 100:
        break
"""


@pytest.mark.timeout(120)
def test_a_stopped_rank_is_named_and_the_job_restarts_and_at_last_ends(tmp_path):
    """With a code of its own: the second attempt loses a rank, too."""
    options = ("--nproc-per-node", "3", "--max-restarts", "1", "--stopped-timeout", "0.5")
    job = Job(tmp_path, SCRIPT, *options)
    ended = job.wait(90)
    job.all_gone()
    assert ended.code == CODE == 147, ended.err
    assert ended.err.count("rank 1 does not move: state T (stopped)") == 2
    assert "rank 1 failed (stopped: state T (stopped) for 0." in ended.err
    headline = ended.err[ended.err.index("Root Cause") :]
    assert "rank      : 1 " in headline and "stopped: state T (stopped)" in headline
    assert "rank 0: PeerFailed" in headline and "rank 1 failed: stopped: state T" in headline


def test_a_job_is_suspended_and_goes_on(tmp_path):
    """Ctrl-Z, which reaches the front process alone, and `fg`."""
    script = SCRIPT.replace("step == 50", "False").replace("step == 100", "x[0] > 0")
    script = script.replace("dist.all_r", "x.fill_(float(os.path.exists('end')))\n    dist.all_r")
    job = Job(tmp_path, script, "--nproc-per-node", "2", "--stopped-timeout", "0.5")
    until(lambda: len(list(tmp_path.glob("up.*"))) == 2, "ranks to run")
    ranks = [int(path.suffix[1:]) for path in tmp_path.glob("up.*")]
    os.kill(job.process.pid, signal.SIGTSTP)
    stopped = [job.process.pid, *ranks]
    until(lambda: all(state(pid) == "T" for pid in stopped), "all to be stopped")
    time.sleep(0.8)  # longer than a rank alone may be
    os.kill(job.process.pid, signal.SIGCONT)
    until(lambda: all(state(pid) in "RS" for pid in ranks), "ranks to go on")
    (tmp_path / "end").touch()
    assert job.wait().code == 0
    job.all_gone()


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]
