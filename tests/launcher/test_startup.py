"""What a plain program and a plain rank load: each module costs every start of every rank."""

import subprocess
import sys

import pytest

HEAVY = {"asyncio", "concurrent", "cryptography", "grpc", "llvmlite", "logging", "multiprocessing",
         "ssl", "statistics", "subprocess", "tempfile", "tqdm", "unittest", "zipfile"}  # fmt: skip
# Packages of ours that wait until a program names them.
LATER = ("amp", "board", "cli", "compat", "compile", "config", "cuda", "data", "distributions",
         "doctor", "func", "linalg", "metrics", "nn", "optim", "profiler", "rpc", "serialize",
         "testing", "comm.transports.fake", "comm.transports.mpi", "comm.transports.nccl",
         "comm.transports.sim", "comm.transports.tcp", "distributed.ddp", "distributed.fsdp",
         "distributed.tensor", "distributed.pipelining", "distributed.checkpoint")  # fmt: skip
LOADED = "import sys; print(*sorted(sys.modules))"
RANK = """
import sys
import disttrain as dt
dt.distributed.init_process_group()
x = dt.ones(4)
dt.distributed.all_reduce(x)
dt.distributed.destroy_process_group()
print(*sorted(sys.modules))
"""


def loaded(*words):
    """The modules that a program of ours prints, beyond those that numpy loads."""
    said = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    return set(said.stdout.split())


@pytest.fixture(scope="module")
def numpys():
    return loaded("-c", f"import numpy, ml_dtypes, ctypes; {LOADED}")


def below(package, modules):
    return sorted(m for m in modules if f"{m}.".startswith(f"disttrain.{package}."))


def test_a_plain_import(numpys):
    more = loaded("-c", f"import disttrain; {LOADED}") - numpys
    assert not more & HEAVY
    assert [m for p in (*LATER, "comm", "distributed", "watch") for m in below(p, more)] == []


def test_a_plain_rank(tmp_path, numpys):
    script = tmp_path / "plain.py"
    script.write_text(RANK)
    dtrun = ["-m", "disttrain_launcher", "--nproc-per-node", "1", str(script)]
    more = loaded(*dtrun) - numpys
    assert "disttrain.distributed" in more
    assert not more & HEAVY
    assert [m for p in LATER for m in below(p, more)] == []
    unused = {"disttrain.gpus", "disttrain_launcher.node.mpi", "disttrain_launcher.simulated"}
    assert not more & unused


def test_the_program_says_what_all_ranks_load_at_once(tmp_path):
    script = tmp_path / "names.py"
    script.write_text(f"# a program with optim and DataLoader\n{LOADED}\n")
    more = loaded("-m", "disttrain_launcher", "--nproc-per-node", "1", str(script))
    assert {"disttrain.optim", "disttrain.data"} <= more and "disttrain.distributed.ddp" not in more
