"""Rows about ranks of one host that end, are stopped, or only look as if."""

from __future__ import annotations

import os
import signal
import time

from injections.rows.jobs import Experiment
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import WORDS, Spec

VICTIM = 2


def killed(trial: Trial) -> Seen:
    with Experiment(trial) as it:
        job = it.start(Spec())
        if it.ready():
            it.kill(it.pids()[VICTIM])
            it.end(job, 137)
            it.hear(VICTIM)
            it.blame(job, VICTIM, "SIGKILL")
        return it.result()


def restarted(trial: Trial) -> Seen:
    """R2."""
    with Experiment(trial) as it:
        job = it.start(Spec(save_every=EVERY, steps=30), "--max-restarts", "1")
        if it.ready(steps=EVERY + 3):
            last = max(step.number for step in it.steps())
            it.kill(it.pids()[VICTIM])
            code = job.wait()
            it.seen.expect(code == 0, f"the restarted job ended with {code}: {job.said()[-300:]}")
            again = it.after(restarts=1)
            if again:
                it.seen.values["first step"] = again[0].when - it.struck
                it.seen.values["steps lost"] = max(0, last + 1 - again[0].number)
        return it.result()


EVERY = 5  # steps between checkpoints


def shrunk(trial: Trial) -> Seen:
    """R3."""
    with Experiment(trial) as it:
        job = it.start(Spec(shrink=True, steps=30), "--min-ranks", "2")
        if it.ready(steps=10):
            it.kill(it.pids()[VICTIM])
            code = job.wait()
            it.seen.expect(code == 0, f"the survivors ended with {code}: {job.said()[-300:]}")
            go_on(it)
        return it.result()


def go_on(it: Experiment, world: int = 3) -> None:
    """The survivors' longest gap, no step that one of them had finished lost, equal weights."""
    by_pid: dict[int, list] = {}
    for step in it.steps():
        by_pid.setdefault(step.pid, []).append(step)
    gaps, lost = [], []
    for steps in by_pid.values():
        later = [s for s in steps if s.when > it.struck and s.world == world]
        before = [s for s in steps if s not in later]
        if later and before:
            gaps.append(later[0].when - before[-1].when)
            lost.append(before[-1].number + 1 - later[0].number)
    it.seen.expect(len(gaps) == world, f"{len(gaps)} of {world} survivors went on")
    if gaps:
        it.seen.values |= {"longest gap": max(gaps), "steps lost": max(0, *lost)}
    weights: dict[int, set[int]] = {}
    for step in it.after(world=world):
        weights.setdefault(step.number, set()).add(step.weights)
    it.seen.expect(all(len(w) == 1 for w in weights.values()), "the survivors' weights differ")


def stopped(trial: Trial) -> Seen:
    """R5: what is the default, and with a restart."""
    with Experiment(trial) as it:
        restart = bool(trial.number % 2)
        flags = ("--max-restarts", "1") if restart else ()
        spec = Spec(save_every=EVERY, steps=30) if restart else Spec()
        job = it.start(spec, *flags)
        if it.ready(steps=EVERY + 1):
            it.kill(it.pids()[VICTIM], signal.SIGSTOP)
            if restart:
                code = job.wait()
                it.seen.expect(code == 0, f"the restarted job ended with {code}")
                again = it.after(restarts=1)
                if again:
                    it.seen.values["resumed"] = again[0].when - it.struck
                it.hear(VICTIM)
            else:
                it.end(job, 128 + signal.SIGSTOP)
                it.hear(VICTIM)
                it.blame(job, VICTIM, "state T (stopped)")
        return it.result()


# -- what looks like a failure ---------------------------------------------------------------------


def false_alarms(trial: Trial) -> Seen:
    """R6: stops of 1 s every 5 s, a rank that keeps its interpreter's lock, more ranks than
    processors: nobody is killed, and a warning names the rank that stood still."""
    stops, held = (4, 3.0) if trial.quick else (24, 30.0)
    with Experiment(trial) as it:
        job = it.start(Spec(), "--max-restarts", "1", ranks=4 * (os.cpu_count() or 1))
        if it.ready(ranks=job.ranks):
            pids = it.pids()
            for _ in range(stops):
                os.kill(pids[VICTIM], signal.SIGSTOP)
                time.sleep(1.0)
                os.kill(pids[VICTIM], signal.SIGCONT)
                time.sleep(4.0)
            before = len(it.steps())
            time.sleep(held)
            it.seen.expect(len(it.steps()) > before, "no step was made afterwards")
            it.seen.values["ranks lost"] = sum(pids[r] != pid for r, pid in it.pids().items())
            lines = [line for line in job.said().splitlines() if f"rank {VICTIM} " in line]
            it.seen.values["least warnings"] = len(lines)
            it.kill(job.pid, signal.SIGTERM)
            it.end(job, 143)
        return it.result()


# -- who was it? -----------------------------------------------------------------------------------

MODES = {
    "raises": (1, ("ValueError: " + WORDS,)),
    "segfaults": (139, ("SIGSEGV",)),
    "SIGKILL": (137, ("SIGKILL",)),
    "SIGABRT": (134, ("SIGABRT",)),
    "exits": (3, ("exit code 3",)),
    "hangs": (1, ()),
}


def blamed(trial: Trial) -> Seen:
    """R8: each trial is one of the modes."""
    mode = list(MODES)[trial.number % len(MODES)]
    code, words = MODES[mode]
    victim = trial.number // len(MODES) % 4
    with Experiment(trial) as it:
        timeout = 1.0 if mode == "hangs" else 0.0
        job = it.start(Spec(strike=mode, victim=victim, timeout=timeout))
        job.wait()
        it.struck_itself()
        it.end(job, code)
        if mode == "hangs":
            texts = [said["text"] for said in it.told().values()]
            named = [f"rank {victim} has not arrived" in text for text in texts]
            it.seen.expect(len(texts) == 3 and all(named), f"{mode}: {texts}")
            it.seen.expect(f"rank {victim} has not arrived" in job.said(), f"{mode}: headline")
        else:
            it.hear(victim)
            it.blame(job, victim, *words)
        if mode == "raises":
            it.seen.expect("in strike" in job.said(), "there is no Python traceback")
        it.seen.wrong = [f"{mode} of rank {victim}: {text}" for text in it.seen.wrong]
        it.seen.values.pop("ended", None)
        it.seen.values.pop("told", None)
        return it.result()


def orphans(trial: Trial) -> Seen:
    """R10: the launcher is killed; ranks, and processes that they started and detached, must go."""
    with Experiment(trial) as it:
        job = it.start(Spec(children=1))
        if it.ready():
            it.kill(job.pid)
            job.wait()
            until = it.struck + 15.0
            while it.left() and time.monotonic() < until:
                time.sleep(0.002)
            it.seen.values["all gone"] = time.monotonic() - it.struck
            it.seen.values["processes left"] = len(it.left())
        return it.result()


ROWS = [
    Row(
        "R1", "SIGKILL of one of 4 ranks, no restarts",
        "the others get `PeerFailed(rank=2)` with SIGKILL within 50 ms; `dtrun` ends within "
        "0.30 s with 137",
        "torchrun: ranks 14-29 ms, no name, ends after 0.47 s; MPICH 0.06 s, Open MPI 0.32 s",
        killed, {"told": 0.05, "ended": 0.30},
    ),
    Row(
        "R2", "the same, `--max-restarts 1`",
        "restarted 20 of 20; first step within 1.5 s; no more steps lost than between checkpoints",
        "torchrun 0 of 9; with another setting 5 of 5 after 2.97-4.20 s",
        restarted, {"first step": 1.5, "steps lost": EVERY}, {"steps lost": ""},
    ),
    Row(
        "R3", "the same, the survivors go on (`shrink()`)",
        "longest gap 0.25 s; no finished step lost; the survivors' weights are equal to the bit",
        "ULFM 0.12 s; torchft 5.06 s",
        shrunk, {"longest gap": 0.25, "steps lost": 0}, {"steps lost": ""},
    ),
    Row(
        "R5", "SIGSTOP of one rank, default settings (every second trial with a restart)",
        "found within 3 s, \"state T (stopped)\"; ended, or going on again, within 5 s",
        "torchrun: not in 45 s; with a time-out 36.3 s and the wrong rank; MPI never",
        stopped, {"told": 3.0, "ended": 5.0, "resumed": 5.0},
    ),
    Row(
        "R6", "no failure: stops of 1 s every 5 s for 2 min, then 4 ranks a processor for 30 s",
        "no rank lost, no restart, a warning that names the rank",
        "NCCL's heartbeat kills had to be put off from 2 to 10 min",
        false_alarms, {"ranks lost": 0, "least warnings": 1},
        {"ranks lost": "", "least warnings": ""}, trials=1,
    ),
    Row(
        "R8", "a rank raises, segfaults, SIGKILL, SIGABRT, `os._exit(3)`, hangs (in turn)",
        "the right rank and cause each time, a Python traceback where there is one",
        "torchrun 24 of 24 crashes, wrong for the hang",
        blamed, trials=48,
    ),
    Row(
        "R10", "SIGKILL of the launcher; each rank has children that ignore signals and detach",
        "all gone within 2 s",
        "torchrun: 8 of 8 processes still run after 15 s",
        orphans, {"all gone": 2.0, "processes left": 0}, {"processes left": ""},
    ),
]  # fmt: skip
