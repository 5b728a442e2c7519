"""How programs end that mpiexec has started: the right headline and exit code, nobody hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.mpi_job import MPIEXEC, mpi_env

pytestmark = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="MPICH's wheel is not installed (pip install 'disttrain[mpi]')"
)

PROGRAM = """
import os, sys
import numpy as np
from disttrain.distributed.groups import state
how, rank = sys.argv[1], None
if how == "before" and os.environ["PMI_RANK"] == "1":
    raise SystemExit("no data here")
state.init_process_group(sys.argv[2] if len(sys.argv) > 2 else None)
world = state.group.WORLD
x = np.ones(3)
world.all_reduce(x)
if world.rank == 0:
    print(world.transport.kind, world.size, x.tolist())
    with open("/proc/self/maps") as maps:
        shared = [line for line in maps if "/dev/shm/mpich_" in line]
    assert shared and all("(deleted)" in line for line in shared), "nothing to leave behind"
if how != "well" and world.rank == 1:
    if how == "raise":
        raise ValueError("on purpose")
    if how == "leave":
        os._exit(3)
    raise SystemExit(int(how))
world.all_reduce(x)
print("the end", flush=True)
if world.rank == 1:
    os._exit(0)
"""


def ended(folder, *args):
    (folder / "program.py").write_text(PROGRAM)
    command = [MPIEXEC, "-n", "2", sys.executable, folder / "program.py", *args]
    return subprocess.run(command, env=mpi_env(), capture_output=True, text=True, timeout=50)


def test_ranks_find_each_other_and_an_exception_is_the_headline(tmp_path):
    done = ended(tmp_path, "raise")
    assert done.returncode == 1, done
    assert done.stdout.startswith("shm 2 [2.0, 2.0, 2.0]"), "one host: shared memory"
    lines = done.stderr.splitlines()
    lines.remove("rank 0 ends, too: rank 1 failed: ValueError: on purpose")  # another pipe
    assert lines[0].startswith("rank 1 of 2 failed on ") and lines[1].startswith("Traceback")
    assert "ValueError: on purpose" in done.stderr


def test_an_exit_code_of_one_rank_is_that_of_the_job(tmp_path):
    done = ended(tmp_path, "3", "mpi")
    assert done.returncode == 3 and done.stdout.startswith("mpi 2 [2.0, 2.0, 2.0]"), done
    said = "rank 1 of 2 has ended its program with exit code 3"
    assert said in done.stderr
    failed, ended_too = done.stderr.index("rank 0 of 2 failed on "), done.stderr.index(said)
    assert "CollectiveMismatch" in done.stderr[failed:ended_too], "why, in one piece, comes first"


def test_a_rank_that_leaves_at_once_says_so(tmp_path):
    done = ended(tmp_path, "leave", "mpi")
    assert done.returncode == 3 and "rank 1 of 2 leaves by os._exit(3)" in done.stderr, done


def test_nobody_waits_in_mpi_init_for_a_rank_that_has_ended(tmp_path):
    done = ended(tmp_path, "before")
    assert done.returncode and "no data here" in done.stderr, done
    said = "rank 0 cannot begin: init_process_group waits in MPI_Init, and another rank of this"
    assert said in done.stderr


def test_a_rank_that_comes_to_its_end_early_fails_the_others(tmp_path):
    done = ended(tmp_path, "0", "mpi")
    assert done.returncode == 1 and "rank 1: has ended its program" in done.stderr, done


def test_a_program_may_end_without_leaving_its_groups(tmp_path):
    done = ended(tmp_path, "well", "mpi")
    assert done.returncode == 0 and not done.stderr, done
    assert done.stdout.count("the end") == 2, "a rank that leaves by os._exit(0) ends no other one"
