"""Spare nodes: a node that waits takes the place of one that is lost, with its rank numbers."""

from __future__ import annotations

import os
import signal

import pytest

from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.membership import LOST_QUORUM
from support.dtrun import until
from support.nodes import Nodes

TWO = ("--nnodes", "2", "--nproc-per-node", "1", "--spares", "1")

# Trains from its checkpoint on; every step of every generation is written down.
TRAIN = """
import os
from pathlib import Path
import disttrain as dt
import disttrain.distributed as dist
from disttrain.distributed import DistributedDataParallel

dist.init_process_group()
rank, path = dist.get_rank(), Path("../saved")
dt.manual_seed(0)
model = dt.nn.Linear(4, 1)
optimizer = dt.optim.SGD(model.parameters(), 0.05, momentum=0.9)
step = 0
if path.exists():
    kept = dt.load(path)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    step = kept["step"]
ddp = DistributedDataParallel(model)
open(f"began-{rank}-{step}", "w").close()
while step < 40:
    dt.manual_seed(1000 * step + rank)
    x = dt.randn(8, 4)
    optimizer.zero_grad()
    loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    step += 1
    dist.all_reduce(loss := loss.detach())
    if rank == 0:
        with open("../losses", "a") as file:
            file.write(f"{step} {float(loss).hex()}\\n")
        if step % 5 == 0:
            dt.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                     "step": step}, "../new")
            os.rename("../new", path)
    dist.barrier()
    while step == 20 and not os.path.exists("../on"):
        open(f"at20-{rank}", "w").close()
        import time; time.sleep(0.005)
dist.destroy_process_group()
"""


def losses(folder) -> dict[int, str]:
    return dict(line.split() for line in (folder / "losses").read_text().splitlines())


def started(job: Nodes, *names: str) -> None:
    job.start(names[0], *TWO)
    until(job.listens, job.endpoint)
    for name in names[1:]:
        job.start(name, *TWO)


def test_a_spare_takes_the_place_of_a_lost_node_and_the_losses_go_on_as_without(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "on").touch()
    with Nodes(whole, TRAIN) as job:
        started(job, "a", "b")
        assert [job.ended(n) for n in "ab"] == [0, 0], job.everything()
    with Nodes(tmp_path, TRAIN) as job:
        started(job, "a", "b")
        owner = {}
        for rank in "01":
            until(lambda r=rank: any((tmp_path / n / f"at20-{r}").exists() for n in "ab"), rank)
            owner[rank] = next(n for n in "ab" if (tmp_path / n / f"at20-{rank}").exists())
        job.start("c", *TWO)
        until(lambda: "this node is a spare" in job.said("c"), "c waits")
        lost = "b"
        rank = next(r for r, n in owner.items() if n == lost)
        job.kill(lost)
        job.wait_for("c", f"began-{rank}-20")
        (tmp_path / "on").touch()
        assert [job.ended(n) for n in "ac"] == [0, 0], job.everything()
        name = f"{os.uname().nodename}:{job.pids['c']}"
        assert f"is lost; node {name} takes its place (node {rank})" in job.said("a")
        stays = next(r for r, n in owner.items() if n == "a")
        assert (tmp_path / "a" / f"began-{stays}-20").exists()
    assert losses(tmp_path) == losses(whole) and len(losses(whole)) == 40


def test_a_spare_that_was_not_needed_ends_well_and_one_that_dies_is_no_loss(tmp_path):
    with Nodes(tmp_path, TRAIN) as job:
        started(job, "a", "b")
        until(lambda: any((tmp_path / n / "at20-0").exists() for n in "ab"), "step 20")
        for name in "cd":
            job.start(name, *TWO)
            until(lambda n=name: "this node is a spare" in job.said(n), f"{name} waits")
        job.kill("c")
        (tmp_path / "on").touch()
        assert [job.ended(n) for n in "abd"] == [0, 0, 0], job.everything()
        assert "this node was a spare, and was not needed" in job.said("d")
        assert "lost" not in job.said("a")


def test_a_spare_may_come_late_and_more_losses_than_spares_end_the_job(tmp_path):
    with Nodes(tmp_path, TRAIN) as job:
        started(job, "a", "b")
        until(lambda: all(any((tmp_path / n / f"at20-{r}").exists() for n in "ab") for r in "01"),
              "step 20")  # fmt: skip
        os.kill(job.agent("b"), signal.SIGKILL)
        until(lambda: "waiting for a spare (--spares): 1 of 2 nodes" in job.said("a"), "a waits")
        job.start("c", *TWO)
        until(lambda: list((tmp_path / "c").glob("began-*-20")), "c begins")
        os.kill(job.agent("c"), signal.SIGKILL)
        assert job.ended("a") == LOST_QUORUM
        assert "1 of at least 2 nodes (--nnodes) are left" in job.said("a")


@pytest.mark.simulated
def test_what_spares_need_is_checked(capsys):
    options = parse(["--nnodes", "2", "--spares", "1", "--rdzv-backend", "c10d", "x.py"], {})
    assert options.rendezvous is not None and options.rendezvous.spares == 1
    assert parse(["--spares", "1", "x.py"], {}).rendezvous is not None
    for words in (["--spares", "-1"], ["--standalone", "--spares", "1"], ["--spares", "x"]):
        with pytest.raises(SystemExit):
            parse([*words, "x.py"], {})
        assert "--spares" in capsys.readouterr().err
