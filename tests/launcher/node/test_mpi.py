"""dtrun --backend mpi: mpiexec makes the ranks an MPI job, the reports stay dtrun's."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.node import mpi
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.job import make_plan
from support.dtrun import Job
from support.mpi_job import MPIEXEC

needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="MPICH's wheel is not installed (pip install 'disttrain[mpi]')"
)

SAY_WHAT_IS_SHARED = """
with open("/proc/self/maps") as maps:
    print("shares", *{word for line in maps for word in line.split() if "/dev/shm/" in word})
"""

TRAIN = f"""
import os, signal, sys
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group("mpi")
rank = dist.get_rank()
x = dt.ones(3) * (rank + 1)
dist.all_reduce(x)
print(dist.group.WORLD.transport.kind, dist.get_world_size(), x.tolist())
{SAY_WHAT_IS_SHARED}
if rank == 1 and sys.argv[1] == "raise":
    raise ValueError("on purpose")
if rank == 1 and sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(x)
"""


def left_of(out):
    """What the ranks have said that they shared, and what of it is still there."""
    paths = set(re.findall(r"/dev/shm/\S+", out))
    return paths, {path for path in paths if os.path.exists(path)}


def plan_of(*flags):
    return make_plan(parse([*flags, "script.py"], {}), 1234)


@needs_mpi
def test_ranks_are_an_mpi_job_and_a_failure_has_its_report(tmp_path):
    ended = Job(
        tmp_path, TRAIN, "--backend", "mpi", "--nproc-per-node", "2", args=("raise",)
    ).wait()
    assert ended.code == 1, ended
    assert "[rank 0] mpi 2 [3.0, 3.0, 3.0]" in ended.out and "[rank 1] mpi 2" in ended.out
    assert "rank      : 1" in ended.err and "cause     : ValueError: on purpose" in ended.err
    assert "rank 0: PeerFailed" in ended.err and "Abort" not in ended.err


@needs_mpi
def test_a_killed_rank_is_named_to_the_others_and_nothing_is_left(tmp_path):
    job = Job(tmp_path, TRAIN, "--backend", "mpi", "--nproc-per-node", "2", args=("kill",))
    ended = job.wait()
    shared, left = left_of(ended.out)
    assert shared and not left, "MPI's memory"
    assert ended.code == 137 and "killed by SIGKILL" in ended.err
    assert "rank 1 failed: killed by SIGKILL" in ended.err, "rank 0 has heard of it"
    job.all_gone()


@needs_mpi
def test_mpiexec_that_starts_nothing_says_why(tmp_path, monkeypatch):
    fake = tmp_path / "mpiexec"
    fake.write_text("#!/bin/sh\necho no room here >&2\nexit 7\n")
    fake.chmod(0o700)
    monkeypatch.setattr(mpi, "find_mpiexec", lambda: str(fake))
    shims = mpi.Shims(1)
    try:
        with pytest.raises(LaunchError, match=r"has ended before it started.*no room here"):
            shims._wait_for_shim(0)
    finally:
        shims.close()


def test_a_hostfile_names_hosts_and_slots(tmp_path):
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\nlocalhost slots=3\n\na.b.c:2  # as for mpiexec\nd slots=1 max_slots=4\ne\n"
    )
    assert mpi.read_hostfile(str(file)) == [("localhost", 3), ("a.b.c", 2), ("d", 1), ("e", 0)]
    file.write_text("a\nb slots=many\n")
    with pytest.raises(LaunchError, match="line 2: 'b slots=many'; needed is a host"):
        mpi.read_hostfile(str(file))
    file.write_text("# nobody\n")
    with pytest.raises(LaunchError, match="names no host"):
        mpi.read_hostfile(str(file))
    with pytest.raises(LaunchError, match="cannot be read"):
        mpi.read_hostfile(str(tmp_path / "none"))


def test_hosts_give_the_ranks_and_whether_the_agent_can_keep_them(tmp_path, monkeypatch):
    monkeypatch.setattr(mpi, "find_mpiexec", lambda: "/opt/bin/mpiexec")
    plan, file = plan_of("--backend", "mpi", "--nproc-per-node", "2"), tmp_path / "hosts"
    assert mpi.with_hosts(plan, None) == plan and plan.mpi
    file.write_text(f"localhost slots=3\n{os.uname().nodename}\n")
    here = mpi.with_hosts(plan, str(file))
    assert here.num_ranks == 5 and here.mpi_hosts == ()
    file.write_text("localhost slots=3\nelsewhere.example\n")
    spread = mpi.with_hosts(plan, str(file))
    assert spread.num_ranks == 5
    monkeypatch.setattr(mpi, "is_open_mpi", lambda mpiexec: False)
    command = mpi.command_between_hosts("mpiexec", spread)
    assert command[:6] == ["mpiexec", "-hosts", "localhost:3,elsewhere.example:2", "-n", "5",
                           "-prepend-rank"]  # fmt: skip
    assert command[-1] == "script.py"


def test_open_mpi_is_known_and_told_what_it_wants(tmp_path, monkeypatch):
    fake = tmp_path / "mpiexec"
    fake.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    fake.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    told = ["--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"]
    assert mpi.command(str(fake), 2, "name")[:6] == [str(fake), *told, "-n", "2"]
    plan = dataclasses.replace(plan_of("--backend", "mpi"), mpi_hosts=(("a", 2), ("b", 1)))
    command = mpi.command_between_hosts(str(fake), plan)
    assert command[4:9] == ["--host", "a:2,b:1", "-n", "3", "--tag-output"]
    fake.write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    assert mpi.command(str(fake), 2, "name")[:2] == [str(fake), "-n"]


def test_without_mpiexec_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi, "find_mpiexec", lambda: None)
    with pytest.raises(LaunchError, match=r"there is no mpiexec here.*pip install"):
        mpi.with_hosts(plan_of("--backend", "mpi"), None)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--backend", "smoke"], "mpi is needed"),
        (["--hostfile", "f"], "add --backend mpi"),
        (["--backend", "mpi", "--simulate", "4"], "simulated ranks are threads"),
    ],
)
def test_flags_that_mean_nothing_together(flags, message, capsys):
    with pytest.raises(SystemExit) as stop:
        plan_of(*flags)
    assert stop.value.code == 2 and message in capsys.readouterr().err


SHRINK = f"""
import os, signal, sys
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group(sys.argv[1])
rank, told = dist.get_rank(), ""
{SAY_WHAT_IS_SHARED}
pending = dist.all_reduce(dt.ones(100000), async_op=True)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(dt.ones(9) * 1)
except (dist.PeerFailed, dist.GroupRevoked) as error:
    before = dist.shrink()
x = dt.ones(3)
dist.all_reduce(x)
kind = dist.group.WORLD.transport.kind
dist.destroy_process_group()
dist.init_process_group(sys.argv[1])
dist.all_reduce(x)
print(kind, before, dist.get_rank(), x.tolist())
"""


@needs_mpi
@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_those_who_are_left_of_an_mpi_job_go_on_without_mpi(tmp_path, backend):
    flags = ("--backend", "mpi", "--nproc-per-node", "3", "--min-ranks", "2")
    job = Job(tmp_path, SHRINK, *flags, args=(backend,))
    ended = job.wait()
    assert ended.code == 0, ended
    for rank, number in ((0, 0), (2, 1)):
        assert f"[rank {rank}] shm [0, 2] {number} [4.0, 4.0, 4.0]" in ended.out
    assert ("the 2 ranks that are left go on over shared memory" in ended.err) == (backend == "mpi")
    shared, left = left_of(ended.out)
    assert bool(shared) == (backend == "mpi") and not left, "MPI's memory"
    job.all_gone()
