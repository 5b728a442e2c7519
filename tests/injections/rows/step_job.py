"""The program of a job whose ranks make steps until something happens to them, and write down when
they finish each one, and what they are told.

    dtrun --nproc-per-node 4 tests/injections/rows/step_job.py FOLDER '{"steps": 500}'

A step is about 20 ms: some computing, an all_reduce of gradients, an update of weights. Every
process appends to files of its own, which outlive it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import elastic
from disttrain.errors import CommError, WaitTimeout
from injections import cpu_limit, memory_limit
from injections.rows.hygiene import MARK

WORDS = "struck by the table"
SIZE = 1000
LIMIT = 32 << 20  # bytes that one rank may have more
SHARE = 1 / 6  # of a processor, for a rank that is slowed
LOOKED_AT = 0.3  # seconds in which a launcher has looked at everybody
STEP = struct.Struct("<dqqqqq")  # when, rank, restarts before, world size, step, weights


@dataclass(frozen=True)
class Spec:
    """``seconds``: for which a step sleeps, and ``computes``, of a processor; ``strike``: what the
    ``victim`` does before ``strike_at`` (see ``strike``); ``save_every``: steps between two
    checkpoints; ``shrink``: go on without who has failed; ``ignore``: signals that all ranks
    ignore; ``children``: processes that each rank starts, which ignore them too; ``timeout``: of
    the group, in seconds; ``elastic``: steps are committed in memory, and whoever is there goes on;
    ``on_term``: save when the job is asked to end, and end."""

    steps: int = 1_000_000
    seconds: float = 0.02
    computes: float = 0.0
    strike: str = ""
    victim: int = 2
    strike_at: int = 10
    save_every: int = 0
    shrink: bool = False
    ignore: tuple[str, ...] = ()
    children: int = 0
    timeout: float = 0.0
    elastic: bool = False
    on_term: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Journal:
    """What this process writes down in ``folder``."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._told = folder / f"told-{os.getpid()}"
        self._fd = os.open(folder / f"steps-{os.getpid()}", flags, 0o600)

    def did(self, rank: int, world: int, step: int, weights: bytes) -> None:
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        row = time.monotonic(), rank, restarts, world, step, zlib.crc32(weights)
        os.write(self._fd, STEP.pack(*row))

    def hear(self, rank: int, error: Exception) -> None:
        said = {"time": time.monotonic(), "rank": rank, "type": type(error).__name__,
                "named": getattr(error, "rank", -1), "text": str(error),
                "traceback": getattr(error, "traceback", "")}  # fmt: skip
        if not self._told.exists():
            self._told.write_text(json.dumps(said))


def strike(kind: str) -> None:
    """What a rank does to itself."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind == "raises":
        raise ValueError(WORDS)
    if kind == "segfaults":
        faulthandler.disable()
        ctypes.string_at(0)
    if kind in ("SIGKILL", "SIGABRT", "SIGSTOP"):
        os.kill(os.getpid(), getattr(signal, kind))
    if kind == "exits":
        os._exit(3)
    if kind == "hangs":
        time.sleep(3600)
    if kind == "slows":
        cpu_limit.enter(os.environ[MARK], SHARE)
    if kind == "eats":  # more memory than it may have
        memory_limit.enter(os.environ[MARK], LIMIT)
        time.sleep(LOOKED_AT)
        bytearray(b"x") * (4 * LIMIT)


def load(folder: Path, weights: dt.Tensor) -> int:
    """The steps that are in the last checkpoint, whose weights are put into ``weights``."""
    path = folder / "saved"
    if not path.exists():
        return 0
    data = path.read_bytes()
    weights.copy_(dt.tensor(np.frombuffer(data, np.float32, offset=8).copy()))
    return struct.unpack_from("<q", data)[0]


def save(folder: Path, step: int, data: bytes) -> None:
    """All or nothing."""
    new = folder / "saved.new"
    with open(new, "wb") as file:
        file.write(struct.pack("<q", step) + data)
    os.replace(new, folder / "saved")


def agree(step: int, weights: dt.Tensor) -> int:
    """Go on without who has failed, from the furthest that one of the others is."""
    while True:
        try:
            dist.shrink()
            steps: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(steps, step)
            dist.broadcast(weights, steps.index(max(steps)))
            return max(steps)
        except (dist.PeerFailed, dist.GroupRevoked):
            continue


def pass_time(spec: Spec) -> None:
    """What a step takes."""
    time.sleep(spec.seconds)
    until = time.thread_time() + spec.computes
    while time.thread_time() < until:
        sum(range(100))


def train(spec: Spec, folder: Path) -> None:
    """All steps."""
    journal, weights = Journal(folder), dt.zeros(SIZE)
    step = load(folder, weights) if spec.save_every else 0
    victim = dist.get_rank() == spec.victim and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    while step < spec.steps:
        try:
            if victim and spec.strike and step == spec.strike_at:
                (folder / "struck").write_text(str(time.monotonic()))
                strike(spec.strike)
            pass_time(spec)
            gradients = dt.full((SIZE,), float(step % 7))
            dist.all_reduce(gradients)
            weights -= gradients / dist.get_world_size()
            step += 1
        except (CommError, WaitTimeout) as error:
            journal.hear(dist.get_rank(), error)
            if not spec.shrink or isinstance(error, WaitTimeout):
                raise
            step = agree(step, weights)
            continue
        data = weights.numpy().tobytes()
        journal.did(dist.get_rank(), dist.get_world_size(), step, data)
        if spec.save_every and step % spec.save_every == 0 and dist.get_rank() == 0:
            save(folder, step, data)
        if spec.on_term and elastic.termination_requested():
            if dist.get_rank() == 0:
                save(folder, step, data)
            break


def train_with_whoever_is_there(spec: Spec, folder: Path) -> None:
    """The same steps, each of them committed in memory."""
    journal = Journal(folder)
    kept = elastic.State(weights=dt.zeros(SIZE), step=0)

    @elastic.run
    def go_on(state: elastic.State) -> None:
        while state.step < spec.steps:
            time.sleep(spec.seconds)
            gradients = dt.full((SIZE,), float(state.step % 7))
            dist.all_reduce(gradients)
            state.weights -= gradients / dist.get_world_size()
            state.step += 1
            data = state.weights.numpy().tobytes()
            journal.did(dist.get_rank(), dist.get_world_size(), state.step, data)
            state.commit()

    go_on(kept)


def main() -> None:
    folder, spec = Path(sys.argv[1]), Spec(**json.loads(sys.argv[2]))
    for name in spec.ignore:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for _ in range(spec.children):  # one that detaches itself from all that can be detached from
        subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM INT HUP; sleep 1000 & wait"])
    dist.init_process_group(timeout=timedelta(seconds=spec.timeout) if spec.timeout else None)
    if spec.elastic:
        train_with_whoever_is_there(spec, folder)
    else:
        train(spec, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
