#!/usr/bin/env python3
"""Kill a worker while it computes for others, again and again, and look at what that does to them.

    python tests/injections/worker_kills.py --kills 100

Each trial starts three workers: a caller, which trains a model whose stages lie on the other two
(one stage calls the next), a keeper and a victim. At a random moment of a forward, a backward or an
optimizer's step the victim gets SIGKILL. Then the caller must get an error that names the victim,
within two seconds; caller and keeper must go on training without it; and once they leave, no
autograd context, RRef, thread, open file or piece of shared memory may be left of any of it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import mmap
import os
import random
import signal
import statistics
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import disttrain as dt
from disttrain import context, lifetime, nn, rpc
from disttrain.distributed.optim import DistributedOptimizer
from disttrain.errors import PeerFailed
from disttrain.rpc import autograd

NAMES = ("caller", "keeper", "victim")
VICTIM = 2  # its rank
PHASES = ("forward", "backward", "step")
DONE = len(PHASES)
WARM = 3  # steps before a kill
LIMIT = 2.0  # seconds until the caller is told
REFERENCES = ("num_owner_rrefs", "num_pending_users", "num_pending_futures", "num_forks")
PATIENCE = 20.0  # for what is given back by messages: RRefs and contexts


class Board:
    """What parent and caller write for each other: the phase, the steps, the time of the kill."""

    _FORM = struct.Struct("<qqd")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORM.size)

    def mark(self, step: int, phase: int) -> None:
        self._memory[:16] = struct.pack("<qq", phase, step)

    def kill_at(self, now: float) -> None:
        self._memory[16:24] = struct.pack("<d", now)

    def read(self) -> tuple[int, int, float]:
        return self._FORM.unpack(self._memory[:])


class Stage(nn.Module):
    """A layer, and a reference to the stage after it."""

    def __init__(self, after: rpc.RRef | None = None) -> None:
        super().__init__()
        self.layer, self.after = nn.Linear(32, 32), after

    def forward(self, x: dt.Tensor) -> dt.Tensor:
        y = dt.tanh(self.layer(x))
        return y if self.after is None else self.after.rpc_sync().forward(y)

    def parameter_rrefs(self) -> list[rpc.RRef]:
        return [rpc.RRef(parameter) for parameter in self.parameters()]


class Model:
    """Stages on other workers, the first of which calls the second."""

    def __init__(self, *workers: str) -> None:
        stage = None
        self.stages = [stage := rpc.remote(name, Stage, (stage,)) for name in reversed(workers)]
        owners = [rref for stage in self.stages for rref in stage.rpc_sync().parameter_rrefs()]
        self.optimizer = DistributedOptimizer(dt.optim.SGD, owners, lr=0.01)
        self.x = dt.randn(8, 32, requires_grad=True)

    def step(self, mark: Callable[[int], None]) -> None:
        with autograd.context() as number:
            mark(0)
            loss = self.stages[-1].rpc_sync().forward(self.x).square().mean()
            mark(1)
            autograd.backward(number, [loss])
            mark(2)
            self.optimizer.step(number)


def leftovers() -> dict[str, int]:
    """What this worker still keeps of earlier calls."""
    gc.collect()
    of_calls, of_backward = rpc._rref_context_get_debug_info(), autograd._get_debug_info()
    return {name: int(of_calls[name]) for name in REFERENCES} | {
        name: int(count) for name, count in of_backward.items()
    }


def settled(name: str) -> dict[str, int]:
    """What a worker keeps when all messages that give something back have arrived."""
    deadline = time.monotonic() + PATIENCE
    here = name == rpc.get_worker_info().name  # where a call to oneself would be a leftover
    while any((left := leftovers() if here else rpc.rpc_sync(name, leftovers)).values()):
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return left


def errors_in(error: BaseException) -> Iterator[BaseException]:
    """The error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from errors_in(inner)
    else:
        yield error


def call_until_killed(board: Board) -> dict:
    """The caller's life; what it saw."""
    model, step = Model("keeper", "victim"), 0
    try:
        while True:
            step += 1
            model.step(partial(board.mark, step))
    except Exception as error:
        seconds = time.monotonic() - board.read()[2]
        told = [f"{type(e).__name__}: {e}" for e in errors_in(error)]
        named = all(isinstance(e, PeerFailed) and e.rank == VICTIM for e in errors_in(error))
    del model
    other = Model("keeper")
    for _ in range(2):
        other.step(lambda phase: None)
    del other
    left = {name: settled(name) for name in ("caller", "keeper")}
    return {"seconds": seconds, "named": named, "told": told, "left": left}


def held() -> dict[str, int]:
    """What the system has of this process."""
    gc.collect()
    return {"threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd"))}


def grown(before: dict[str, int]) -> dict[str, int]:
    return {what: n - before[what] for what, n in held().items() if n > before[what]}


def live(rank: int, meet: str, board: Board, pipe: int) -> None:
    """One worker's life; caller and keeper report what they saw and what they still hold."""
    before = held()
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meet}")
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=len(NAMES), rpc_backend_options=options)
    report: dict = {}
    if rank == 0:
        report = call_until_killed(board)
        board.mark(0, DONE)
    else:
        while board.read()[0] != DONE:
            time.sleep(0.002)
    rpc.shutdown(graceful=False)
    deadline = time.monotonic() + PATIENCE  # calls that still run end on threads of their own
    while (more := grown(before)) and time.monotonic() < deadline:
        time.sleep(0.005)
    report["held"] = more
    os.write(pipe, json.dumps({NAMES[rank]: report}).encode() + b"\n")


def said(folder: Path, rank: int) -> Path:
    """Where a worker's standard error goes: peers of the killed one say so."""
    return folder.with_name(f"{folder.name}.{rank}")


def start(rank: int, folder: Path, board: Board, pipe: int) -> int:
    """Fork a worker."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        lifetime.die_with_parent(parent)
        context.begin_anew()
        os.dup2(os.open(said(folder, rank), os.O_WRONLY | os.O_CREAT), 2)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None
        live(rank, str(folder / "store"), board, pipe)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@contextlib.contextmanager
def workers(folder: Path, board: Board, pipe: int) -> Iterator[list[int]]:
    """The processes of a trial's workers. None trains on when the trial has failed."""
    pids = [start(rank, folder, board, pipe) for rank in range(len(NAMES))]
    try:
        yield pids
    except BaseException:
        for pid in pids:
            with contextlib.suppress(ChildProcessError):  # it has ended, and was waited for
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        raise


def trial(phase: int, chance: random.Random, folder: Path) -> dict:
    """Start, kill the victim in this phase, and collect the reports of the other two."""
    board, shared = Board(), set(os.listdir("/dev/shm"))
    read, write = os.pipe()
    with workers(folder, board, write) as pids:
        os.close(write)
        deadline = time.monotonic() + PATIENCE
        while (at := board.read())[0] != phase or at[1] < WARM:
            assert time.monotonic() < deadline, "the workers did not begin to train"
            if at[1] < WARM:
                time.sleep(0.001)
        time.sleep(chance.random() * 0.002)
        board.kill_at(time.monotonic())
        os.kill(pids[VICTIM], signal.SIGKILL)
        reports: dict = {}
        with open(read, encoding="ascii") as lines:
            for line in lines:
                reports |= json.loads(line)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        texts = [said(folder, rank).read_text() for rank in range(len(NAMES))]
        assert codes == [0, 0, -signal.SIGKILL], f"exit codes {codes}\n" + "\n".join(texts)
        found = {path.name for path in folder.iterdir()} - {"store", "store.lock"}
        found |= {
            name
            for name in set(os.listdir("/dev/shm")) - shared
            if not name.startswith(("sem.mp-", "mpich_shm_"))  # of others, who work beside this
        }
        reports["files"] = sorted(found)
        return reports


def judge(reports: dict) -> list[str]:
    """What is wrong with a trial."""
    caller, wrong = reports["caller"], []
    if not caller["named"]:
        wrong.append(f"the caller was told {caller['told']}")
    if caller["seconds"] > LIMIT:
        wrong.append(f"the caller was told after {caller['seconds']:.2f} s")
    for name, left in caller["left"].items():
        wrong += [f"{name} keeps {n} {what}" for what, n in left.items() if n]
    for name in ("caller", "keeper"):
        wrong += [f"{name} holds {n} {what} more" for what, n in reports[name]["held"].items()]
    return wrong + [f"{file} is left over" for file in reports["files"]]


def run(kills: int, seed: int, base: Path) -> tuple[list[float], list[str]]:
    """All trials: after how many seconds callers were told, and what went wrong."""
    chance, seconds, wrong = random.Random(seed), [], []
    for k in range(kills):
        phase = k % len(PHASES)
        folder = Path(tempfile.mkdtemp(dir=base))
        reports = trial(phase, chance, folder)
        seconds.append(reports["caller"]["seconds"])
        wrong += [f"kill {k}, in {PHASES[phase]}: {text}" for text in judge(reports)]
    return seconds, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        seconds, wrong = run(options.kills, options.seed, Path(base))
    for text in wrong:
        print(text)
    print(
        f"{options.kills} kills, {len(wrong)} complaints; callers were told after "
        f"{1e3 * statistics.median(seconds):.1f} ms, at most {1e3 * max(seconds):.1f} ms "
        f"({time.monotonic() - begin:.1f} s)"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
