"""The host, Python's packages, kernels and MPI: probes that ask one thing each."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import shutil
import signal
import sys
from collections.abc import Iterator

from ..backends import host
from .finding import Finding, child, first_line, ok, read, size, version

# -- the host --------------------------------------------------------------------------------------


def _system() -> Iterator[Finding]:
    group = "System"
    yield ok(group, "disttrain", version("disttrain") or "not installed (run from a checkout)")
    yield ok(group, "python", f"{platform.python_version()} ({sys.executable})")
    if sys.platform == "linux":
        yield ok(group, "system", f"Linux {platform.release()} {platform.machine()}")
    else:
        need = "shared memory, dtrun and the kernels are written for Linux"
        yield Finding(group, "system", "problem", platform.platform(), need)


def _processor() -> Iterator[Finding]:
    processor = host.cpu()
    widths = [f for f in ("avx512f", "avx2", "asimd") if f in processor.features]
    yield ok("Host", "processor", ", ".join([processor.model, processor.machine, *widths[:1]]))


def _cores() -> Iterator[Finding]:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = _cpu_quota()
    text = f"{usable} usable of {present}" if usable != present else f"{usable}"
    if quota is not None and quota < usable:
        text += f", limited to {quota:g} by the control group"
    yield ok("Host", "cores", text)


def _cpu_quota() -> float | None:
    """Cores that the control group grants, when it limits them."""
    words = read("/sys/fs/cgroup/cpu.max").split()
    if not words:
        words = [
            read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip(),
            read("/sys/fs/cgroup/cpu/cpu.cfs_period_us").strip(),
        ]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def _memory() -> Iterator[Finding]:
    info = dict(line.split(":", 1) for line in read("/proc/meminfo").splitlines())
    total, free = (int(info[k].split()[0]) * 1024 for k in ("MemTotal", "MemAvailable"))
    text = f"{size(total)}, {size(free)} free"
    limit = read("/sys/fs/cgroup/memory.max") or read("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    if limit.strip().isdigit() and int(limit) < total:
        text += f", limited to {size(int(limit))} by the control group"
    yield ok("Host", "memory", text)


def _shared_memory() -> Iterator[Finding]:
    try:
        disk = shutil.disk_usage("/dev/shm")
    except OSError as error:
        yield Finding("Host", "/dev/shm", "missing", str(error), "not needed: segments are memfds")
    else:
        yield ok("Host", "/dev/shm", f"{size(disk.total)}, {size(disk.free)} free")


def _memfd() -> Iterator[Finding]:
    enables = "shared memory between ranks (segments that nobody else can open, and cannot leak)"
    try:
        fd = os.memfd_create("disttrain-doctor", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, mmap.PAGESIZE)
            with mmap.mmap(fd, mmap.PAGESIZE) as segment:
                segment[0] = 1
        finally:
            os.close(fd)
    except (AttributeError, OSError) as error:
        yield Finding("Host", "memfd", "problem", str(error), enables, "Linux 3.17 or newer")
    else:
        yield ok("Host", "memfd", "works")


def _pidfd() -> Iterator[Finding]:
    enables = "noticing within milliseconds that a rank died"
    try:
        os.close(os.pidfd_open(os.getpid()))
        pidfd_works = hasattr(signal, "pidfd_send_signal")
    except (AttributeError, OSError) as error:
        yield Finding("Host", "pidfd", "problem", str(error), enables, "Linux 5.3 or newer")
    else:
        state = "ok" if pidfd_works else "problem"
        yield Finding("Host", "pidfd", state, "works" if pidfd_works else "no signals", enables)


def _limits() -> Iterator[Finding]:
    rows = (
        ("open files", resource.RLIMIT_NOFILE, 1024, "ulimit -n 4096", "many ranks on one host"),
        ("processes", resource.RLIMIT_NPROC, 256, "ulimit -u 4096", "many ranks on one host"),
        ("locked memory", resource.RLIMIT_MEMLOCK, 0, "", ""),
        ("file size", resource.RLIMIT_FSIZE, 1 << 30, "ulimit -f unlimited", "large checkpoints"),
    )
    for name, which, enough, install, enables in rows:
        soft, hard = resource.getrlimit(which)
        fine = soft == resource.RLIM_INFINITY or soft >= enough
        text = f"{_limit(soft)} (at most {_limit(hard)})"
        yield Finding("Host", name, "ok" if fine else "problem", text, enables, install)
    pids = read("/sys/fs/cgroup/pids.max") or read("/sys/fs/cgroup/pids/pids.max")
    if pids.strip().isdigit():
        yield ok("Host", "pids.max", f"{pids.strip()} (control group)")


# -- Python packages and libraries -----------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    for name in ("numpy", "ml-dtypes", "tqdm"):
        found = version(name)
        state = "ok" if found else "problem"
        install = f"pip install {name}"
        yield Finding("Python", name, state, found or "missing", "disttrain itself", install)
    for name, enables in (
        ("torch", "side-by-side benchmarks (scripts/bench); never used otherwise"),
        ("tensorboard", "looking at the event files that training writes"),
    ):
        found = version(name)
        state = "ok" if found else "missing"
        yield Finding("Python", name, state, found or "not found", enables, f"pip install {name}")


def _kernels() -> Iterator[Finding]:
    enables = "fused CPU kernels (elementwise chains, softmax, optimizers); numpy does them else"
    program = "import llvmlite.binding as b; print(b.llvm_version_info, b.get_host_cpu_name())"
    answer = child(program) if version("llvmlite") else ""
    if answer.startswith("("):
        numbers, _, cpu = answer.partition(") ")
        llvm = ".".join(numbers.strip("(").split(", "))
        text = f"llvmlite {version('llvmlite')}, LLVM {llvm}, {cpu}"
        yield ok("Kernels", "LLVM", text)
    else:
        text = answer or "not found"
        yield Finding("Kernels", "LLVM", "missing", text, enables, "pip install llvmlite")
    if host.libmvec() is not None:
        yield ok("Kernels", "libmvec", "vector exp, log, tanh of the C library")
    else:
        text = "not found; own polynomials stand in"
        needs = "needs glibc 2.22 or newer on x86-64"
        yield Finding("Kernels", "libmvec", "missing", text, "somewhat faster kernels", needs)


def _mpi() -> Iterator[Finding]:
    enables = "ranks that MPI starts and connects (mpiexec, srun, dtrun --backend mpi)"
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")  # from MPICH's wheel
    command = next(filter(None, map(shutil.which, (beside, "mpiexec", "mpirun"))), None)
    if command:
        yield ok("Communication", "mpiexec", f"{command}: {first_line([command, '--version'])}")
    else:
        install = "pip install 'disttrain[mpi]'    (or apt install mpich)"
        yield Finding("Communication", "mpiexec", "missing", "not found", enables, install)
    found = version("mpi4py")
    if found is None:
        install = "pip install 'disttrain[mpi]'"
        yield Finding("Communication", "mpi4py", "missing", "not found", enables, install)
        return
    program = "from mpi4py import MPI; print('+', MPI.Get_library_version().split('\\n')[0])"
    answer = child(program)
    text = f"{found}: {answer.lstrip('+ ').strip(chr(0))}"
    state = "ok" if answer.startswith("+") else "problem"
    yield Finding("Communication", "mpi4py", state, text, enables, "apt install mpich")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


PROBES = (
    _system,
    _processor,
    _cores,
    _memory,
    _shared_memory,
    _memfd,
    _pidfd,
    _limits,
    _packages,
    _kernels,
    _mpi,
)
