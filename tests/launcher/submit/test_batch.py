"""The script for sbatch: what it asks for, and what it starts."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest

from disttrain_launcher.submit.batch import script
from disttrain_launcher.submit.job import Job, Slurm

JOB = Job("train", ("train.py", "--name", "a b"), ("--max-restarts", "3"), (2, 2))


def asked(job: Job, slurm: Slurm | None = None) -> list[str]:
    lines = script(job, slurm or Slurm()).splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_only_what_is_wanted_is_asked_for():
    assert asked(JOB) == [
        "--job-name=train", "--nodes=2", "--ntasks-per-node=1", "--output=%x-%j.out",
        "--open-mode=append", "--signal=TERM@120", "--requeue",
    ]  # fmt: skip


def test_everything_that_can_be_asked_for():
    job = replace(JOB, gpus=8, cpus=16, memory="64G", save_time=30)
    found = asked(job, Slurm("1:00:00", "big", "me", "out", ("--exclusive",)))
    for line in (
        "gpus-per-node=8", "cpus-per-task=16", "mem=64G", "time=1:00:00", "partition=big",
        "account=me", "output=out", "signal=TERM@30", "exclusive",
    ):  # fmt: skip
        assert f"--{line}" in found


def test_the_program_is_started_on_every_node_with_its_words_kept():
    text = script(JOB, Slurm())
    assert "\nsrun dtrun --max-restarts 3 train.py --name 'a b' || code=$?" in text


def test_fewer_nodes_are_enough():
    job = replace(JOB, nodes=(2, 4), cpus=3)
    assert "--nodes=2-4" in asked(job) and "--no-kill" in asked(job)
    assert (
        'srun --no-kill --kill-on-bad-exit=0 --cpus-per-task=3 dtrun --nnodes 2:"$SLURM_JOB_NUM'
        '_NODES" --max-restarts'
    ) in script(job, Slurm())


def test_it_is_queued_again_as_often_as_wanted():
    assert "$code == 143 && ${SLURM_RESTART_COUNT:-0} -lt 7" in script(
        replace(JOB, restarts=7), Slurm()
    )


def test_setup_comes_before_the_job():
    text = script(JOB, Slurm(setup=("module load python",)))
    assert text.index("module load python") < text.index("srun dtrun")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_it_is_shell():
    text = script(replace(JOB, nodes=(1, 4)), Slurm(setup=("export A=1",)))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
