#!/usr/bin/env python3
"""Let one rank of a job fail in every way, at every point, on every transport, and look at what
all others see of it and at what is left behind.

    PYTHONPATH=.:scripts python -m faults.job_faults --simulated 1000 --real 100
    PYTHONPATH=.:scripts python -m faults.job_faults --real 300 --write     (docs/failures.md, too)

Each trial starts a job, real or simulated, in which one rank is struck (``job_kinds``). Every other
one must see the specified error, naming that rank, in the specified time, and be able to go on as
specified; or the job must end with the specified code and name it. Afterwards no process, no
descriptor, no file and no piece of shared memory may be left of any of it.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import itertools
import json
import mmap
import os
import re
import resource
import statistics
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.sim.cluster import run_tasks
from disttrain.lifetime import adopt_orphans
from faults.job_kinds import (
    AGAIN,
    KINDS,
    NOTHING,
    SAME,
    SHRINK,
    Seen,
    Trial,
    points_of,
    take_part,
)
from launcher.api import SIGNALS, run_in_agent
from launcher.plan import Plan, reserve_port
from launcher.processes import descendants, kill_descendants

RANKS = 3
PATIENCE = 30.0  # a job that takes longer hangs
SLACK = 1.5  # a loaded machine may take so much longer, and
LATE = 1.0  # so many seconds more
FOREIGN = ("sem.", "psm_", "torch_", "mpich_")  # of programs that may run beside
DOC = Path(__file__).parents[2] / "docs" / "failures.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


class Board:
    """When the fault struck; what each rank saw."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.reader, self.writer = os.pipe()

    def struck(self) -> None:
        self._memory[:] = struct.pack("<d", time.monotonic())

    def since(self) -> float:
        (at,) = struct.unpack("<d", self._memory[:])
        return time.monotonic() - at if at else 0.0

    def tell(self, seen: Seen) -> None:
        seen.traceback, seen.text = seen.traceback[-600:], seen.text[-1500:]
        os.write(self.writer, json.dumps(seen.as_dict()).encode() + b"\n")

    def read(self) -> list[Seen]:
        os.close(self.writer)
        with open(self.reader, encoding="utf-8") as lines:
            return [Seen(**json.loads(line)) for line in lines]


# -- transports ------------------------------------------------------------------------------------


def under_launcher(trial: Trial, folder: Path) -> tuple[list[Seen], str]:
    """Processes that dtrun starts: (what they saw, what is wrong with how the job ended)."""
    board = Board()

    def body(rank: int) -> bytes:
        dist.init_process_group()
        take_part(trial, board.struck, board.since, board.tell)
        return b"done"

    with reserve_port() as holder:
        plan = Plan(
            ("matrix",), trial.ranks, signals=SIGNALS, shown=(), log_dir=str(folder / "log"),
            min_ranks=1 if trial.recover else 0, master_port=holder.getsockname()[1],
        )  # fmt: skip
        attempt = run_in_agent(plan, body)
    kind, seen = KINDS[trial.kind], board.read()
    if trial.recover:
        wrong = f"exit code {attempt.code}" if attempt.code and kind.after not in (SAME,) else ""
        return seen, wrong
    first = -1 if attempt.first is None else attempt.first.rank
    wrong = "" if attempt.code == kind.code else f"exit code {attempt.code}, not {kind.code}"
    report = json.loads((folder / "log" / "report.json").read_text())
    if kind.sees == "PeerFailed" and first != trial.victim:
        wrong += f"; the job's root cause is rank {first}"
    if report["exitcode"] != attempt.code:
        wrong += f"; report.json says exit code {report['exitcode']}"
    return seen, wrong


def by_environment(trial: Trial, folder: Path, backend: str = "gloo") -> tuple[list[Seen], str]:
    """Processes that nobody launched, which find each other through a file."""
    board = Board()
    pids = [_fork(rank, trial, board, folder, backend) for rank in range(trial.ranks)]
    deadline, left = time.monotonic() + PATIENCE, set(pids)
    while left and time.monotonic() < deadline:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        if left == {pids[trial.victim]} and trial.kind == "stopped":
            break  # nobody else ends it, unless others go on without it
        time.sleep(0.002)
    hang = f"processes {left} hang" if left and trial.kind != "stopped" else ""
    kill_descendants(set(), 2.0)
    return board.read(), hang


def over_sockets(trial: Trial, folder: Path) -> tuple[list[Seen], str]:
    """The same over TCP, each rank as if on a host of its own."""
    return by_environment(trial, folder, "tcp")


def _fork(rank: int, trial: Trial, board: Board, folder: Path, backend: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        context.begin_anew()
        atexit._clear()
        url = f"file://{folder}/store"
        dist.init_process_group(backend, url, rank=rank, world_size=trial.ranks)
        take_part(trial, board.struck, board.since, board.tell)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException as error:
        traceback.print_exc()
        sys.last_type, sys.last_value = type(error), error  # as Python does
    finally:
        try:
            atexit._run_exitfuncs()
        finally:
            os._exit(code)


def simulated(trial: Trial, folder: Path) -> tuple[list[Seen], str]:
    """Threads under a seeded scheduler."""
    told: list[Seen] = []
    clock: list[float] = []

    def body() -> None:
        dist.init_process_group()
        take_part(
            trial,
            lambda: clock.append(context.now()),
            lambda: context.now() - clock[0] if clock else 0.0,
            told.append,
        )

    scheduler = run_tasks(body, trial.ranks, trial.seed)
    wrong = [t.text for t in scheduler.tasks if t.error is not None and t.rank != trial.victim]
    return told, wrong[0] if wrong and trial.recover else ""


TRANSPORTS: dict[str, Callable[[Trial, Path], tuple[list[Seen], str]]] = {
    "shm": under_launcher,
    "env": by_environment,
    "tcp": over_sockets,
    "sim": simulated,
}

NO_SHRINK = ("tcp",)  # these cannot go on without a rank
FAR = {"tcp": 3.5}  # what a rank has said may be on its way for so many seconds


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
        seen, wrong = TRANSPORTS[transport](trial, folder)
    complaints = [wrong] if wrong else []
    if time.monotonic() - began > PATIENCE:
        complaints.append(f"took {time.monotonic() - began:.0f} s")
    after = held()
    for what, now in after.items():
        if now != before[what]:
            complaints.append(f"{what} before: {before[what]}, after: {now}")
    extra = {p.name for p in folder.iterdir()} - {"log", "store", "store.lock"}
    complaints += [f"left over: {name}" for name in sorted(extra)]
    return seen, complaints + judge(transport, trial, seen)


def judge(transport: str, trial: Trial, seen: list[Seen]) -> list[str]:
    """How what was seen differs from the specification."""
    kind = KINDS[trial.kind]
    others = {r for r in range(trial.ranks) if r != trial.victim}
    wrong = [f"rank {r} said nothing" for r in sorted(others - {s.rank for s in seen})]
    for s in seen:
        if s.rank == trial.victim and kind.sees not in ("", "CollectiveMismatch"):
            continue
        revoked = s.error == "GroupRevoked" and "CollectiveMismatch" in kind.sees and trial.recover
        if revoked and s.usable:  # another rank has found it first, and gone on
            continue
        if kind.sees != s.error and s.error not in kind.sees.split("|"):
            wrong.append(f"rank {s.rank} saw {s.error or 'nothing'}: {s.text}")
            continue
        if not re.search(kind.cause.format(victim=trial.victim), s.text):
            wrong.append(f"rank {s.rank} was told: {s.text}")
        if s.error == "PeerFailed" and s.named != trial.victim:
            wrong.append(f"rank {s.rank} was told of rank {s.named}: {s.text}")
        if trial.kind == "raises" and "in strike" not in s.traceback:
            wrong.append(f"rank {s.rank} has no traceback of rank {trial.victim}")
        if s.seconds > max(kind.within, FAR.get(transport, 0.0)) * SLACK + LATE:
            wrong.append(f"rank {s.rank} was told after {s.seconds:.2f} s")
        if trial.recover and not s.usable:
            wrong.append(f"rank {s.rank} could not do what it may ({kind.after}): {s.said}")
    return wrong


def trials(transport: str, count: int, seed: int) -> Iterator[Trial]:
    """``count`` of them, kinds and points in turn."""
    plans = [
        (kind, point)
        for kind, spec in KINDS.items()
        if transport in spec.transports
        for point in points_of(kind)
        if not (transport == "sim" and point == "any moment")
    ]
    for i, (kind, point) in enumerate(itertools.islice(itertools.cycle(plans), count)):
        after = KINDS[kind].after
        recover = after == NOTHING or (i + i // len(plans) + seed) % 2 == 0
        if transport in NO_SHRINK and after in (SHRINK, AGAIN):
            recover = False
        number = seed * 100_000 + i
        yield Trial(kind, point, number * 7 % RANKS, RANKS, number, recover, transport == "sim")


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
        + " | ".join(f"{t}: told after, median / most (ms)" for t in measured) + " |",
        "|" + "---|" * (6 + len(measured)),
    ]  # fmt: skip
    for name, kind in KINDS.items():
        cells = [kind.title, kind.sees.replace("|", " or ") or "nothing",
                 kind.cause.format(victim="N").replace("\\", "").replace("|", " or "),
                 f"{kind.within:g} s" if kind.sees else "", kind.after, str(kind.code)]  # fmt: skip
        for results in measured.values():
            times = [1e3 * s for s in results.get(name, ())]
            cells.append(f"{statistics.median(times):.1f} / {max(times):.1f}" if times else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulated", type=int, default=0, help="trials on simulated ranks")
    parser.add_argument("--real", type=int, default=0, help="trials on processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds, as raises,killed")
    parser.add_argument("--write", action="store_true", help="put the table into docs/failures.md")
    options = parser.parse_args()
    for name in set(KINDS) - set(options.only.split(",")) if options.only else ():
        del KINDS[name]
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    real = [name for name in TRANSPORTS if name != "sim"]
    measured, complaints = {}, []
    with tempfile.TemporaryDirectory() as base:
        for name in TRANSPORTS:
            count = options.real // len(real) if name in real else options.simulated
            began = time.monotonic()
            measured[name], wrong = run(name, count, options.seed, Path(base))
            complaints += wrong
            print(f"{name}: {count} trials, {len(wrong)} complaints, "
                  f"{time.monotonic() - began:.1f} s", flush=True)  # fmt: skip
    for text in complaints:
        print(text)
    text = table(measured)
    print(text)
    if options.write:
        before, after = DOC.read_text().split(BEGIN)[0], DOC.read_text().split(END)[1]
        DOC.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
