#!/usr/bin/env python3
"""What looks like a rank that has failed, and is none: a job must go on, and only be warned of it.

    PYTHONPATH=.:scripts:tests python -m injections.false_alarms --transport shm --ranks 8

One job lives through all phases: more ranks than processors that all compute; ranks that hold their
interpreter locks for 30 s in C; stops of 1 s, again and again; one in a debugger; a job that is
frozen as a whole, as on a machine that is suspended. Then one rank is stopped for good: the others
must be told within 3 s. Prints what was said in each phase, and how long the longest step was.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import PeerFailed
from disttrain.lifetime import adopt_orphans
from disttrain_launcher.command.launch import SIGNALS, run_in_agent
from disttrain_launcher.plan.job import Plan, reserve_port
from disttrain_launcher.worker.processes import kill_descendants
from injections.job_faults import quiet
from injections.job_transports import fork_program

FREEZER = Path("/sys/fs/cgroup/freezer")
HELD = 30  # seconds for which an interpreter lock is held
PATIENCE = 10.0  # seconds for the others to be told of the last stop, which should be 3
_ROWS = struct.Struct("<d")
_PHASE, _LONGEST, _STRUCK, _TOLD, _PIDS = 0, 1, 2, 3, 8


class Table:
    """Numbers that all processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def __getitem__(self, place: int) -> float:
        return _ROWS.unpack_from(self._memory, 8 * place)[0]

    def __setitem__(self, place: int, value: float) -> None:
        _ROWS.pack_into(self._memory, 8 * place, value)


# -- the ranks -------------------------------------------------------------------------------------


def compute(rank: int) -> None:
    """Without a pause, for some time."""
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        sum(range(1000))


def hold_lock(rank: int) -> None:
    """Ranks 0 and 1 keep their interpreters' locks: asleep in C, and at work in C."""
    if rank == 0:
        ctypes.PyDLL(None).sleep(HELD)
    elif rank == 1:
        until = time.monotonic() + HELD
        while time.monotonic() < until:
            sum(range(200_000_000))  # some seconds in one call


def idle(rank: int) -> None:
    time.sleep(0.005)


def program(rank: int, table: Table) -> None:
    """Steps of the phase that rank 0 sees, until one of the others is lost or all is done."""
    table[_PIDS + rank] = os.getpid()
    table[_LONGEST] = 0.0
    last, before = time.monotonic(), 0
    try:
        while True:
            x = dt.tensor([table[_PHASE] if rank == 0 else 0.0])
            dist.all_reduce(x)
            phase = int(x.item())
            now = time.monotonic()
            if rank == 0 and phase == before:
                table[_LONGEST] = max(table[_LONGEST], now - last)
            if phase != before or PHASES[phase][1] is not hold_lock:
                PHASES[phase][1](rank)
            last, before = now, phase
    except PeerFailed as error:
        table[_TOLD] = time.monotonic()
        sys.stderr.write(f"rank {rank}: {error}\n")
        raise SystemExit(0) from None


# -- what happens to them --------------------------------------------------------------------------


def for_a_while(pids: Sequence[int]) -> None:
    time.sleep(20.0)


def until_let_go(pids: Sequence[int]) -> None:
    time.sleep(HELD + 8.0)


def stop_again_and_again(pids: Sequence[int]) -> None:
    """1 s of every 3."""
    for _ in range(8):
        os.kill(pids[-1], signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(pids[-1], signal.SIGCONT)
        time.sleep(2.0)


def debug(pids: Sequence[int]) -> None:
    """Held by gdb for some seconds."""
    commands = ["-ex", "shell sleep 8", "-ex", "detach"]
    subprocess.run(["gdb", "-p", str(pids[-1]), "-batch", *commands], capture_output=True)


def freeze(pids: Sequence[int]) -> None:
    """All processes of the job, with their launcher, at once."""
    group = FREEZER / f"disttrain-alarms-{os.getpid()}"
    group.mkdir()
    job = {*pids, *(parent_of(pid) for pid in pids)} - {os.getpid()}
    try:
        for pid in job:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        time.sleep(10.0)
        (group / "freezer.state").write_text("THAWED")
        time.sleep(2.0)
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in job:
            (FREEZER / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def parent_of(pid: int) -> int:
    return int(re.findall(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


PHASES: tuple[tuple[str, Callable[[int], None], Callable[[Sequence[int]], None]], ...] = (
    ("all compute, more ranks than processors", compute, for_a_while),
    (f"two hold their interpreter locks for {HELD} s", hold_lock, until_let_go),
    ("one is stopped for 1 s, 8 times", idle, stop_again_and_again),
    ("one is in a debugger for 8 s", idle, debug),
    ("the job is frozen for 10 s", idle, freeze),
    ("one is stopped for good", idle, lambda pids: None),
)


def inject(table: Table, ranks: int, said: Path, report: list[str]) -> None:
    """One phase after the other."""
    while not all(table[_PIDS + r] for r in range(ranks)):
        time.sleep(0.01)
    pids = [int(table[_PIDS + r]) for r in range(ranks)]
    for number, (title, _, happen) in enumerate(PHASES):
        table[_LONGEST], table[_PHASE] = 0.0, number
        before = len(said.read_bytes())
        time.sleep(0.5)
        if number == len(PHASES) - 1:
            table[_STRUCK] = time.monotonic()
            os.kill(pids[-1], signal.SIGSTOP)
            return
        happen(pids)
        lines = said.read_bytes()[before:].decode(errors="replace").strip().splitlines()
        gone = [rank for rank, pid in enumerate(pids) if not os.path.exists(f"/proc/{pid}")]
        report.append(f"{title}: longest step {table[_LONGEST]:.2f} s, ranks lost: {gone or 0}, "
                      f"warnings: {len(lines)}")  # fmt: skip
        report += [f"    {line}" for line in lines]


@contextmanager
def injected(table: Table, ranks: int, said: Path, report: list[str]):
    """Beside the block."""
    thread = threading.Thread(target=inject, args=(table, ranks, said, report), daemon=True)
    thread.start()
    yield
    thread.join(5.0)


def run(transport: str, ranks: int, folder: Path) -> list[str]:
    """The report; its last line says whether the stopped rank was told in time."""
    table, report, said = Table(), [], folder / "said"
    said.touch()
    with quiet(said), injected(table, ranks, said, report):
        if transport in ("shm", "mpi"):
            backend = "mpi" if transport == "mpi" else None

            def body(rank: int) -> bytes:
                dist.init_process_group(backend)
                program(rank, table)
                return b""

            with reserve_port() as holder:
                port = holder.getsockname()[1]
                plan = Plan(("alarms",), ranks, signals=SIGNALS, shown=(), master_port=port,
                            mpi=transport == "mpi")  # fmt: skip
                run_in_agent(plan, body)
        else:
            backend = "gloo" if transport == "env" else transport

            def alone(rank: int) -> None:
                url = f"file://{folder}/store"
                dist.init_process_group(backend, url, rank=rank, world_size=ranks)
                program(rank, table)

            pids = [fork_program(lambda rank=rank: alone(rank)) for rank in range(ranks)]
            left = set(pids[:-1])
            while left and not (table[_STRUCK] and time.monotonic() > table[_STRUCK] + PATIENCE):
                left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
                time.sleep(0.05)
            kill_descendants(set(), 2.0)
    after = table[_TOLD] - table[_STRUCK]
    told = f"told after {after:.2f} s" if table[_TOLD] and table[_STRUCK] else "nobody was told"
    return [*report, f"{PHASES[-1][0]}: {told}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transport", default="shm", choices=("shm", "env", "tcp", "mpi"))
    parser.add_argument("--ranks", type=int, default=8)
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        report = run(options.transport, options.ranks, Path(folder))
        print(f"{options.transport}, {options.ranks} ranks on {os.cpu_count()} processors:")
        print("\n".join(report))
        print((Path(folder) / "said").read_text(errors="replace")[-1500:], file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
