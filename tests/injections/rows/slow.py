"""The row about a rank that is slower than the others."""

from __future__ import annotations

import os
import re
import signal
import time

from injections import cpu_limit
from injections.rows.jobs import Experiment
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import Spec

SLOW_FROM, ENOUGH = 40, 140  # steps
_NAMED = re.compile(r"rank (\d+) is a straggler: ([\d.]+) times")


def slowed(trial: Trial) -> Seen:
    """R7: every second job has no slow rank, and hears of none."""
    is_slow, victim = trial.number % 2 == 0, trial.number // 2 % 2
    with Experiment(trial) as it:
        strike = "slows" if is_slow else ""
        spec = Spec(seconds=0.0, computes=0.008, strike=strike, victim=victim, strike_at=SLOW_FROM)
        job = it.start(spec, ranks=2)
        try:
            named, steps = None, 0
            while job.runs(0.02) and named is None and steps < ENOUGH:
                named = _NAMED.search(job.said())
                steps = max((s.number for s in it.steps()), default=0)
            if is_slow:
                it.seen.expect(named, f"nobody was named: {job.said()[-300:]}")
            else:
                it.seen.expect(not named, f"named although none is slow: {named and named[0]}")
            if is_slow and named:
                it.seen.expect(int(named[1]) == victim, f"rank {named[1]} was named")
                it.seen.values |= {"steps": steps - SLOW_FROM, "times slower": float(named[2])}
            if job.runs():
                os.kill(job.pid, signal.SIGTERM)
            job.wait()
            time.sleep(0.05)
        finally:
            cpu_limit.remove(trial.folder.name)
        return it.result()


ROWS = [
    Row(
        "R7", "one of 2 ranks gets a sixth of a processor, and is 4 times slower (every second "
        "job: none does)",
        "a warning that names it and how much slower it is within 20 steps, and none where no rank "
        "is slow",
        "torchrun says nothing; Horovod after 60 s",
        slowed, {"steps": 20}, {"steps": " steps", "times slower": ""},
        why_not=cpu_limit.why_not,
    ),
]  # fmt: skip
