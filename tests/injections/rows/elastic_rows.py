"""Rows about jobs that go on without ranks, and with ranks that come."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

from injections.rows.jobs import Experiment, Step
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import Spec

VICTIM = 2
EVERY = 5.0  # seconds between two kills
SOAK = 200.0


def by_process(steps: list[Step]) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for step in steps:
        found.setdefault(step.pid, []).append(step)
    return found


def lost(steps: list[Step]) -> int:
    """Steps that a process which lives on had finished, and made again."""
    return sum(
        max(0, a.number + 1 - b.number)
        for mine in by_process(steps).values()
        for a, b in pairwise(mine)
    )


def joined(trial: Trial) -> Seen:
    """R4."""
    with Experiment(trial) as it:
        job = it.start(Spec(elastic=True), "--replace-ranks", "--max-restarts", "1")
        if it.ready(steps=10):
            before = set(it.pids().values())
            it.kill(it.pids()[VICTIM])
            until = time.monotonic() + 10.0
            while time.monotonic() < until and not {s.pid for s in it.after(world=4)} - before:
                time.sleep(0.02)
            time.sleep(0.2)
            new = [step for step in it.after(world=4) if step.pid not in before]
            it.seen.expect(new, f"nobody has joined: {it.words()}")
            if new:
                it.seen.values["first step"] = new[0].when - it.struck
                mine = by_process(it.steps())
                gaps = [
                    b.when - a.when
                    for pid in before
                    for a, b in pairwise(mine[pid])
                    if a.world == 3 and b.world == 4
                ]
                it.seen.values["others' gap"] = max(gaps)
                it.seen.values["steps lost"] = lost(it.steps())
                weights: dict[int, set[int]] = {}
                for step in it.after(world=4):
                    weights.setdefault(step.number, set()).add(step.weights)
                same = all(len(w) == 1 for w in weights.values())
                it.seen.expect(same, "the weights differ")
            os.kill(job.pid, signal.SIGTERM)
            job.wait()
        return it.result()


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def soak(trial: Trial) -> Seen:
    """R33: goodput is how many steps were made of those that would have been made without a fault,
    at the pace of the first seconds."""
    seconds = 20.0 if trial.quick else SOAK
    chance = random.Random(trial.number)
    with Experiment(trial) as it:
        job = it.start(Spec(elastic=True), "--replace-ranks", "--max-restarts", "100000")
        if it.ready(steps=150):
            began = it.steps()
            first = [s for s in began if s.rank == 0][20:]
            pace = (first[-1].when - first[0].when) / (len(first) - 1)
            keeper = it.pids()[0]
            memory, start, kills = _rss(keeper), time.monotonic(), 0
            done = max(s.number for s in began)
            while (passed := time.monotonic() - start) < seconds:
                time.sleep(max(0.0, min(EVERY * (kills + 1), seconds) - passed))
                if job.runs() and time.monotonic() - start < seconds - 1.0:
                    pid = it.pids()[chance.randrange(1, 4)]
                    if pid != keeper:
                        os.kill(pid, signal.SIGKILL)
                kills += 1
            passed = time.monotonic() - start
            steps = it.steps()
            made = max(s.number for s in steps) - done
            it.seen.values["least goodput"] = round(100 * made * pace / passed, 1)
            it.seen.values["steps lost"] = lost(steps)
            it.seen.expect(job.runs(), f"the job has ended: {job.said()[-300:]}")
            if job.runs():
                it.seen.values["memory"] = round(100 * (_rss(keeper) / memory - 1), 1)
                os.kill(job.pid, signal.SIGTERM)
            job.wait()
        return it.result()


ROWS = [
    Row(
        "R4", "SIGKILL of one of 4 ranks, `--replace-ranks`: another one joins in its place",
        "its first step within 1.5 s of the kill; the others' gap when it joins 0.10 s; equal "
        "weights, no step lost",
        "torchft 2.33 s and 0.06 s; torchrun 10.5 s with all restarted",
        joined, {"first step": 1.5, "others' gap": 0.1, "steps lost": 0}, {"steps lost": ""},
    ),
    Row(
        "R33", "SIGKILL of one rank every 5 s for 10 min (three jobs), `--replace-ranks`",
        "85 % of the steps without faults, none that was committed lost, memory of who stays at "
        "most 5 % more",
        "torchft below 50 %, torchrun below 40 % (from their times)",
        soak, {"least goodput": 85.0, "steps lost": 0, "memory": 5.0},
        {"least goodput": " %", "steps lost": "", "memory": " %"}, trials=3,
    ),
]  # fmt: skip
