"""Rows about nodes: each is a network namespace with a dtrun of its own, and a wire in user space
lies between them, which loses, delays and cuts as it is told."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from disttrain_launcher.worker.processes import descendants
from injections.rows.jobs import Experiment, Job, Step
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import SIZE, Spec
from support import namespaces
from support.namespaces import Wire

PORT = 29400
LOCAL = 2  # ranks on each node, unless said otherwise


class Nodes(Experiment):
    """``count`` nodes of a job, in which node 0 is the first."""

    def __init__(self, trial: Trial, count: int, local: int = LOCAL) -> None:
        super().__init__(trial)
        self.wire, self.local, self.count = Wire(count, trial.number), local, count
        token = trial.folder / "token"
        token.write_bytes(secrets.token_bytes(32))
        token.chmod(0o600)

    def __enter__(self) -> Nodes:
        self.wire.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.wire.__exit__()

    def join(self, node: int, spec: Spec, nodes: str, *flags: str, **how: object) -> Job:
        """Start the dtrun of a node."""
        env = {"DISTTRAIN_TOKEN_FILE": str(self.folder / "token"), **how.pop("env", {})}  # type: ignore[dict-item]
        first = f"{self.wire.address(0)}:{PORT}"
        given = (
            "--nnodes", nodes, "--node-rank", str(node), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", first, *flags,
        )  # fmt: skip
        return self.start(
            spec, *given, ranks=self.local, node=how.pop("name", str(node)), env=env,  # type: ignore[arg-type]
            enter=functools.partial(self.wire.enter, node), **how,
        )  # fmt: skip

    def join_all(self, spec: Spec, nodes: str, *flags: str) -> list[Job]:
        return [self.join(node, spec, nodes, *flags) for node in range(self.count)]

    def lose(self, job: Job) -> None:
        """End a node as a power cut would: all of its processes at once."""
        pids = [job.pid, *descendants(job.pid)]
        self.struck = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def ranks_of(self, job: Job) -> set[int]:
        """Its processes."""
        return set(descendants(job.pid))

    def finish(self, jobs: Sequence[Job]) -> None:
        """Ask the nodes to end."""
        for job in jobs:
            if job.runs():
                os.kill(job.pid, signal.SIGTERM)
        for job in jobs:
            job.wait(20.0)

    def result(self, known: Sequence[str] = (), seconds: float = 0.1) -> Seen:  # type: ignore[override]
        for job in self.jobs:
            job.close()
        # where all processes of a node are killed at once, the next job there tidies up
        return super().result([*known, "token", "run"], seconds)


@functools.cache
def expected(step: int) -> int:
    """The checksum of the weights after so many steps, whatever the world."""
    weights = np.zeros(SIZE, np.float32)
    for done in range(step):
        weights -= np.float32(done % 7)
    return zlib.crc32(weights.tobytes())


def check_weights(it: Experiment) -> None:
    """Every step of every rank gave what it gives without any fault."""
    wrong = [step for step in it.steps() if step.weights != expected(step.number)]
    it.seen.expect(not wrong, f"{len(wrong)} steps with other weights, the first: {wrong[:1]}")


def check_leaders(steps: Sequence[Step]) -> list[str]:
    """Never two generations at once: who makes the steps as rank 0 does so for good, until another
    one does."""
    order: list[int] = []
    for step in steps:
        if step.rank == 0 and (not order or order[-1] != step.pid):
            order.append(step.pid)
    return [] if len(order) == len(set(order)) else [f"two generations at once: {order}"]


# -- nodes that go ---------------------------------------------------------------------------------


def node_lost(trial: Trial) -> Seen:
    """R9."""
    with Nodes(trial, 2) as it:
        a, b = it.join_all(Spec(save_every=5), "1:2")
        if it.ready(2 * LOCAL):
            it.lose(b)
            wait_for(lambda: it.after(world=LOCAL), 10.0)
            again = it.after(world=LOCAL)
            it.seen.expect(again, f"the other node did not go on: {it.words()}")
            if again:
                it.seen.values["steps again"] = again[0].when - it.struck
            check_weights(it)
            it.finish([a])
        return it.result()


def first_node_lost(trial: Trial) -> Seen:
    """R11 without etcd."""
    with Nodes(trial, 3, local=1) as it:
        first, *others = it.join_all(Spec(), "2:3")
        if it.ready(3):
            it.lose(first)
            ended = []
            for job in others:
                code = job.wait(15.0)
                ended.append(job.ended - it.struck)
                it.seen.expect(code > 0, f"ended with {code}")
                named = it.wire.address(0) in job.said() or "first node" in job.said()
                it.seen.expect(named, f"does not say which node: {job.said()[-300:]}")
            it.seen.values["all ended"] = max(ended)
        return it.result()


def wait_for(ready: Callable[[], object], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def cut(trial: Trial, both_ways: bool = True) -> Seen:
    """R12 and R13: nodes 0 and 1, 2 and 3."""
    seconds = 6.0 if trial.quick else 20.0
    with Nodes(trial, 4, local=1) as it:
        jobs = it.join_all(Spec(save_every=5), "2:4", "--max-restarts", "3")
        if it.ready(4):
            here = {pid for job in jobs[:2] for pid in it.ranks_of(job)}
            there = {pid for job in jobs[2:] for pid in it.ranks_of(job)}
            it.struck = time.monotonic()
            for far in (2, 3):
                for near in (0, 1):
                    it.wire.block(near, far)
                    if both_ways:
                        it.wire.block(far, near)
            wait_for(lambda: it.after(world=2), seconds)
            time.sleep(max(0.0, it.struck + seconds - time.monotonic()))
            for far in (2, 3):
                for near in (0, 1):
                    it.wire.block(near, far, False)
                    it.wire.block(far, near, False)
            healed = time.monotonic()
            going_on = [s.when for s in it.after(world=2) if s.when < healed]
            it.seen.expect(going_on, f"nobody went on: {it.words()}")
            if going_on:
                it.seen.values["goes on"] = min(going_on) - it.struck
            last = [s.when for s in it.after() if s.pid in there and s.when < healed]
            it.seen.values["last step beyond"] = max([0.0, *(t - it.struck for t in last)])
            it.seen.expect(here, "no ranks")
            time.sleep(3.0)
            it.seen.wrong += check_leaders(it.steps())
            check_weights(it)
            it.finish(jobs)
        return it.result()


# -- a bad network ---------------------------------------------------------------------------------


def bad_network(trial: Trial, change: Callable[[Wire], None]) -> Seen:
    """R14 and R15: the same bits, later; how many times as long a step takes."""
    seconds = 5.0 if trial.quick else 60.0
    with Nodes(trial, 2) as it:
        jobs = it.join_all(Spec(), "2", "--max-restarts", "3")
        if it.ready(2 * LOCAL, steps=50):
            change(it.wire)
            it.struck = time.monotonic()
            time.sleep(seconds)
            many = it.after(rank=0)
            before = [s for s in it.steps() if s.rank == 0 and s.when <= it.struck][5:]
            usual = (before[-1].when - before[0].when) / (len(before) - 1)
            it.seen.expect(len(many) > 1, "no step was made")
            if len(many) > 1:
                later = (many[-1].when - many[0].when) / (len(many) - 1)
                it.seen.values["slower"] = round(later / usual, 1)
            it.seen.values["restarts"] = len({s.pid for s in it.steps()}) - 2 * LOCAL
            check_weights(it)
            it.finish(jobs)
        return it.result()


def lossy(trial: Trial) -> Seen:
    return bad_network(trial, lambda wire: wire.lose(5))


def late(trial: Trial) -> Seen:
    return bad_network(trial, lambda wire: wire.delay(0.05, 0.02))


# -- clocks ----------------------------------------------------------------------------------------

SKEWS = (30.0, -30.0, 86400.0, -86400.0)  # seconds
_SHIM = Path(__file__).parents[1] / "wall_clock.c"


def why_no_skew() -> str:
    return namespaces.why_not() or ("" if shutil.which("cc") else "there is no C compiler")


def skewed(trial: Trial) -> Seen:
    """R16: the wall clock of node 1 is wrong, and jumps to be wrong the other way."""
    skew = SKEWS[trial.number % len(SKEWS)]
    clock, shim = trial.folder / "clock", trial.folder / "clock.so"
    clock.write_bytes(struct.pack("<d", skew))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, _SHIM, "-ldl"], check=True)
    env = {"LD_PRELOAD": str(shim), "WALL_CLOCK": str(clock)}
    with Nodes(trial, 2) as it:
        spec = Spec()
        jobs = [it.join(0, spec, "2", "--max-restarts", "3"),
                it.join(1, spec, "2", "--max-restarts", "3", env=env)]  # fmt: skip
        if it.ready(2 * LOCAL):
            it.seen.values["joined"] = it.steps()[0].when - jobs[1].began
            with open(clock, "r+b") as file:  # in its place: it is mapped
                file.write(struct.pack("<d", -skew))
            it.struck = time.monotonic()
            time.sleep(3.0)
            it.seen.expect(it.after(), "no step after the jump")
            it.seen.values["restarts"] = len({s.pid for s in it.steps()}) - 2 * LOCAL
            it.finish(jobs)
        return it.result(["clock", "clock.so"])


ROWS = [
    Row(
        "R9", "2 nodes, `--nnodes 1:2`: SIGKILL of all processes of one",
        "the other steps again within 3 s",
        "torchrun 47.0 s, torchft 5 s, ULFM 10 s",
        node_lost, {"steps again": 3.0}, why_not=namespaces.why_not,
    ),
    Row(
        "R11", "3 nodes: SIGKILL of all processes of the first, which has the rendezvous",
        "the others end within 5 s, and say so",
        "torchrun ends after 2.5 s; torchft up to 72 s",
        first_node_lost, {"all ended": 5.0}, why_not=namespaces.why_not,
    ),
    Row(
        "R12", "4 nodes: the network between two and two is cut for 20 s",
        "the side with the store goes on within 5 s, the other one makes no step after 5 s; never "
        "two generations at once",
        "torchrun: neither notices in 70 s",
        cut, {"goes on": 5.0, "last step beyond": 5.0}, why_not=namespaces.why_not,
    ),
    Row(
        "R13", "the same one way: two nodes can send, and hear nothing",
        "the same",
        "none measured",
        functools.partial(cut, both_ways=False), {"goes on": 5.0, "last step beyond": 5.0},
        why_not=namespaces.why_not,
    ),
    Row(
        "R14", "2 nodes: 5 % of all packets are lost for 60 s",
        "no failure, no restart, the same weights to the bit",
        "none measured",
        lossy, {"restarts": 0}, {"restarts": "", "slower": "x"}, why_not=namespaces.why_not,
    ),
    Row(
        "R15", "2 nodes: all packets are 50 ms late, give or take 20 ms, for 60 s",
        "no failure, no restart, the same weights to the bit",
        "none measured",
        late, {"restarts": 0}, {"restarts": "", "slower": "x"}, why_not=namespaces.why_not,
    ),
    Row(
        "R16", "2 nodes: the clock of one is 30 s or a day before or behind, and jumps (in turn)",
        "joins, no restart",
        "torchrun cannot join at -30 s",
        skewed, {"restarts": 0}, {"restarts": ""}, why_not=why_no_skew,
    ),
]  # fmt: skip
