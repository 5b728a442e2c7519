"""A job that loses nodes and gets others ends with the curve of one that nothing happened to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from standins.etcd import StandIn

from disttrain import config
from disttrain.metrics import read_jsonl
from injections.goodput import records
from support.nodes import Nodes
from support.ranks import free_port
from training.loop import Trainer
from training.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
WORDS = ["--model.name=mlp", "--model.hidden=8", "--optim.lr=0.01", "--train.epochs=2"]
WORDS += ["--train.save_every=3", "--train.steps_per_epoch=16", "--log.every=1"]
WORDS += ["--log.tensorboard=false"]
ELASTIC = ("--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0.1,join_timeout=20")

# The training program, with time between its steps.
SLOW = """
import sys, time
import train
from training import loop
step = loop.Trainer._train_step
def slow(trainer, batches):
    time.sleep(0.06)
    return step(trainer, batches)
loop.Trainer._train_step = slow
sys.exit(train.main())
"""


@contextmanager
def meeting(kind: str) -> Iterator[tuple[str, ...]]:
    """The flags that say where nodes meet, beside what ``Nodes`` says."""
    if kind == "c10d":
        yield ELASTIC
        return
    pytest.importorskip("etcd3gw", reason="the extra etcd is not installed")
    with StandIn(1) as etcd:
        yield (*ELASTIC, "--rdzv-backend", "etcd", "--rdzv-endpoint", etcd.endpoint)


def wait_for(what: Callable[[], bool], job: Nodes) -> None:
    deadline = time.monotonic() + 40
    while not what():
        assert time.monotonic() < deadline, job.everything()
        time.sleep(0.02)


def steps_of(folder: Path) -> int:
    return max((r["step"] for r in records(folder)), default=0)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("kind", ["c10d", "etcd"])
def test_no_step_is_lost_or_done_twice(tmp_path, kind):
    alone = [*WORDS, f"--log.dir={tmp_path / 'alone'}", "--parallel.strategy=none"]
    whole = rows(Trainer(config.load(Settings, None, alone)).fit().run)
    folder = tmp_path / "runs"
    args = (*WORDS, f"--log.dir={folder}")
    with meeting(kind) as flags, Nodes(tmp_path, SLOW) as job:
        job.start("a", *flags, "--nproc-per-node", "1", args=args)
        wait_for(lambda: kind == "etcd" or job.listens(), job)
        job.start("b", *flags, "--nproc-per-node", "2", args=args)
        wait_for(lambda: steps_of(folder) >= 5, job)
        stays, goes = ("a", "b") if kind == "c10d" else first_and_last(job)
        job.kill(goes)
        at = steps_of(folder)
        wait_for(lambda: "goes on behind step" in job.said(stays), job)
        wait_for(lambda: steps_of(folder) >= min(at + 5, 30), job)
        job.start("c", *flags, "--nproc-per-node", "2", args=args)
        assert (job.ended(stays, 60), job.ended("c", 60)) == (0, 0), job.everything()
        said = job.said(stays) + job.said("c")
    assert [run.name for run in folder.iterdir()] == ["0001"], said
    found = rows(folder / "0001")
    assert found.keys() == whole.keys() and len(found) == 34, said
    assert list(found.values()) == pytest.approx(list(whole.values()), rel=1e-4)
    went_on = [int(at) for at in re.findall(r"goes on behind step (\d+) of 32", said)]
    assert len(set(went_on)) >= 2 and all(at >= 3 for at in went_on), said


def first_and_last(job: Nodes) -> tuple[str, str]:
    """(another node, the one of rank 0, which tells how far the run is)."""
    return ("b", "a") if "epoch" in job.said("a") or "strategy" in job.said("a") else ("a", "b")


def rows(run: Path) -> dict[tuple[str, int], float]:
    """The recorded losses; each thing is there once."""
    told = [r for r in read_jsonl(run / "metrics.jsonl") if r["kind"] != "resume"]
    found = {(r["kind"], r["step"]): r["loss"] for r in told}
    assert len(found) == len(told)
    return dict(sorted(found.items()))


# A program that does what docs/elastic.md says, and notes its steps.
ADVISED = """
import os, time
from pathlib import Path
import disttrain as dt
import disttrain.distributed as dist
os.chdir({folder!r})
dist.init_process_group()
dt.manual_seed(0)
model = dist.DistributedDataParallel(dt.nn.Linear(3, 1))
optimizer = dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
steps = 60
def train_one(step):
    time.sleep(0.04)
    optimizer.zero_grad()
    model(dt.full((2, 3), step / 60)).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        with open("steps", "a") as file:
            print(step, float(model.module.weight.sum()), file=file, flush=True)
{advice}
dist.destroy_process_group()
"""


@pytest.mark.timeout(100)
def test_the_documented_way_to_go_on(tmp_path):
    text = (DOCS / "elastic.md").read_text()
    block = re.search(r"```python\n(last = .*?)```", text, re.DOTALL)
    assert block, text
    advice = block[1]
    folder = tmp_path / "shared"
    folder.mkdir()
    program = ADVISED.replace("{folder!r}", repr(str(folder))).replace("{advice}", advice)

    def taken() -> list[list[str]]:
        path = folder / "steps"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    with Nodes(tmp_path, program) as job:
        job.start("a", *ELASTIC, "--nproc-per-node", "1")
        wait_for(lambda: job.listens(), job)
        job.start("b", *ELASTIC, "--nproc-per-node", "1")
        wait_for(lambda: len(taken()) > 15, job)
        job.kill("b")
        at = len(taken())
        wait_for(lambda: len(taken()) > at + 5, job)
        assert int(taken()[at][0]) >= 10, taken()  # from the last checkpoint on, not from step 0
        job.start("c", *ELASTIC, "--nproc-per-node", "1")
        assert (job.ended("a"), job.ended("c")) == (0, 0), job.everything()
        weights: dict[str, set[str]] = {}
        for step, weight in taken():
            weights.setdefault(step, set()).add(weight)
        assert sorted(map(int, weights)) == list(range(60))
        assert all(len(found) == 1 for found in weights.values())  # done again, it gave the same
        job.endpoint = f"localhost:{free_port()}"
        job.start("d", *ELASTIC, "--nproc-per-node", "1")
        wait_for(lambda: int(taken()[-1][0]) in range(5), job)  # another job begins anew
        job.kill("d")
