"""A job with data parallelism from shells of many kinds: what users, containers, schedulers and
machines set, limit, lack or get wrong. The same losses come out of each."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.dtrun import ROOT, Ended, dtrun
from support.rounding import Sums

SCRIPT = """
import disttrain as dt
from disttrain import distributed as dist, nn

dist.init_process_group()
rank = dist.get_rank()
dt.manual_seed(0)
model = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 1)).double()
parallel = dist.DistributedDataParallel(model)
optimizer = dt.optim.SGD(model.parameters(), lr=0.05)
x = dt.randn(16, 40, dtype=dt.float64)[rank::2]
for _ in range(4):
    loss = (parallel(x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach() / 2)
    if rank == 0:
        print(repr(loss.item()))
dist.destroy_process_group()
"""
SUMS = Sums(terms=64, depth=2 * 2 * 4)
STEPS = 4


@dataclass(frozen=True)
class Shell:
    """``prepare(folder)``: gives settings of ``dtrun``, with what is there while it runs;
    ``needs()``: what is missing for that, else nothing."""

    prepare: Callable[[Path], Any] = lambda folder: contextlib.nullcontext({})
    needs: Callable[[], str] = lambda: ""
    words: tuple = field(default=())  # a command that starts another one


def with_env(**env: str | None) -> Shell:
    return Shell(lambda folder: contextlib.nullcontext({"env": env}))


def root() -> str:
    return "root" if os.geteuid() else ""


def command(*names: str) -> Callable[[], str]:
    return lambda: next((name for name in names if shutil.which(name) is None), "")


def namespaces() -> str:
    """What is missing for namespaces of its own."""
    if missing := root() or command("unshare", "ip", "mount")():
        return missing
    tried = subprocess.run(["unshare", "-mnu", "mount", "-t", "tmpfs", "x", "/mnt"],
                           capture_output=True, text=True)  # fmt: skip
    return f"namespaces ({tried.stderr.strip()})" if tried.returncode else ""


def apart(kinds: str, script: str) -> Shell:
    """In namespaces of its own, after a few words of a shell."""
    words = ("unshare", kinds, "sh", "-ec", f'{script}; exec "$@"', "sh")
    return Shell(words=words, needs=namespaces)


def elsewhere() -> str:
    """Whether there is a file system besides that of temporary files."""
    here = os.stat("/tmp").st_dev
    return "" if os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_dev != here else "/dev/shm"


@contextlib.contextmanager
def on_another_file_system(folder: Path) -> Iterator[dict]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        yield {"env": {"TMPDIR": other}}
        assert os.listdir(other) == []


@contextlib.contextmanager
def with_wrong_clock(folder: Path) -> Iterator[dict]:
    library, clock = folder / "clock.so", folder / "clock"
    source = ROOT / "tests/injections/wall_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    clock.write_bytes(struct.pack("<d", -40 * 365 * 86400.0))
    yield {"env": {"LD_PRELOAD": str(library), "WALL_CLOCK": str(clock)}}


@contextlib.contextmanager
def beside_thirty(folder: Path) -> Iterator[dict]:
    spin = "import os; above = os.getppid()\nwhile os.getppid() == above: sum(range(100_000))"
    program = ["nice", "-n", "5", sys.executable, "-c", spin]  # (nice, or it takes minutes)
    busy = [subprocess.Popen(program) for _ in range(30)]
    try:
        yield {"timeout": 200}
    finally:
        for process in busy:
            process.kill()
            process.wait()


# The interpreter may lie where only root can read.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
          "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")  # fmt: skip


@contextlib.contextmanager
def as_nobody(folder: Path) -> Iterator[dict]:
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o777)
    yield {"env": {"HOME": "/nonexistent"}}


@contextlib.contextmanager
def where_nothing_can_be_written(folder: Path) -> Iterator[dict]:
    (folder / "cache").write_text("a file where a folder is wanted")
    yield {"env": {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder / "cache")}}


SHELLS = {
    "BLAS with four threads": with_env(OPENBLAS_NUM_THREADS="4", OMP_NUM_THREADS=None),
    "threads unset": with_env(OPENBLAS_NUM_THREADS=None, OMP_NUM_THREADS=None),
    "BLAS of Haswell": with_env(OPENBLAS_CORETYPE="Haswell"),
    "BLAS of Zen": with_env(OPENBLAS_CORETYPE="Zen"),
    "load 30": Shell(beside_thirty),
    "one core": Shell(words=("taskset", "-c", "0"), needs=command("taskset")),
    "a wrong clock": Shell(with_wrong_clock, needs=command("cc")),
    "no bytecode": with_env(PYTHONDONTWRITEBYTECODE="1"),
    "optimized twice": with_env(PYTHONOPTIMIZE="2"),
    "warnings are errors": with_env(PYTHONWARNINGS="error"),
    "debug allocator": with_env(PYTHONMALLOC="debug", PYTHONHASHSEED="7"),
    "another file system": Shell(on_another_file_system, needs=elsewhere),
    "nowhere to write": Shell(where_nothing_can_be_written),
    "HOME unset": with_env(HOME=None, XDG_CACHE_HOME=None, XDG_RUNTIME_DIR=None),
    "HOME is missing": with_env(HOME="/nonexistent", XDG_CACHE_HOME=None),
    "locale C": with_env(LC_ALL="C", LANG=None, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    "nothing set": Shell(words=("env", "-i"), needs=command("env")),
    "a proxy": with_env(http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9",
                        grpc_proxy="http://127.0.0.1:9", no_proxy=None),
    "SIGHUP ignored": Shell(words=("nohup",), needs=command("nohup")),
    "umask 077": Shell(words=("sh", "-c", 'umask 077; exec "$@"', "sh")),
    "few open files": Shell(words=("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")),
    "not root": Shell(as_nobody, lambda: root() or command("setpriv")(), NOBODY),
    "64 MB of /dev/shm": apart("-m", "mount -t tmpfs -o size=64m tmpfs /dev/shm"),
    "no /dev/shm": apart("-m", "mount -t tmpfs -o ro tmpfs /dev/shm"),
    "no IPv6": apart("-n", "ip link set lo up; ip -6 addr flush dev lo"),
    "a host without a name": apart("-u", "hostname nobody-knows"),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHELLS)
def test_a_job_from_a_shell(tmp_path, name, expected):
    shell = SHELLS[name]
    if missing := shell.needs():
        pytest.skip(f"this shell needs {missing}")
    with shell.prepare(tmp_path) as settings:
        if shell.words:
            settings["before"] = shell.words
        ended = dtrun(tmp_path, SCRIPT, "--nproc-per-node", "2", **settings)
    assert ended.code == 0, ended.err
    SUMS.equal(losses(ended), expected, err_msg=ended.err)


def losses(ended: Ended) -> list[float]:
    return [float(line.split()[-1]) for line in ended.out.splitlines()]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    ended = dtrun(tmp_path_factory.mktemp("plain"), SCRIPT, "--nproc-per-node", "2")
    found = losses(ended)
    assert len(found) == STEPS and (np.diff(found) < 0).all()
    return found
