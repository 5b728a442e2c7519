"""What the doctor says of a host: limits, quotas, memory, packages, from files that are made up."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace

import pytest

from disttrain.doctor import machine


@pytest.fixture
def files(monkeypatch):
    """What files of the system say."""
    told = {"/proc/meminfo": "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n"}
    monkeypatch.setattr(machine, "read", lambda path: told.get(path, ""))
    return told


def said(probe):
    return {f.name: f for f in probe()}


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ({"/sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"/sys/fs/cgroup/cpu.max": "100000 0\n"}, None),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
          "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_quota_of_a_control_group(files, given, cores):
    files.update(given)
    assert machine._cpu_quota() == cores


def test_cores_that_may_be_used(files, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert said(machine._cores)["cores"].value == "3 usable of 8"
    files["/sys/fs/cgroup/cpu.max"] = "150000 100000"
    assert said(machine._cores)["cores"].value.endswith(", limited to 1.5 by the control group")
    files["/sys/fs/cgroup/cpu.max"] = "900000 100000"
    assert "limited" not in said(machine._cores)["cores"].value
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert said(machine._cores)["cores"].value == "8"


def test_memory_and_its_limit(files):
    assert said(machine._memory)["memory"].value == "2.0 GiB, 1.0 GiB free"
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert "limited" not in said(machine._memory)["memory"].value
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        files.pop("/sys/fs/cgroup/memory.max", None)
        files[path] = f"{1 << 30}\n"
        assert said(machine._memory)["memory"].value.endswith(
            "limited to 1.0 GiB by the control group"
        )
    files["/sys/fs/cgroup/memory.max"] = str(1 << 60)
    files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = ""
    assert "limited" not in said(machine._memory)["memory"].value


def test_limits_that_are_too_low_are_problems(files, monkeypatch):
    low = {resource.RLIMIT_NOFILE: (64, 4096), resource.RLIMIT_NPROC: (256, 256)}
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: low.get(which, endless))
    found = said(machine._limits)
    assert (found["open files"].state, found["open files"].value) == (
        "problem",
        "64 (at most 4096)",
    )
    assert found["open files"].install == "ulimit -n 4096"
    assert found["processes"].state == "ok" and found["file size"].value.startswith("unlimited")
    assert "pids.max" not in found
    files["/sys/fs/cgroup/pids.max"] = "100\n"
    assert said(machine._limits)["pids.max"].value == "100 (control group)"


def test_what_a_kernel_lacks_is_told_with_what_it_takes(monkeypatch):
    def refuses(*args):
        raise OSError(38, "Function not implemented")

    assert said(machine._memfd)["memfd"].value == "works"
    monkeypatch.setattr(os, "memfd_create", refuses)
    monkeypatch.setattr(os, "pidfd_open", refuses)
    for probe, name, needed in (
        (machine._memfd, "memfd", "3.17"),
        (machine._pidfd, "pidfd", "5.3"),
    ):
        found = said(probe)[name]
        assert found.state == "problem" and needed in found.install
        assert "Function not implemented" in found.value
    monkeypatch.delattr(machine.signal, "pidfd_send_signal")
    monkeypatch.setattr(os, "pidfd_open", lambda pid: os.open("/dev/null", os.O_RDONLY))
    assert said(machine._pidfd)["pidfd"].value == "no signals"


def test_packages_that_are_needed_and_those_that_may_be_there(monkeypatch):
    monkeypatch.setattr(machine, "version", {"numpy": "2.0", "torch": "2.13"}.get)
    found = said(machine._packages)
    assert (found["numpy"].state, found["tqdm"].state, found["tqdm"].value) == (
        "ok",
        "problem",
        "missing",
    )
    assert (found["torch"].state, found["tensorboard"].state) == ("ok", "missing")
    assert found["tensorboard"].install == "pip install tensorboard"


def test_the_compiler_of_kernels_is_asked_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(machine, "version", lambda name: "0.44")
    monkeypatch.setattr(machine, "child", lambda program: "(15, 0, 7) skylake")
    monkeypatch.setattr(machine.host, "libmvec", lambda: None)
    found = said(machine._kernels)
    assert found["LLVM"].value == "llvmlite 0.44, LLVM 15.0.7, skylake"
    assert found["libmvec"].state == "missing" and "polynomials" in found["libmvec"].value
    monkeypatch.setattr(machine, "child", lambda program: "ImportError: broken")
    found = said(machine._kernels)["LLVM"]
    assert (found.state, found.value) == ("missing", "ImportError: broken")
    monkeypatch.setattr(machine, "version", lambda name: None)
    monkeypatch.setattr(machine, "child", lambda program: pytest.fail("asked"))
    assert said(machine._kernels)["LLVM"].value == "not found"


def test_mpi_is_looked_for_beside_python_first(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: name if "/" in name else None)
    monkeypatch.setattr(machine, "first_line", lambda command: f"asked {command[1]}")
    monkeypatch.setattr(machine, "version", lambda name: None)
    found = said(machine._mpi)
    assert found["mpiexec"].value.endswith("bin/mpiexec: asked --version")
    assert found["mpi4py"].state == "missing" and "disttrain[mpi]" in found["mpi4py"].install
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    monkeypatch.setattr(machine, "version", lambda name: "4.0")
    for answer, state in (
        ("+ MPICH Version: 4.1\0", "ok"),
        ("RuntimeError: no library", "problem"),
    ):
        monkeypatch.setattr(machine, "child", lambda program, a=answer: a)
        found = said(machine._mpi)
        assert found["mpiexec"].state == "missing" and found["mpi4py"].state == state
        assert found["mpi4py"].value.startswith("4.0: ") and "\0" not in found["mpi4py"].value


def test_another_system_is_a_problem(monkeypatch):
    monkeypatch.setattr(machine, "sys", SimpleNamespace(platform="darwin", executable="python"))
    assert said(machine._system)["system"].state == "problem"
    missing = SimpleNamespace(disk_usage=lambda path: (_ for _ in ()).throw(OSError(2, "none")))
    monkeypatch.setattr(machine, "shutil", missing)
    found = said(machine._shared_memory)["/dev/shm"]
    assert found.state == "missing" and "not needed" in found.enables
