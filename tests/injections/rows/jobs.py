"""Jobs of the table: dtrun on ``step_job``, as a user starts it, and what its ranks wrote down."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from injections.rows.hygiene import MARK, SOON, Census, marked, report_of
from injections.rows.row import Seen, Trial
from injections.rows.step_job import STEP, Spec

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("step_job.py")
PATIENCE = 60.0  # a job that takes longer hangs
OURS = {"log", "said", "saved", "struck", "tmp", "run"}
_UNWANTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Step:
    """A step that a rank has finished."""

    when: float
    rank: int
    restarts: int
    world: int
    number: int
    weights: int  # a checksum
    pid: int


class Job:
    """One dtrun. ``node``: for the names of its files, where a trial has several; ``enter``: called
    in its process before it begins."""

    def __init__(
        self, trial: Trial, spec: Spec, *flags: str, ranks: int = 4, node: str = "",
        env: dict[str, str] | None = None, enter: Callable[[], None] | None = None,
        before: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.folder, self.node, self.ranks = trial.folder, node, ranks
        self.log = trial.folder / f"log{node}"
        self._said = (trial.folder / f"said{node}").open("wb")
        for name in ("tmp", "run"):
            (trial.folder / name).mkdir(mode=0o700, exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if k not in _UNWANTED}
        inherited |= {
            MARK: trial.folder.name, "TMPDIR": str(trial.folder / "tmp"), "OMP_NUM_THREADS": "1",
            "XDG_RUNTIME_DIR": str(trial.folder / "run"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}:{ROOT / 'tests'}",
        }  # fmt: skip
        command = [*before, sys.executable, "-m", "disttrain_launcher",
                   "--nproc-per-node", str(ranks), "--log-dir", str(self.log), *flags,
                   str(PROGRAM), str(trial.folder), spec.to_json()]  # fmt: skip
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=trial.folder, env=inherited | (env or {}), stdin=subprocess.DEVNULL,
            stdout=self._said, stderr=self._said, preexec_fn=enter, start_new_session=True,
        )  # fmt: skip
        self.pid = self.process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self.ended = 0.0  # when

    def said(self) -> str:
        return (self.folder / f"said{self.node}").read_text(errors="replace")

    def wait(self, seconds: float = PATIENCE) -> int:
        """Until it has ended: its exit code, or -1 where it has not in time, and was killed."""
        if not self.runs(seconds):
            return self.process.wait()
        self.kill()
        return -1

    def runs(self, seconds: float = 0.0) -> bool:
        """Whether it still does, after so long."""
        if not self.ended and select.select([self._pidfd], [], [], seconds)[0]:
            self.ended = time.monotonic()
        return not self.ended

    def kill(self) -> None:
        """It, and all that the trial has started."""
        for pid in marked(self.folder.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.ended = self.ended or time.monotonic()

    def close(self) -> None:
        if not self._said.closed:
            if self.runs():
                self.kill()
            self.process.wait()
            self._said.close()
            os.close(self._pidfd)


class Experiment:
    """A trial that runs jobs: what they did, and whether they have left anything."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.folder, self.seen = trial, trial.folder, Seen()
        self.jobs: list[Job] = []
        self.struck = 0.0  # when
        self._census = Census(trial.folder.name, trial.folder)

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *exc: object) -> None:
        for job in self.jobs:
            job.close()

    def start(self, spec: Spec, *flags: str, **how: Any) -> Job:
        job = Job(self.trial, spec, *flags, **how)
        self.jobs.append(job)
        return job

    # --- what ranks wrote down -------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """All steps of all processes, by time."""
        found = []
        for path in self.folder.glob("steps-*"):
            data, pid = path.read_bytes(), int(path.name.rpartition("-")[2])
            whole = data[: len(data) // STEP.size * STEP.size]
            found += [Step(*row, pid) for row in STEP.iter_unpack(whole)]
        return sorted(found, key=lambda step: step.when)

    def told(self) -> dict[int, dict]:
        """What each rank was told of a failure, by rank."""
        found = [json.loads(p.read_text()) for p in self.folder.glob("told-*") if p.stat().st_size]
        return {said["rank"]: said for said in found}

    def pids(self) -> dict[int, int]:
        """The processes that made the last steps."""
        return {step.rank: step.pid for step in self.steps()}

    def ready(self, ranks: int = 4, steps: int = 5, seconds: float = PATIENCE) -> bool:
        """Wait until every rank has made so many steps in one world; whether they have."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            done = {(s.rank, s.world) for s in self.steps() if s.number >= steps}
            if {(rank, ranks) for rank in range(ranks)} <= done:
                self._census.note_ports()
                return True
            if not any(job.runs() for job in self.jobs):
                break
            time.sleep(0.01)
        self.seen.wrong.append(f"the job has not begun: {self.words()}")
        return False

    def left(self) -> list[int]:
        """The processes that the trial has started and that still run."""
        return marked(self.folder.name)

    def words(self) -> str:
        """The last that the launchers have said."""
        return " // ".join(job.said()[-600:] for job in self.jobs)

    # --- what is done to it ----------------------------------------------------------------------

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Strike: from now on time is counted."""
        self.struck = time.monotonic()
        os.kill(pid, number)

    def struck_itself(self) -> None:
        """A rank has written down when it strikes itself."""
        path = self.folder / "struck"
        if path.exists():
            self.struck = float(path.read_text())
        else:
            self.seen.wrong.append(f"nobody was struck: {self.words()}")

    # --- what came of it -------------------------------------------------------------------------

    def after(self, **which: int) -> list[Step]:
        """The steps that were finished since, of those for which ``which`` holds."""
        return [
            step for step in self.steps()
            if step.when > self.struck and all(getattr(step, k) == v for k, v in which.items())
        ]  # fmt: skip

    def hear(self, victim: int, ranks: int = 4) -> None:
        """All others are told, of the right one."""
        told = self.told()
        for rank in set(range(ranks)) - {victim}:
            said = told.get(rank)
            if said is None:
                self.seen.wrong.append(f"rank {rank} was told nothing")
            elif said["type"] != "PeerFailed" or said["named"] != victim:
                self.seen.wrong.append(f"rank {rank} was told {said['type']}: {said['text'][:200]}")
        late = [said["time"] - self.struck for rank, said in told.items() if rank != victim]
        if late:
            self.seen.values["told"] = max(late)

    def end(self, job: Job, *codes: int, seconds: float = PATIENCE) -> None:
        """The job ends with one of these exit codes."""
        code = job.wait(seconds)
        if self.struck:
            self.seen.values["ended"] = job.ended - self.struck
        if code not in codes:
            says = "does not end" if code == -1 else f"ended with {code}, not {codes}"
            self.seen.wrong.append(f"the launcher {says}: {job.said()[-300:]}")

    def blame(self, job: Job, rank: int, *words: str) -> None:
        """Its report names ``rank``, and one of ``words`` in the cause."""
        root, wrong = report_of(job.log, job.process.returncode)
        self.seen.wrong += wrong
        if root and root.get("rank") != rank:
            self.seen.wrong.append(f"report.json blames rank {root.get('rank')}: {root['cause']}")
        elif root and words and not any(word in root["cause"] for word in words):
            self.seen.wrong.append(f"report.json says: {root['cause']}")

    def result(self, known: Iterable[str] = (), seconds: float = SOON) -> Seen:
        """After all jobs have ended: what was seen, and what is left."""
        for path in (self.folder / "run").glob("disttrain/*"):  # by which others find running jobs
            self.seen.expect("run" in known, f"H2: {path.name} is left")
        for job in self.jobs:
            if job.runs():
                self.seen.wrong.append("a launcher still runs")
            job.close()
        for path in [*self.folder.glob("steps-*"), *self.folder.glob("told-*")]:
            path.unlink()
        left = {p.name for p in (self.folder / "tmp").iterdir()}
        self.seen.wrong += [f"H2: $TMPDIR/{name} is left" for name in sorted(left)]
        nodes = {f"{name}{job.node}" for job in self.jobs for name in ("log", "said")}
        self.seen.wrong += self._census.complaints(OURS | nodes | set(known), seconds)
        return self.seen
