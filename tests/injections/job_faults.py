#!/usr/bin/env python3
"""Let one rank of a job fail in every way, at every point, on every transport, and look at what
all others see of it and at what is left behind.

    PYTHONPATH=.:scripts:tests python -m injections.job_faults --simulated 1000 --real 100
    PYTHONPATH=.:scripts:tests python -m injections.job_faults --real 300 --write # docs/failures.md

Each trial starts a job, real or simulated, in which one rank is struck (``job_kinds``). Every other
one must see the specified error, naming that rank, in the specified time, and be able to go on as
specified; or the job must end with the specified code and name it. Afterwards no process, no
descriptor, no file and no piece of shared memory may be left of any of it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disttrain.lifetime import adopt_orphans
from disttrain_launcher.node.mpi import find_mpiexec
from disttrain_launcher.worker.processes import descendants
from injections import memory_limit
from injections.job_kinds import (
    AGAIN,
    KINDS,
    NOTHING,
    SHRINK,
    TOLD_LATER,
    Kind,
    Seen,
    Trial,
    points_of,
)
from injections.job_transports import OURS, PATIENCE, TRANSPORTS
from support import namespaces

RANKS = 3
SLACK = 1.5  # a loaded machine may take so much longer, and
LATE = 1.0  # so many seconds more
FOREIGN = ("sem.", "psm_", "torch_", "mpich_", "ucx_", "vader_")  # of programs that may run beside
DOC = Path(__file__).parents[2] / "docs" / "failures.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


# -- one trial -------------------------------------------------------------------------------------


@contextmanager
def quiet(path: Path) -> Iterator[None]:
    """Standard error goes to a file."""
    sys.stderr.flush()
    kept, fd = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(fd)


def held() -> dict[str, object]:
    """What this process and the machine have of jobs."""
    gc.collect()
    names = {n for n in os.listdir("/dev/shm") if not n.startswith(FOREIGN)}
    return {
        "processes": set(descendants(os.getpid())),
        "files in /dev/shm": names,
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def run_trial(transport: str, trial: Trial, base: Path) -> tuple[list[Seen], list[str]]:
    """What the others saw, and all that is wrong."""
    folder = Path(tempfile.mkdtemp(dir=base))
    before, began = held(), time.monotonic()
    with quiet(base / "stderr"):
        seen, wrong = TRANSPORTS[transport].run(trial, folder)
    memory_limit.remove(trial.name)
    complaints = [wrong] if wrong else []
    if time.monotonic() - began > PATIENCE:
        complaints.append(f"took {time.monotonic() - began:.0f} s")
    after = held()
    for what, now in after.items():
        if now != before[what]:
            complaints.append(f"{what} before: {before[what]}, after: {now}")
    extra = {p.name for p in folder.iterdir()} - set(OURS)
    complaints += [f"left over: {name}" for name in sorted(extra)]
    return seen, complaints + judge(transport, trial, seen)


def judge(transport: str, trial: Trial, seen: list[Seen]) -> list[str]:
    """How what was seen differs from the specification."""
    kind = KINDS[trial.kind]
    if transport == "mpiexec" and kind.is_end_under_mpiexec:
        return []
    sees, cause = kind.seen_on(transport)
    others = {r for r in range(trial.ranks) if r != trial.victim}
    wrong = [f"rank {r} said nothing" for r in sorted(others - {s.rank for s in seen})]
    if all(s.error == "GroupRevoked" for s in seen if s.rank in others):
        wrong.append("nobody has heard of the failure itself")
    for s in seen:
        if s.rank == trial.victim and kind.sees not in ("", "CollectiveMismatch"):
            continue
        # another rank has found it first, and asks all to go on
        first = transport in TOLD_LATER or "CollectiveMismatch" in kind.sees
        if s.error == "GroupRevoked" and first and trial.recover and s.usable:
            continue
        if sees != s.error and s.error not in sees.split("|"):
            wrong.append(f"rank {s.rank} saw {s.error or 'nothing'}: {s.text}")
            continue
        if not re.search(cause.format(victim=trial.victim), s.text):
            wrong.append(f"rank {s.rank} was told: {s.text}")
        # whom a mismatch does not concern hears of who has raised it, who hears of the victim
        echo = "CollectiveMismatch" in sees and "failed: CollectiveMismatch" in s.text
        if s.error == "PeerFailed" and s.named != trial.victim and not echo:
            wrong.append(f"rank {s.rank} was told of rank {s.named}: {s.text}")
        if trial.kind == "raises" and "in strike" not in s.traceback:
            wrong.append(f"rank {s.rank} has no traceback of rank {trial.victim}")
        if s.seconds > kind.seconds(transport) * SLACK + LATE:
            wrong.append(f"rank {s.rank} was told after {s.seconds:.2f} s")
        if trial.recover and not s.usable:
            wrong.append(f"rank {s.rank} could not do what it may ({kind.after}): {s.said}")
    return wrong


def why_not(transport: str, kind: str) -> str:
    """What this machine lacks for it; empty where nothing."""
    if transport in ("mpi", "mpiexec") and find_mpiexec() is None:
        return "there is no mpiexec"
    if transport == "net" and (missing := namespaces.why_not()):
        return missing
    return memory_limit.why_not() if kind == "over_limit" else ""


def kinds_of(transport: str) -> dict[str, Kind]:
    """The kinds that can be tried there on this machine."""
    here = {name: kind for name, kind in KINDS.items() if transport in kind.transports}
    return {name: kind for name, kind in here.items() if not why_not(transport, name)}


def trials(transport: str, count: int, seed: int) -> Iterator[Trial]:
    """``count`` of them: all kinds in turn, each at its next point."""
    way, kinds = TRANSPORTS[transport], kinds_of(transport)
    points = {}
    for name in kinds:
        all_ = [p for p in points_of(name) if way.real or p != "any moment"]
        points[name] = itertools.cycle(all_[seed % len(all_) :] + all_[: seed % len(all_)])
    for i, kind in enumerate(itertools.islice(itertools.cycle(kinds), count)):
        after = KINDS[kind].after
        recover = after == NOTHING or (i // len(kinds) + i + seed) % 2 == 0
        ends_there = kind == "crossed" and not way.real  # a simulation, in which nobody can go on
        if (not way.shrinks and after in (SHRINK, AGAIN)) or ends_there:
            recover = False
        number = seed * 100_000 + i
        victim = (number * 7 + i // len(kinds)) % RANKS
        yield Trial(kind, next(points[kind]), victim, RANKS, number, recover, not way.real)


def run(transport: str, count: int, seed: int, base: Path) -> tuple[dict, list[str]]:
    """Trials on a transport: after how many seconds ranks were told, by kind; complaints."""
    seconds, complaints = defaultdict(list), []
    for trial in trials(transport, count, seed):
        seen, wrong = run_trial(transport, trial, base)
        head = f"{transport}: {trial}: "
        complaints += [head + text for text in wrong]
        seconds[trial.kind] += [s.seconds for s in seen if s.error and s.rank != trial.victim]
    return dict(seconds), complaints


# -- the table -------------------------------------------------------------------------------------


def table(measured: dict[str, dict]) -> str:
    """The specification and what was measured, in Markdown."""
    lines = [
        "| one rank ... | the others get | saying | within | then usable | exit code | "
        + " | ".join(f"{t} (ms)" for t in measured) + " |",
        "|" + "---|" * (6 + len(measured)),
    ]  # fmt: skip
    for name, kind in KINDS.items():
        cells = [kind.title, kind.sees.replace("|", " or ") or "nothing",
                 kind.cause.format(victim="N").replace("\\", "").replace("|", " or "),
                 _within(kind), kind.after, str(kind.code)]  # fmt: skip
        if kind.only_ended:
            cells[1] += f"; {', '.join(kind.only_ended)}: or CollectiveMismatch"
            cells[2] += "; has ended its program"
        for transport, results in measured.items():
            times = [1e3 * s for s in results.get(name, ())]
            cell = f"{statistics.median(times):.1f} / {max(times):.1f}" if times else "-"
            ended = transport == "mpiexec" and kind.is_end_under_mpiexec
            cells.append("ends the job" if ended else cell)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _within(kind: Kind) -> str:
    if not kind.sees:
        return ""
    between = f"; {kind.between:g} s between hosts" if kind.between is not None else ""
    return f"{kind.within:g} s{between}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulated", type=int, default=0, help="trials on simulated ranks")
    parser.add_argument("--real", type=int, default=0, help="trials on processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds, as raises,killed")
    parser.add_argument("--transports", default="", help="as shm,mpi; all of them without it")
    parser.add_argument("--keep", default="", help="a file of results: earlier ones are used, too")
    parser.add_argument("--write", action="store_true", help="put the table into docs/failures.md")
    options = parser.parse_args()
    for name in set(KINDS) - set(options.only.split(",")) if options.only else ():
        del KINDS[name]
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = Path(options.keep) if options.keep else None
    measured = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    complaints = []
    names = options.transports.split(",") if options.transports else list(TRANSPORTS)
    with tempfile.TemporaryDirectory() as base:
        for name in names:
            real = TRANSPORTS[name].real
            alike = [other for other in names if TRANSPORTS[other].real == real]
            count = -(-(options.real if real else options.simulated) // len(alike))
            if not count:
                continue
            began = time.monotonic()
            measured[name], wrong = run(name, count, options.seed, Path(base))
            complaints += wrong
            print(f"{name}: {count} trials, {len(wrong)} complaints, "
                  f"{time.monotonic() - began:.1f} s", flush=True)  # fmt: skip
            if kept is not None:
                kept.write_text(json.dumps(measured))
    for text in complaints:
        print(text)
    text = table({name: measured[name] for name in TRANSPORTS if name in measured})
    print(text)
    if options.write:
        before, after = DOC.read_text().split(BEGIN)[0], DOC.read_text().split(END)[1]
        DOC.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
