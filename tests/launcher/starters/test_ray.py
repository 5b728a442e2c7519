"""Whole jobs on a real Ray of a head and two machines; a machine is removed and another one added
while a job runs."""

import os
import re
import signal
import threading
import time

import pytest

from support.clusters import ray as ray_cluster
from support.clusters.programs import ALL_REDUCE, SUM
from support.clusters.ray import RayCluster
from support.dtrun import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why := ray_cluster.why_not()), reason=why or "-"),
]


@pytest.fixture(scope="module")
def ray():
    with RayCluster(nodes=2) as made:
        yield made


class Running:
    """A job whose output is read as it comes."""

    def __init__(self, process):
        self.process, self.said, self.err = process, "", ""
        self.readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True)
            for name in ("stdout", "stderr")
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, name):
        for line in getattr(self.process, name):
            if name == "stdout":
                self.said += line
            else:
                self.err += line

    def wait_for(self, text, seconds=60.0):
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.said}\n{self.err}"
            assert self.process.poll() is None, f"ended without {text!r}:\n{self.said}\n{self.err}"
            time.sleep(0.02)

    def wait(self, seconds=60.0):
        code = self.process.wait(seconds)
        for reader in self.readers:
            reader.join(5.0)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def start(ray, tmp_path):
    running = []

    def begin(script, *flags):
        running.append(Running(ray.dtrun(tmp_path, script, *flags)))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
            each.wait()


def test_one_agent_on_each_machine(start):
    job = start(SUM, "--nnodes", "2", "--nproc-per-node", "2")
    assert job.wait() == 0, job.err
    assert sorted(job.said.splitlines()) == [
        f"[rank {r}] rank {r} of 4, node {r // 2}: sum 4" for r in range(4)
    ]


def test_a_failed_rank_is_the_jobs_headline_and_exit_code(start):
    job = start(SUM + "if rank == 1: sys.exit(7)\nstep()\n", "--nnodes", "2")
    assert job.wait() == 7, job.err
    assert "Root Cause" in job.err and "exit code 7" in job.err


def test_a_signal_reaches_the_ranks(start):
    job = start(SUM + "while True: step()\n", "--nnodes", "2")
    job.wait_for("sum 2")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(30.0) == 143


def test_a_machine_is_lost_and_another_one_takes_its_place(start, ray, tmp_path):
    """With one node at least: the other one goes on alone, and when Ray has a machine again, in
    two."""
    script = (
        ALL_REDUCE
        + f"""
print(f"world {{world}} of {{os.environ['GROUP_WORLD_SIZE']}}: {{step()}}", flush=True)
while not os.path.exists({str(tmp_path / "end")!r}): step()
print("done", flush=True)
"""
    )
    job = start(script, "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=5")
    job.wait_for("world 2 of 2: 2")
    ray.lose(0)
    begun = time.monotonic()
    job.wait_for("world 1 of 1: 1")
    print(f"stepped again {time.monotonic() - begun:.1f} s after the loss")
    before = job.said.count("world 2 of 2: 2")
    ray.add()
    begun = time.monotonic()
    until(lambda: job.said.count("world 2 of 2: 2") > before, "a world of two again", 90.0)
    print(f"two nodes again {time.monotonic() - begun:.1f} s after a machine was added")
    (tmp_path / "end").touch()
    assert job.wait() == 0, job.err
    assert re.search(r"node \d of the job is lost for Ray", job.err)


def test_who_waits_for_machines_is_told(start, ray):
    job = start(SUM, "--nnodes", "3")
    until(lambda: "waiting for 3 machines" in job.err, "the notice", 30.0)
    job.process.send_signal(signal.SIGINT)
    assert job.wait(30.0) == 130


def test_nothing_of_a_job_outlives_its_driver(start):
    job = start(SUM + "while True: step()\n", "--nnodes", "2")
    job.wait_for("sum 2")
    run_id = re.escape(f"--rdzv-id{chr(0)}ray-")
    job.process.send_signal(signal.SIGKILL)
    job.wait()
    until(lambda: not _with(run_id), "agents and ranks to end", 30.0)


def _with(pattern):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as words:
                found += [entry] if re.search(pattern, words.read()) else []
        except OSError:
            continue
    return found
