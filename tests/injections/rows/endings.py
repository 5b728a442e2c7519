"""Rows about jobs that are asked to end, and about limits of the machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time
from pathlib import Path

from injections import control_groups, memory_limit
from injections.rows.jobs import Experiment
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import LIMIT, Spec

VICTIM = 2
GRACE = 5.0  # dtrun's --shutdown-timeout
DEAF = ("SIGTERM", "SIGINT")


def terminated(trial: Trial) -> Seen:
    """R17: every second job saves before it ends."""
    saves = bool(trial.number % 2)
    with Experiment(trial) as it:
        job = it.start(Spec(on_term=saves), *(("--on-term", "checkpoint") if saves else ()))
        if it.ready():
            it.kill(job.pid, signal.SIGTERM)
            it.end(job, 143)
            if saves:
                last = it.steps()[-1].number
                saved = it.folder / "saved"
                there = struct.unpack_from("<q", saved.read_bytes())[0] if saved.exists() else 0
                it.seen.expect(there == last, f"step {there} was saved, {last} was the last one")
        return it.result()


def interrupted(trial: Trial) -> Seen:
    """R18: once, and the ranks obey; twice and three times, and they do not."""
    times = 1 + trial.number % 3
    with Experiment(trial) as it:
        job = it.start(Spec(ignore=() if times == 1 else DEAF))
        if it.ready():
            for turn in range(times):
                it.kill(job.pid, signal.SIGINT)
                if turn < times - 1:
                    time.sleep(0.04)
            it.end(job, 130)
            it.seen.values = {WORDS_OF[times]: it.seen.values["ended"]}
            it.seen.expect(
                "launcher/node/agent.py" not in job.said(), "a traceback of the launcher"
            )
            it.seen.expect(
                "launcher/command/front.py" not in job.said(), "a traceback of the launcher"
            )
        return it.result()


WORDS_OF = {1: "once", 2: "after the 2nd", 3: "after the 3rd"}


def deaf(trial: Trial) -> Seen:
    """R19."""
    with Experiment(trial) as it:
        job = it.start(Spec(ignore=DEAF, children=1))
        if it.ready():
            it.kill(job.pid, signal.SIGTERM)
            it.end(job, 143)
            until = time.monotonic() + 5.0
            while it.left() and time.monotonic() < until:
                time.sleep(0.002)
            it.seen.values = {"all gone": time.monotonic() - it.struck}
        return it.result()


# -- limits ----------------------------------------------------------------------------------------


def eats(trial: Trial) -> Seen:
    """R20: time counts from the moment at which the kernel kills."""
    with Experiment(trial) as it:
        job = it.start(Spec(strike="eats"))
        try:
            if it.ready(steps=5):
                pidfd = os.pidfd_open(it.pids()[VICTIM])
                select.select([pidfd], [], [], 30.0)
                it.struck = time.monotonic()
                os.close(pidfd)
                it.end(job, 137)
                it.hear(VICTIM)
                it.blame(job, VICTIM, f"limit {LIMIT >> 20} MiB")
                said = [t["text"] for r, t in it.told().items() if r != VICTIM]
                it.seen.expect(all("out of memory" in text for text in said), f"told: {said}")
        finally:
            memory_limit.remove(trial.folder.name)
        return it.result()


_PIDS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))  # of version 1, and 2


def _pids_parent() -> Path:
    return next(path for path in _PIDS if path.exists())


def why_no_pids() -> str:
    """What keeps this process from limiting the number of processes."""
    return control_groups.why_not(_pids_parent(), ("pids.max",), "count processes")


def crowded(trial: Trial) -> Seen:
    """R21: 8 ranks where 20 processes may be, which are enough, or 6, which are not."""
    most = 6 if trial.number % 2 else 20
    group = _pids_parent() / f"{control_groups.PREFIX}{trial.folder.name}"
    group.mkdir()
    (group / "pids.max").write_text(str(most))

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        with Experiment(trial) as it:
            job = it.start(Spec(steps=5), ranks=8, enter=enter)
            code = job.wait()
            said = job.said()
            if code:
                it.seen.values["failed"] = job.ended - job.began
                it.seen.expect("pids.max" in said or "ulimit -u" in said, f"says: {said[-400:]}")
                it.seen.expect("8 ranks" in said, f"does not say the number: {said[-400:]}")
                it.seen.expect("Traceback" not in said, "a traceback of the launcher")
            it.seen.expect(code or most == 20, "the job cannot have run")
            return it.result()
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


ROWS = [
    Row(
        "R17", "SIGTERM to `dtrun`; every second time with `--on-term checkpoint`",
        "ended within 0.5 s, exit code 143; the last step is saved where that was asked for",
        "torchrun 0.43 s, exit code 1",
        terminated, {"ended": 0.5},
    ),
    Row(
        "R18", "SIGINT once; twice and three times to ranks that ignore it (in turn)",
        "ended within 1 s of the last one, exit code 130, no traceback of the launcher",
        "torchrun 2.23 s; twice 31.6 s with a traceback",
        interrupted, dict.fromkeys(WORDS_OF.values(), 1.0),
    ),
    Row(
        "R19", "SIGTERM; ranks ignore it, and have children that ignore it and detach",
        f"all gone within {GRACE:g} s (`--shutdown-timeout`) and 1 s",
        "torchrun 30.6 s, and a grandchild stays",
        deaf, {"all gone": GRACE + 1.0},
    ),
    Row(
        "R20", "one rank needs more memory than its control group has",
        "the cause says out of memory and the limit; found as fast as a SIGKILL",
        "torchrun: `Signal 9`",
        eats, {"told": 0.05, "ended": 0.30}, why_not=memory_limit.why_not,
    ),
    Row(
        "R21", "8 ranks with `pids.max` 20, and 6 (in turn)",
        "fails within 2 s where it must, says the limit and how many ranks",
        "torchrun 9 s, \"Resource temporarily unavailable\"",
        crowded, {"failed": 2.0}, why_not=why_no_pids,
    ),
]  # fmt: skip
