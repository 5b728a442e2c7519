"""Jobs on several nodes: real agents and keepers, on this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import pytest

from disttrain.watch import stragglers
from disttrain_launcher.plan.membership import REFUSED, TIMED_OUT
from disttrain_launcher.worker.processes import descendants
from support.dtrun import until
from support.nodes import Nodes

TWO = ("--nnodes", "2", "--nproc-per-node")
RANKED = ("--rdzv-backend", "static", "--node-rank", "0")
ELASTIC = ("--nnodes", "1:2", "--nproc-per-node")
DAY = 86400  # nobody compares the wall clocks of two nodes

SUM = """
import json, os
import disttrain as dt
import disttrain.distributed as dist
from disttrain.comm.job.worker_env import read_worker_env
dist.init_process_group()
x = dt.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(x)
names = "LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE TORCHELASTIC_RUN_ID"
told = [x.tolist(), *(os.environ[name] for name in names.split()), read_worker_env().generation]
with open(f"rank{dist.get_rank()}", "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
"""

# Steps until a file is there; the first step of every world is told by a file.
STEPS = """
import os, sys, time
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group()
world, count = dist.get_world_size(), 0
while True:
    ends = dt.tensor([float(os.path.exists("../enough"))])
    dist.all_reduce(ends)
    count += 1
    if count == 2:
        restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
        open(f"stepped-{world}-{restarts}-{dist.get_rank()}", "w").close()
    if float(ends):
        break
    if os.path.exists(f"../fail-{dist.get_rank()}"):
        if dist.get_rank() == int(os.environ.get("FAILS", "-1")):
            os.unlink(f"../fail-{dist.get_rank()}")
            raise ValueError("no more")
    time.sleep(0.01)
dist.destroy_process_group()
"""


def test_uneven_nodes_are_one_job(tmp_path):
    with Nodes(tmp_path, SUM) as job:
        job.start("a", *TWO, "2", "--rdzv-id", "mine")
        job.start("b", *TWO, "1", "--rdzv-id", "mine", ahead=-DAY)
        assert (job.ended("a"), job.ended("b")) == (0, 0), job.everything()
        found = {}
        for name, count in (("a", 2), ("b", 1)):
            files = sorted((tmp_path / name).glob("rank*"))
            assert len(files) == count
            for local, file in enumerate(files):
                told = json.loads(file.read_text())
                assert told[0] == [6.0, 6.0]
                assert told[1:4] == [str(local), "3", str(count)]
                assert told[5:] == ["2", "mine", 1]
                found[file.name] = told[4]
        assert sorted(found) == ["rank0", "rank1", "rank2"]
        assert len(set(found.values())) == 2


def test_a_rank_that_fails_is_told_everywhere_and_restarts_all(tmp_path):
    with Nodes(tmp_path, STEPS) as job:
        for name, ahead in (("a", 0), ("b", DAY)):
            job.start(name, *TWO, "1", "--max-restarts", "1", ahead=ahead, FAILS="1")
        names = {r: n for n in "ab" for r in "01" if wait_for_rank(job, n, r)}
        (tmp_path / "fail-1").touch()
        for rank, name in names.items():
            job.wait_for(name, f"stepped-2-1-{rank}")
            text = f"rank 1 on node {os.uname().nodename}:{job.pids[names['1']]} failed"
            assert f"{text} (ValueError: no more); restart 1 of 1" in job.said(name)
        (tmp_path / "fail-1").touch()
        assert [job.ended(name) for name in "ab"] == [1, 1]
        there, here = job.said(names["0"]), job.said(names["1"])
        assert "PeerFailed" in there and "rank 1 failed: ValueError: no more" in there
        assert there.count("Root Cause") == here.count("Root Cause") == 1
        assert f"on node {os.uname().nodename}:{job.pids[names['1']]}" in there
        assert 'raise ValueError("no more")' in here.partition("Root Cause")[2]


def wait_for_rank(job: Nodes, name: str, rank: str) -> bool:
    """Whether the rank is that node's; both nodes have stepped by then."""
    files = [f"stepped-2-0-{r}" for r in "01"]
    until(lambda: any((job.folder / name / file).exists() for file in files), f"{name}: {files}")
    return (job.folder / name / f"stepped-2-0-{rank}").exists()


@pytest.mark.parametrize("how", ["agent", "front", "asked"])
def test_a_node_that_goes_leaves_the_others_at_work_and_another_one_may_come(tmp_path, how):
    with Nodes(tmp_path, STEPS) as job:
        job.start("a", *ELASTIC, "1")
        wait_until_it_listens(job)
        job.start("b", *ELASTIC, "1", ahead=DAY)
        job.wait_for("b", "stepped-2-0-1")
        if how == "agent":
            os.kill(job.agent("b"), signal.SIGKILL)
        elif how == "front":
            os.kill(job.pids["b"], signal.SIGKILL)
        else:
            os.kill(job.pids["b"], signal.SIGTERM)
        job.wait_for("a", "stepped-1-0-0")
        assert job.ended("b") == {"agent": 137, "front": -9, "asked": 143}[how]
        if how == "front":
            (tmp_path / "enough").touch()
            assert job.ended("a") == 0, job.everything()
            return
        said = "is lost: its dtrun was killed" if how == "agent" else "was asked to end (SIGTERM)"
        assert f"{said}; the job goes on with 1 nodes" in job.said("a")
        job.start("c", *ELASTIC, "1")
        job.wait_for("c", "stepped-2-0-1")
        (tmp_path / "enough").touch()
        assert (job.ended("a"), job.ended("c")) == (0, 0), job.everything()
        assert "joins" in job.said("a")


# Saves when any node is asked to end, node a slowly; a file tells the step.
SAVES = """
import os, sys, time
import disttrain as dt
import disttrain.distributed as dist
from disttrain.distributed import elastic
dist.init_process_group()
world, rank, step = dist.get_world_size(), dist.get_rank(), 0
while not elastic.termination_requested():
    step += 1
    if step == 2:
        open(f"stepped-{world}-{rank}", "w").close()
    if os.path.exists("../enough"):
        sys.exit(0)
    time.sleep(0.01)
if os.path.exists("slow"):
    time.sleep(0.7)
open(f"saved-{world}-{step}", "w").close()
sys.exit(3)
"""


@pytest.mark.parametrize("first", [False, True])
def test_all_nodes_save_one_step_when_one_is_asked_to_end(tmp_path, first):
    with Nodes(tmp_path, SAVES) as job:
        job.start("a", *ELASTIC, "1", "--on-term", "checkpoint")
        wait_until_it_listens(job)
        job.start("b", *ELASTIC, "1", "--on-term", "checkpoint")
        job.wait_for("b", "stepped-2-1")
        stays, goes = ("b", "a") if first else ("a", "b")
        (tmp_path / stays / "slow").touch()
        os.kill(job.pids[goes], signal.SIGTERM)
        assert job.ended(goes) == 143
        if first:
            assert job.ended(stays) == 143
        else:
            job.wait_for(stays, "stepped-1-0")
            (tmp_path / "enough").touch()
            assert job.ended(stays) == 0
            assert "was asked to end (SIGTERM); the job goes on with 1" in job.said(stays)
        steps = [[f.name for f in (tmp_path / n).glob("saved-*")] for n in "ab"]
        assert steps[0] == steps[1] and len(steps[0]) == 1, job.everything()


def wait_until_it_listens(job: Nodes) -> None:
    """The first node, of which the kernel is asked: who tries again and again to connect to a port
    may get itself at the other end."""
    until(job.listens, job.endpoint)


def test_the_first_node_ends_the_job_when_it_is_lost(tmp_path):
    with Nodes(tmp_path, STEPS) as job:
        job.start("a", *ELASTIC, "1")
        wait_until_it_listens(job)
        job.start("b", *ELASTIC, "1", "--max-restarts", "3")
        assert job.ended("b") == REFUSED and "differ in --max-restarts" in job.said("b")
        assert job.ended("a") == REFUSED and "differ in --max-restarts" in job.said("a")
        job.start("c", *ELASTIC, "1")
        wait_until_it_listens(job)
        job.start("d", *ELASTIC, "1")
        job.wait_for("d", "stepped-2-0-1")
        job.kill("c")
        assert job.ended("d") == TIMED_OUT
        assert "which has the job's rendezvous, is lost" in job.said("d")
        assert not os.path.exists(f"/proc/{job.pids['d']}")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (RANKED, RANKED, "both have --node-rank 0"),
        ((), ("--no-python",), "differ in the command"),
    ],
)
def test_nodes_that_do_not_fit_say_so_on_all(tmp_path, one, other, said):
    with Nodes(tmp_path, SUM) as job:
        job.start("a", *TWO, "1", *one)
        job.start("b", *TWO, "1", *other)
        assert [job.ended(name) for name in "ab"] == [REFUSED, REFUSED]
        for name in "ab":
            assert said in job.said(name)
            assert all(f":{pid}" in job.said(name) for pid in job.pids.values())


def test_another_job_is_refused_and_the_one_that_is_there_goes_on(tmp_path):
    with Nodes(tmp_path, SUM) as job:
        job.start("a", *TWO, "1", "--rdzv-id", "x")
        wait_until_it_listens(job)
        job.start("b", *TWO, "1", "--rdzv-id", "y")
        assert job.ended("b") == REFUSED and "to job x (--rdzv-id)" in job.said("b")
        job.start("c", *TWO, "1", "--rdzv-id", "x")
        assert (job.ended("a"), job.ended("c")) == (0, 0), job.everything()
        assert "a node was refused" in job.said("a")


def test_what_cannot_be_opened_is_told_at_once(tmp_path):
    with Nodes(tmp_path, SUM) as job, socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = f"localhost:{busy.getsockname()[1]}"
        for name, endpoint in (("a", "no.such.host.invalid:1"), ("b", "192.0.2.1:29400")):
            job.start(name, *TWO, "1", "--rdzv-endpoint", endpoint)
        job.start("c", *TWO, "1", "--rdzv-endpoint", taken)
        job.start("d", *TWO, "1", "--rdzv-conf", "join_timeout=0.5")
        assert [job.ended(name) for name in "abd"] == [REFUSED, REFUSED, TIMED_OUT]
        assert "the name 'no.such.host.invalid' is not known" in job.said("a")
        assert "--token-file" in job.said("b") and "head -c 32 /dev/urandom" in job.said("b")
        assert "1 of 2 nodes have come" in job.said("d")
        assert job.ended("c") == REFUSED
        assert f"by process {os.getpid()}" in job.said("c")


# Rank 1 does what its argument says at its tenth step, alone on its node.
ALONE = """
import os, signal, sys, time
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group()
rank, again = dist.get_rank(), int(os.environ["DISTTRAIN_GENERATION"]) > 1
for step in range(20):
    dist.all_reduce(dt.ones(2))
    if (rank, step, again) == (1, 10, False):
        if sys.argv[1] == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            pass
dist.destroy_process_group()
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize("does", ["stops", "loops"])
def test_a_rank_that_stands_still_alone_on_its_node_is_known_on_all(tmp_path, monkeypatch, does):
    monkeypatch.setattr(stragglers, "STALL", 3.0)  # of the nodes, which are forked from here
    with Nodes(tmp_path, ALONE) as job:
        for name, ranks in (("a", "1"), ("b", "1")):
            job.start(name, *TWO, ranks, "--max-restarts", "1", args=(does,))
        assert [job.ended(name, 90) for name in "ab"] == [0, 0], job.everything()
        told = [job.said(name) for name in "ab"]
        if does == "stops":
            assert all("rank 1 on node" in text and "stopped: state T" in text for text in told)
            assert all("restart 1 of 1" in text for text in told)
        else:
            assert all("all other ranks wait for rank 1 on node" in text for text in told)
            assert sum("for 3 s now in all_reduce" in text for text in told) >= 1


def test_a_job_whose_ranks_are_all_stopped_goes_on(tmp_path):
    """On all nodes, as a scheduler does that suspends it."""
    with Nodes(tmp_path, STEPS) as job:
        for name in "ab":
            job.start(name, *TWO, "1")
        owner = {r: n for n in "ab" for r in "01" if wait_for_rank(job, n, r)}
        ranks = [pid for n in owner.values() for pid in descendants(job.agent(n))]
        for number, seconds in ((signal.SIGSTOP, 5.0), (signal.SIGCONT, 0.5)):
            for pid in ranks:
                os.kill(pid, number)
            time.sleep(seconds)
        (tmp_path / "enough").touch()
        assert [job.ended(name) for name in "ab"] == [0, 0], job.everything()
        assert not any("failed" in job.said(name) for name in "ab")
