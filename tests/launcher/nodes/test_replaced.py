"""`--replace-ranks` with several nodes: ranks are started anew, and nothing committed is lost."""

from __future__ import annotations

import os
import signal

import pytest

from support.dtrun import until
from support.nodes import Nodes

FLAGS = ("--nproc-per-node", "2", "--replace-ranks", "--max-restarts", "2")

# Every rank draws random numbers, and waits behind step 20 until a file is there.
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
dt.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = dt.optim.SGD(model.parameters(), 0.05, momentum=0.9)
dt.manual_seed(100 + me)
state = elastic.State(model=model, optimizer=optimizer, step=0)

@elastic.run
def train(state):
    open(f"began-{me}-{state.step}", "w").close()
    ddp = DistributedDataParallel(state.model)
    while state.step < 40:
        optimizer.zero_grad()
        loss = ddp(dt.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        state.step += 1
        dist.all_reduce(total := loss.detach().clone())
        state.commit()
        if me == 0:
            with open("../losses", "a") as f:
                f.write(f"{state.step} {total.item().hex()}\\n")
        while state.step == 20 and not os.path.exists("../on"):
            open(f"at20-{me}", "w").close()
            time.sleep(0.005)

train(state)
"""


def lines(folder) -> list[list[str]]:
    return [line.split() for line in (folder / "losses").read_text().splitlines()]


def started(job: Nodes, *flags: str) -> dict[int, str]:
    for name in "ab":
        job.start(name, *FLAGS, *flags)
        if name == "a":
            until(job.listens, job.endpoint)
    where = {}
    for rank in range(4):
        until(lambda r=rank: any((job.folder / n / f"at20-{r}").exists() for n in "ab"), f"{rank}")
        where[rank] = next(n for n in "ab" if (job.folder / n / f"at20-{rank}").exists())
    return where


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[list[str]]:
    """The losses of a job in which nothing fails."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "on").touch()
    with Nodes(folder, TRAIN) as job:
        for name in "ab":
            job.start(name, *FLAGS, "--nnodes", "2")
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
    return lines(folder)


def test_ranks_that_die_are_replaced_and_no_step_is_lost_or_repeated(tmp_path, whole):
    with Nodes(tmp_path, TRAIN) as job:
        where = started(job, "--nnodes", "2")
        for victim in (0, 3):
            pid = int((tmp_path / where[victim] / f"pid-{victim}").read_text())
            for rank, name in where.items():
                (tmp_path / name / f"began-{rank}-20").unlink(missing_ok=True)
            os.kill(pid, signal.SIGKILL)
            for rank, name in where.items():
                job.wait_for(name, f"began-{rank}-20")
        (tmp_path / "on").touch()
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
        assert "restart 1 of 2" in job.said("a") and "restart 2 of 2" in job.said("a")
    assert lines(tmp_path) == whole


def test_a_spare_takes_over_what_the_others_have_committed(tmp_path, whole):
    with Nodes(tmp_path, TRAIN) as job:
        where = started(job, "--nnodes", "2", "--spares", "1")
        job.start("c", *FLAGS, "--nnodes", "2", "--spares", "1")
        until(lambda: "this node is a spare" in job.said("c"), "c waits")
        job.kill("b")
        lost = [rank for rank, name in where.items() if name == "b"]
        for rank in lost:
            job.wait_for("c", f"began-{rank}-20")
        (tmp_path / "on").touch()
        assert [job.ended(n) for n in "ac"] == [0, 0], job.everything()
    found = lines(tmp_path)
    assert [step for step, _ in found] == [step for step, _ in whole]
    assert found[:20] == whole[:20]  # then the lost ranks' random numbers are new ones
