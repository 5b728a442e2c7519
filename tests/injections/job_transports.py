"""How a job of the matrix is started on each transport, and how it ends there.

Each function takes a trial and a folder, and gives what the ranks saw and what is wrong with how
the job itself ended. ``TRANSPORTS`` has all of them.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import secrets
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.transports.sim.cluster import run_cluster, run_tasks
from disttrain.comm.transports.sim.fabric import Cluster, required
from disttrain.comm.transports.sim.scheduler import Scheduler
from disttrain_launcher.command.launch import SIGNALS, run_in_agent
from disttrain_launcher.node.mpi import find_mpiexec
from disttrain_launcher.plan.job import Plan, reserve_port
from disttrain_launcher.worker.processes import kill_descendants
from injections.job_kinds import KINDS, NETWORK, SAME, Seen, Trial, take_part
from support.namespaces import Wire

PATIENCE = 30.0  # a job that takes longer hangs
ROOT = Path(__file__).parents[2]
OURS = ("log", "store", "store.lock", "board", "seen", "token", "said")  # files of a trial
_MPI = ("PMI", "OMPI", "MPI_LOCAL", "HYDI_", "MPIR_")

Result = tuple[list[Seen], str]


class Board:
    """When the fault struck; what each rank saw. In files, which any process may open."""

    def __init__(self, folder: Path) -> None:
        self._seen = folder / "seen"
        with open(folder / "board", "a+b") as file:
            file.truncate(16)
            self._memory = mmap.mmap(file.fileno(), 16)

    def struck(self) -> None:
        self._memory[:8] = struct.pack("<d", time.monotonic())

    def since(self, now: float | None = None) -> float:
        (at,) = struct.unpack("<d", self._memory[:8])
        return (time.monotonic() if now is None else now) - at if at else 0.0

    def tell(self, seen: Seen) -> None:
        seen.traceback, seen.text = seen.traceback[-600:], seen.text[-1500:]
        fd = os.open(self._seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, json.dumps(seen.as_dict()).encode() + b"\n")
        os.close(fd)

    def read(self) -> list[Seen]:
        if not self._seen.exists():
            return []
        return [Seen(**json.loads(line)) for line in self._seen.read_text().splitlines()]


# -- under dtrun -----------------------------------------------------------------------------------


def under_launcher(trial: Trial, folder: Path, backend: str | None = None) -> Result:
    """Processes that dtrun starts: (what they saw, what is wrong with how the job ended)."""
    board = Board(folder)

    def body(rank: int) -> bytes:
        dist.init_process_group(backend)
        take_part(trial, board.struck, board.since, board.tell)
        return b"done"

    with reserve_port() as holder:
        plan = Plan(
            ("matrix",), trial.ranks, signals=SIGNALS, shown=(), log_dir=str(folder / "log"),
            min_ranks=1 if trial.recover else 0, master_port=holder.getsockname()[1],
            mpi=backend == "mpi",
        )  # fmt: skip
        attempt = run_in_agent(plan, body)
    kind, seen = KINDS[trial.kind], board.read()
    if trial.recover:
        wrong = f"exit code {attempt.code}" if attempt.code and kind.after not in (SAME,) else ""
        return seen, wrong
    first = -1 if attempt.first is None else attempt.first.rank
    wrong = "" if attempt.code == kind.code else f"exit code {attempt.code}, not {kind.code}"
    report = json.loads((folder / "log" / "report.json").read_text())
    of_peer = all(s.error == "PeerFailed" for s in seen if s.rank != trial.victim)
    if kind.sees == "PeerFailed" and of_peer and first != trial.victim:
        wrong += f"; the job's root cause is rank {first}"
    if report["exitcode"] != attempt.code:
        wrong += f"; report.json says exit code {report['exitcode']}"
    return seen, wrong


def by_mpi_launcher(trial: Trial, folder: Path) -> Result:
    """An MPI job under ``dtrun --backend mpi``."""
    return under_launcher(trial, folder, "mpi")


# -- under mpiexec alone ---------------------------------------------------------------------------


def by_mpiexec(trial: Trial, folder: Path) -> Result:
    """An MPI job that mpiexec starts: programs of their own."""
    board = Board(folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith(_MPI)}
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in (".", "scripts", "tests"))
    args = [json.dumps(asdict(trial)), str(folder)]
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    command = [mpiexec, "-n", str(trial.ranks), sys.executable, "-m", __name__, *args]
    with open(folder / "said", "wb") as said:
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        try:
            code = job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
            job.kill()
            job.wait()
    seconds = board.since()
    kill_descendants(set(), 2.0)
    kind, seen = KINDS[trial.kind], board.read()
    if code is None:
        return seen, f"hangs: {_said(folder)}"
    if kind.is_end_under_mpiexec:  # mpiexec lets nobody say anything
        late = seconds > ENDED_BY_MPIEXEC
        wrong = f"the job has ended after {seconds:.2f} s" if late else ""
        return [], wrong if code else f"exit code 0; {wrong}"
    if trial.recover or code == kind.code:
        return seen, f"exit code {code}: {_said(folder)}" if trial.recover and code else ""
    return seen, f"exit code {code}, not {kind.code}: {_said(folder)}"


ENDED_BY_MPIEXEC = 2.0  # seconds


def _said(folder: Path) -> str:
    return (folder / "said").read_text(errors="replace")[-1500:]


def _program(trial: Trial, folder: Path) -> None:
    """What mpiexec starts."""
    board = Board(folder)
    dist.init_process_group("mpi")
    take_part(trial, board.struck, board.since, board.tell)


# -- without a launcher ----------------------------------------------------------------------------


def by_environment(trial: Trial, folder: Path, backend: str = "gloo") -> Result:
    """Processes that nobody launched, which find each other through a file."""
    board = Board(folder)
    url = f"file://{folder}/store"

    def begin(rank: int) -> None:
        dist.init_process_group(backend, url, rank=rank, world_size=trial.ranks)

    return _processes(trial, board, begin, board.struck)


def over_sockets(trial: Trial, folder: Path) -> Result:
    """The same over TCP, each rank as if on a host of its own."""
    return by_environment(trial, folder, "tcp")


def between_hosts(trial: Trial, folder: Path) -> Result:
    """Hosts with networks of their own: the rank that fails on one, all others on another."""
    board, token = Board(folder), folder / "token"
    token.write_bytes(secrets.token_bytes(32))
    token.chmod(0o600)
    with Wire(2, trial.seed) as wire:
        port = 20_000 + trial.seed % 10_000

        def begin(rank: int) -> None:
            wire.enter(int(rank == trial.victim))
            os.environ.update(
                MASTER_ADDR=wire.address(int(trial.victim == 0)), MASTER_PORT=str(port),
                RANK=str(rank), WORLD_SIZE=str(trial.ranks), DISTTRAIN_TOKEN_FILE=str(token),
            )  # fmt: skip
            dist.init_process_group("gloo")

        def struck() -> None:
            board.struck()
            if trial.kind in NETWORK:
                wire.block(1, 0)
            if trial.kind == "no_network":
                wire.block(0, 1)

        return _processes(trial, board, begin, struck)


def _processes(
    trial: Trial, board: Board, begin: Callable[[int], None], struck: Callable[[], None]
) -> Result:
    keep = set(_children())

    def program(rank: int) -> None:
        begin(rank)
        take_part(trial, struck, board.since, board.tell)

    try:
        pids = [fork_program(partial(program, rank)) for rank in range(trial.ranks)]
        deadline, left = time.monotonic() + PATIENCE, set(pids)
        while left and time.monotonic() < deadline:
            left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
            if left == {pids[trial.victim]} and trial.kind == "stopped":
                break  # nobody else ends it, unless others go on without it
            time.sleep(0.002)
        hang = f"processes {left} hang" if left and trial.kind != "stopped" else ""
    finally:
        kill_descendants(keep, 2.0)
    return board.read(), hang


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def fork_program(body: Callable[[], None]) -> int:
    """Start a process that does what Python does with a program; its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        context.begin_anew()
        atexit._clear()
        body()
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


# -- simulated -------------------------------------------------------------------------------------


def simulated(trial: Trial, folder: Path) -> Result:
    """Threads under a seeded scheduler, over the transport of shared memory."""
    return _simulated(trial, lambda body: run_tasks(body, trial.ranks, trial.seed))


def on_cluster(trial: Trial, folder: Path) -> Result:
    """The ranks of ``dtrun --simulate``, the odd trials' on a host each."""
    hosts = trial.ranks if trial.seed % 2 else 1
    cluster = Cluster(trial.ranks, num_hosts=hosts)

    def cut() -> None:
        if trial.kind in NETWORK:
            required().cut(trial.victim)

    return _simulated(trial, lambda body: run_cluster(body, cluster, trial.seed)[0], cut)


def _simulated(
    trial: Trial,
    run: Callable[[Callable[[], None]], Scheduler],
    cut: Callable[[], None] = lambda: None,
) -> Result:
    told: list[Seen] = []
    clock: list[float] = []

    def struck() -> None:
        clock.append(context.now())
        cut()

    def body() -> None:
        dist.init_process_group()
        since = lambda: context.now() - clock[0] if clock else 0.0
        take_part(trial, struck, since, told.append)

    scheduler = run(body)
    wrong = [t.text for t in scheduler.tasks if t.error is not None and t.rank != trial.victim]
    return told, wrong[0] if wrong and trial.recover else ""


@dataclass(frozen=True)
class Way:
    """How ranks are started and linked. ``title``: for the table's head; ``shrinks``: can they go
    on without a rank? ``real``: are they processes?"""

    run: Callable[[Trial, Path], Result]
    title: str
    shrinks: bool = True
    real: bool = True


TRANSPORTS: dict[str, Way] = {
    "shm": Way(under_launcher, "shm"),
    "env": Way(by_environment, "env"),
    "tcp": Way(over_sockets, "tcp"),
    "net": Way(between_hosts, "net"),
    "mpi": Way(by_mpi_launcher, "mpi"),
    "mpiexec": Way(by_mpiexec, "mpiexec", shrinks=False),
    "sim": Way(simulated, "sim", real=False),
    "cluster": Way(on_cluster, "cluster", real=False),
}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _program(Trial(**json.loads(sys.argv[1])), Path(sys.argv[2]))
