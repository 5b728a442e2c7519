"""Threads of the BLAS: pinned where bits depend on them, shared where ranks share a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disttrain.backends import blas
from disttrain.comm.job.worker_env import WorkerEnv, read_worker_env
from disttrain.distributed.groups.cores import share_cores
from disttrain_launcher.command.dispatch import THREAD_VARIABLES
from support.mpi_job import MPIEXEC

ROOT = Path(__file__).parents[3]

# Products whose sums OpenBLAS orders by its threads, forward and backward.
PROGRAM = """
import hashlib, sys
import disttrain as dt
import disttrain.distributed as dist
from disttrain import nn
dist.init_process_group()
dt.manual_seed(0)
model = nn.Sequential(nn.Linear(700, 300), nn.Tanh(), nn.Linear(300, 33))
net = dist.DistributedDataParallel(model, deterministic=MODE)
optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
for shard in range(8 // dist.get_world_size()):
    number = shard + dist.get_rank() * 8 // dist.get_world_size()
    generator = dt.Generator().manual_seed(number)
    net(dt.randn(300, 700, generator=generator)).square().mean().backward()
optimizer.step()
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
from disttrain.backends import blas
if dist.get_rank() == 0:
    print("bits", hashlib.sha256(bits).hexdigest(), blas.num_threads())
dist.destroy_process_group()
"""


def environment(threads: int | None) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in blas.VARIABLES}
    env["PYTHONPATH"] = str(ROOT)
    return env | ({} if threads is None else dict.fromkeys(blas.VARIABLES, str(threads)))


def run(folder: Path, start: list[str], threads: int | None, mode: str) -> tuple[str, str, str]:
    """What it prints of the weights, of the threads, and on stderr."""
    script = folder / "program.py"
    script.write_text(PROGRAM.replace("MODE", mode))
    ended = subprocess.run(
        [*start, str(script)], env=environment(threads),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    line = next(x for x in ended.stdout.splitlines() if "bits" in x)
    bits, threads_then = line.split()[-2:]
    return bits, threads_then, ended.stderr


PYTHON = [sys.executable]


def dtrun(ranks: int) -> list[str]:
    return [*PYTHON, "-m", "disttrain_launcher", "--nproc-per-node", str(ranks)]


@pytest.mark.timeout(120)
def test_global_determinism_depends_on_no_number_of_threads(tmp_path):
    """Nor on ranks, of which the launcher lets one take all cores, and two a core each."""
    found = [run(tmp_path, PYTHON, threads, "'global'") for threads in (1, 2)]
    found += [run(tmp_path, dtrun(ranks), None, "'global'") for ranks in (1, 2)]
    assert len({bits for bits, _, _ in found}) == 1
    assert {threads for _, threads, _ in found} == {"1"}


@pytest.mark.timeout(120)
@pytest.mark.skipif(not MPIEXEC.exists(), reason="there is no mpiexec beside this Python")
def test_ranks_that_mpiexec_starts_share_the_cores(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    mpi = [str(MPIEXEC), "-n", "2", *PYTHON]
    bits, threads, said = run(one, mpi, None, "None")
    assert threads == "1"
    if len(os.sched_getaffinity(0)) > 1:
        assert said.count("2 ranks share this machine, and OMP_NUM_THREADS is not set") == 1
    assert bits == run(two, dtrun(2), None, "None")[0]
    assert "share this machine" not in run(one, mpi, 1, "None")[2]


def place(**env: str) -> WorkerEnv:
    return read_worker_env(env)


MPICH = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


@pytest.fixture
def threads(monkeypatch):
    """What the BLAS was told."""
    told: list[int] = []
    monkeypatch.setattr(blas, "set_num_threads", lambda n: told.append(n) or True)
    monkeypatch.setattr(blas, "num_threads", lambda: 8)
    return told


@pytest.mark.parametrize(
    ("launched", "env", "shared"),
    [
        (MPICH, {}, True),
        ({**MPICH, "MPI_LOCALNRANKS": "1"}, {}, False),
        (MPICH, {"OMP_NUM_THREADS": "3"}, False),
        (MPICH, {"OPENBLAS_NUM_THREADS": "3"}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}, {}, True),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {}, False),  # torchrun's do
        ({}, {}, False),
    ],
)
def test_what_the_environment_says_holds(threads, capfd, launched, env, shared):
    before = dict(env)
    share_cores(place(**launched), env)
    assert threads == [1] * shared
    assert env == (dict.fromkeys(blas.VARIABLES, "1") if shared else before)
    assert ("set: BLAS takes one thread in each" in capfd.readouterr().err) == shared


def test_the_launcher_sets_the_same_variables():
    assert THREAD_VARIABLES == blas.VARIABLES


def test_threads_are_told_to_the_blas():
    before = blas.num_threads()
    assert before is not None, "numpy's own wheels have OpenBLAS"
    try:
        assert blas.set_num_threads(1) and blas.num_threads() == 1
    finally:
        blas.set_num_threads(before)
