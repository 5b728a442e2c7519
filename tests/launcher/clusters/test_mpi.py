"""A whole job whose agents mpiexec has started, on two names of this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.starters.hostfile import command
from support.dtrun import ROOT
from support.mpi_job import MPIEXEC, mpi_env

SUM = """
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group()
x = dt.ones(1)
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {int(x.item())}", flush=True)
if dist.get_rank() == 3: raise ValueError("no such layer")
"""
NODES = ("-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", "1", "-n", "2")


needs_mpi = pytest.mark.skipif(not MPIEXEC.exists(), reason="there is no mpiexec here")


def dtrun_of(words):
    return [sys.executable, "-m", "disttrain_launcher", *words]


@needs_mpi
@pytest.mark.parametrize("by", ["mpiexec", "hostfile"])
def test_one_agent_on_each_machine(by, tmp_path):
    """They meet at the first one, and end with the code of the rank that failed."""
    (tmp_path / "train.py").write_text(SUM)
    (tmp_path / "hosts").write_text("localhost slots=2\n127.0.0.1\n")
    words = [MPIEXEC, *NODES, *dtrun_of(["--nproc-per-node", "2", "train.py"])]
    if by == "hostfile":
        words = dtrun_of(["--hostfile", "hosts", "--nproc-per-node", "2", "train.py"])
    env = mpi_env() | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False
    )
    said = sorted(line for line in done.stdout.splitlines() if "sum" in line)
    assert said == [f"[rank {r}] rank {r} of 4: sum 4" for r in range(4)], done.stderr
    assert "ValueError: no such layer" in done.stderr and done.returncode == 1
    assert Path(tmp_path, ".config", "disttrain", "key").stat().st_mode & 0o777 == 0o600


def test_every_host_of_a_file_gets_its_own_slots():
    words = command("mpiexec", False, [("a", 4), ("b", 0)], "2", ["--tee", "3", "t.py"])
    first, second = " ".join(words).split(" : ")
    assert first.startswith("mpiexec -hosts a,b -ppn 1 -n 1 ") and second.startswith("-n 1 ")
    assert first.endswith("--cluster mpi --nproc-per-node 4 --tee 3 t.py")
    assert second.endswith("--cluster mpi --nproc-per-node 2 --tee 3 t.py")
    assert "--host a:1,b:1" in " ".join(command("m", True, [("a", 4), ("b", 0)], "2", ["t.py"]))
    assert "--cluster" not in command("mpiexec", False, [("a", 4)], "2", ["t.py"])
    with pytest.raises(LaunchError, match="a is there twice; give it slots=N"):
        command("mpiexec", False, [("a", 1), ("a", 1)], "2", ["t.py"])
