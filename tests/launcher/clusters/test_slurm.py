"""Whole jobs on a real Slurm of two nodes: srun, sbatch, time that ends, nodes that are lost."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from disttrain_launcher.clusters import slurm as cluster
from disttrain_launcher.clusters.tokens import derive, key_path, user_key
from support.clusters import slurm as slurm_cluster
from support.clusters.programs import ALL_REDUCE, SUM
from support.clusters.slurm import SlurmCluster
from support.dtrun import ROOT, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why := slurm_cluster.why_not()), reason=why or "-"),
]
DTRUN = str(Path(sys.executable).with_name("dtrun"))
SRUN = ("srun", "-N2", "--ntasks-per-node=1", DTRUN)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def job(slurm, tmp_path):
    """Runs Slurm's commands in a folder of the test's own, which is the user's home."""
    path = f"{Path(sys.executable).parent}:{slurm.env['PATH']}"
    env = {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        os.environ.pop(name, None)

    class Job:
        folder = tmp_path

        def script(self, text):
            (tmp_path / "train.py").write_text(text)

        def run(self, *words):
            return slurm.run(*words, cwd=tmp_path, env=env)

        def begin(self, *words):
            return slurm.begin(*words, cwd=tmp_path, env=env)

        def submit(self, *flags):
            """The number of a job that ``dtrun submit`` has submitted."""
            words = ("submit", "--to", "slurm", "--output", "out", *flags, "train.py")
            done = self.run(DTRUN, *words)
            assert done.returncode == 0, done.stderr
            return done.stdout.split()[-1]

        def output(self):
            return (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""

        def wait_for(self, text, seconds=30.0):
            deadline = time.monotonic() + seconds
            while text not in self.output():
                assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output()}"
                time.sleep(0.02)

        def wait_state(self, number, state, seconds=60.0):
            until(lambda: slurm.state(number) == state, f"{state} of {number}", seconds)

    slurm.wait_idle()
    return Job()


def test_srun_needs_no_other_flags(job):
    job.script(SUM)
    done = job.run(*SRUN, "--nproc-per-node", "2", "train.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[rank {r}] rank {r} of 4, node {r // 2}: sum 4" for r in range(4)
    ]


def test_a_failed_rank_is_the_jobs_headline_and_exit_code(job):
    job.script(SUM + "if rank == 1: raise ValueError('no such layer')\nstep()\n")
    done = job.run(*SRUN, "train.py")
    assert done.returncode == 1
    assert "ValueError: no such layer" in done.stderr
    assert "Root Cause" in done.stderr


def test_the_token_is_nowhere_to_be_read(job, slurm):
    """While the job runs: in no process' arguments or environment, and in no message of Slurm's."""
    job.script(SUM + "open('up', 'w').close()\nwhile not os.path.exists('go'): step()\n")
    process = job.begin(*SRUN, "train.py")
    until((job.folder / "up").exists, "the job")
    key = user_key(key_path({"HOME": str(job.folder)}))
    said = job.run("squeue", "--steps", "--noheader", "--format", "%i").stdout.split()
    step = next(word for word in said if re.fullmatch(r"\d+\.0", word))
    token = derive(key, f"slurm tests {step} 0")
    place = cluster.place(
        {"SLURM_JOB_ID": step[:-2], "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]",
         "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
         "SLURM_CLUSTER_NAME": "tests"}, str,
    )  # fmt: skip
    assert derive(key, place.label) == token, "that is what is looked for"
    looked, secret = 0, [token, token.hex().encode(), key, key.hex().encode()]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            told = b"".join(Path("/proc", entry, f).read_bytes() for f in ("cmdline", "environ"))
        except OSError:
            continue
        looked += b"SLURM_STEP_ID" in told
        assert not any(each in told for each in secret), entry
    assert looked >= 4, "two agents and two ranks"
    (job.folder / "go").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_scancel_ends_all_and_leaves_nothing(job, slurm):
    job.script(ALL_REDUCE + "print('up', flush=True)\nwhile True: step()\n")
    number = job.submit("--nnodes", "2", "--time", "10")
    job.wait_for("up")
    job.run("scancel", number)
    job.wait_state(number, "CANCELLED")
    until(lambda: not _of_job(number), "all processes of the job to end")
    time.sleep(1.0)
    assert slurm.state(number) == "CANCELLED", "it is not queued again"


SAVES = (
    ALL_REDUCE
    + """
from disttrain.distributed import elastic
first = int(open("saved").read()) if os.path.exists("saved") else 0
print(f"rank {rank} begins with {first}", flush=True)
for i in range(first, 10000):
    assert step() == world
    if elastic.termination_requested():
        if rank == 0:
            open("saved", "w").write(str(i + 1))
        print(f"rank {rank} has saved {i + 1}", flush=True)
        break
    if first and i == first + 20:
        print(f"rank {rank} is done", flush=True)
        break
"""
)


def test_before_its_time_is_up_a_job_saves_and_goes_on_later(job):
    """The time limit is a minute, Slurm's shortest; 50 s before it, SIGTERM comes."""
    job.script(SAVES)
    number = job.submit("--nnodes", "2", "--time", "1", "--save-time", "50")
    job.wait_for("rank 0 has saved", 70.0)
    job.wait_for("rank 1 is done", 90.0)
    job.wait_state(number, "COMPLETED")
    said = job.output()
    saved = re.findall(r"rank (\d) has saved (\d+)", said)
    assert [rank for rank, _ in sorted(saved)] == ["0", "1"] and len({n for _, n in saved}) == 1
    assert said.count(f"begins with {saved[0][1]}") == 2, "both go on where they were"
    assert "Traceback" not in said


def test_a_job_that_needs_all_nodes_is_started_again_when_one_is_lost(job, slurm):
    job.script(SUM + "open('up', 'w').close()\nwhile not os.path.exists('go'): step()\n")
    number = job.submit("--nnodes", "2", "--time", "10")
    until((job.folder / "up").exists, "the job")
    slurm.lose_node("n2")
    job.wait_state(number, "PENDING")
    slurm.start_node("n2")
    (job.folder / "go").touch()
    job.wait_state(number, "COMPLETED")
    assert job.output().count("rank 1 of 2, node 1: sum 2") == 2


def test_an_elastic_job_goes_on_with_the_nodes_that_are_left(job, slurm):
    job.script(
        ALL_REDUCE
        + """
print(f"world {world} steps: {step()}", flush=True)
while world == 2: step()
print("left alone", flush=True)
"""
    )
    number = job.submit("--nnodes", "1:2", "--sbatch=-N2", "--time", "10")
    job.wait_for("world 2 steps: 2")
    slurm.lose_node("n2")
    begun = time.monotonic()
    job.wait_for("world 1 steps: 1", 20.0)
    print(f"stepped again {time.monotonic() - begun:.1f} s after the loss")
    job.wait_state(number, "COMPLETED")
    assert "left alone" in job.output()
    slurm.start_node("n2")


def _of_job(number):
    mark, found = f"SLURM_JOB_ID={number}\0".encode(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path("/proc", entry, "environ").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found
