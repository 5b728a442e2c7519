"""Jobs of several nodes that go on with fewer ranks: without one, and without a whole node."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from disttrain_launcher.worker.processes import descendants
from support import namespaces
from support.dtrun import until
from support.namespaces import Wire
from support.nodes import Nodes

FLAGS = ("--nnodes", "2", "--nproc-per-node", "2", "--min-ranks", "2")

# Trains in memory: what was committed is kept by whoever is left.
TRAIN = """
import os, time
import disttrain as dt
from disttrain import nn
from disttrain import distributed as dist
from disttrain.distributed import elastic
from disttrain.distributed.ddp import DistributedDataParallel

me = int(os.environ["RANK"])
with open(f"pid-{me}", "w") as f:
    f.write(str(os.getpid()))
model = nn.Linear(2, 1)
with dt.no_grad():
    for p in model.parameters():
        p.zero_()
optimizer = dt.optim.SGD(model.parameters(), 0.01, momentum=0.5)
state = elastic.State(model=model, optimizer=optimizer, step=0)

@elastic.run
def train(state):
    ddp = DistributedDataParallel(state.model)
    size = dist.get_world_size()
    open(f"began-{me}-of-{size}", "w").close()
    while True:
        optimizer.zero_grad()
        loss = ddp(dt.ones(1, 2)).sum() + 1
        loss.backward()
        optimizer.step()
        state.step += 1
        state.commit()
        with open(f"steps-{me}", "a") as f:
            f.write(f"{state.step} {loss.item().hex()}\\n")
        if state.step == 10:
            open(f"ten-{me}", "w").close()
        ends = dt.tensor([float(os.path.exists("../enough"))])
        dist.all_reduce(ends)
        if float(ends):
            break
        time.sleep(0.01)

train(state)
with open(f"end-{me}", "w") as f:
    f.write(f"{state.step} {[p.tolist() for p in model.parameters()]}")
"""


def started(job: Nodes, *flags: str) -> dict[int, str]:
    """Both nodes train: which node each rank is on."""
    for host, name in enumerate("ab"):
        hosts = ("--rdzv-conf", f"is_host={1 - host}")
        job.start(name, *FLAGS, *hosts, *flags, host=host)
    where = {}
    for rank in range(4):
        until(lambda r=rank: any((job.folder / n / f"ten-{r}").exists() for n in "ab"), f"{rank}")
        where[rank] = next(n for n in "ab" if (job.folder / n / f"ten-{rank}").exists())
    return where


def steps_of(folder, rank: int) -> list[tuple[int, str]]:
    lines = (line.split() for line in (folder / f"steps-{rank}").read_text().splitlines())
    return [(int(step), loss) for step, loss in lines]


def pid_of(job: Nodes, rank: int, where: dict[int, str]) -> int:
    return int((job.folder / where[rank] / f"pid-{rank}").read_text())


def check(job: Nodes, left: list[int], where: dict[int, str]) -> None:
    """All that are left have ended alike, and no step that one has seen was lost or repeated with
    another result."""
    ends = {(job.folder / where[r] / f"end-{r}").read_text() for r in left}
    assert len(ends) == 1
    for rank in left:
        seen = steps_of(job.folder / where[rank], rank)
        told = set(range(1, seen[-1][0] + 1)) - dict(seen).keys()
        assert len(told) <= 1  # its commit was what the failure has broken off
        assert len(set(seen)) == len(dict(seen))


@pytest.mark.parametrize("victim", [3, 0])
def test_a_rank_that_dies_leaves_the_others_of_all_nodes_at_work(tmp_path, victim):
    with Nodes(tmp_path, TRAIN) as job:
        where = started(job)
        os.kill(pid_of(job, victim, where), signal.SIGKILL)
        left = [r for r in range(4) if r != victim]
        for rank in left:
            job.wait_for(where[rank], f"began-{rank}-of-3")
        (tmp_path / "enough").touch()
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
        for name in "ab":
            assert f"rank {victim} failed (killed by SIGKILL" in job.said(name)
        check(job, left, where)


@pytest.mark.parametrize("how", ["agent", "node"])
def test_a_node_that_is_lost_leaves_the_other_one_at_work(tmp_path, how):
    with Nodes(tmp_path, TRAIN) as job:
        where = started(job)
        if how == "agent":
            os.kill(job.agent("b"), signal.SIGKILL)
        else:
            job.kill("b")
        for rank in (r for r in where if where[r] == "a"):
            job.wait_for("a", f"began-{rank}-of-2")
        (tmp_path / "enough").touch()
        assert job.ended("a") == 0, job.everything()
        assert "the others go on without it (--min-ranks 2)" in job.said("a")
        check(job, [r for r in where if where[r] == "a"], where)


def test_too_few_ranks_of_all_nodes_together_end_the_job(tmp_path):
    with Nodes(tmp_path, TRAIN) as job:
        where = started(job, "--min-ranks", "3")
        victims = [next(r for r in range(4) if where[r] == n) for n in "ab"]
        for victim in victims:
            os.kill(pid_of(job, victim, where), signal.SIGKILL)
        assert {job.ended(n) for n in "ab"} <= {137, 1}, job.everything()


@pytest.mark.skipif(bool(why := namespaces.why_not()), reason=why or "-")
@pytest.mark.parametrize("how", ["cut", "stopped"])
def test_a_node_that_is_cut_off_or_stopped_counts_as_lost(tmp_path, how):
    with Wire(2) as wire, Nodes(tmp_path, TRAIN, wire) as job:
        where = started(job)
        if how == "cut":
            for one, other in ((0, 1), (1, 0)):
                wire.block(one, other)
        else:
            for pid in (job.pids["b"], *descendants(job.pids["b"])):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        for rank in (r for r in where if where[r] == "a"):
            job.wait_for("a", f"began-{rank}-of-2")
        (tmp_path / "enough").touch()
        assert job.ended("a") == 0, job.everything()
        assert "is lost; the others go on without it (--min-ranks 2)" in job.said("a")
        check(job, [r for r in where if where[r] == "a"], where)
        assert not list((tmp_path / "b").glob("end-*"))
