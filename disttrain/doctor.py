"""What this machine has, and what each missing thing would enable: ``disttrain doctor``.

Every probe answers with one ``Finding`` and never raises: a broken driver is a finding too. Probes
that load foreign libraries (MPI, CUDA) run in a child process, because such a library may print,
hang or take the process with it. This file changes nothing on the machine, and no part of the
training code depends on it.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import mmap
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from .backends import host

_CHILD_SECONDS = 20.0
_GPU = "training on NVIDIA GPUs, once that is supported (this version trains on the CPU)"


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is ``ok``, ``missing`` (optional) or ``problem``.

    ``enables`` and ``install`` say, for what is not ok, what it would make possible and how.
    """

    group: str
    name: str
    state: str
    value: str
    enables: str = ""
    install: str = ""


def examine() -> list[Finding]:
    """All findings, in the order of the report."""
    return [finding for probe in _PROBES for finding in _guarded(probe)]


def report(findings: list[Finding]) -> str:
    """The findings as text for a terminal."""
    lines: list[str] = []
    group = ""
    wide = max(len(f.name) for f in findings)
    for f in findings:
        if f.group != group:
            group = f.group
            lines += ["", group] if lines else [group]
        mark = {"ok": "  ok      ", "missing": "  -       ", "problem": "  PROBLEM "}[f.state]
        lines.append(f"{mark}{f.name:<{wide}}  {f.value}")
        if f.state != "ok" and f.enables:
            lines.append(f"{'':<{wide + 12}}{f.enables}")
        if f.state != "ok" and f.install:
            lines.append(f"{'':<{wide + 12}}-> {f.install}")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    """The findings as a JSON array of objects."""
    return json.dumps([asdict(f) for f in findings], indent=2)


def _guarded(probe: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(probe())
    except Exception as error:  # a probe of a foreign part may fail in any way: report, go on
        name = probe.__name__.strip("_").replace("_", " ")
        return [Finding("Problems", name, "problem", f"{type(error).__name__}: {error}")]


def _ok(group: str, name: str, value: str) -> Finding:
    return Finding(group, name, "ok", value)


# -- the host --------------------------------------------------------------------------------------


def _system() -> Iterator[Finding]:
    group = "System"
    yield _ok(group, "disttrain", _version("disttrain") or "not installed (run from a checkout)")
    yield _ok(group, "python", f"{platform.python_version()} ({sys.executable})")
    if sys.platform == "linux":
        yield _ok(group, "system", f"Linux {platform.release()} {platform.machine()}")
    else:
        need = "shared memory, dtrun and the kernels are written for Linux"
        yield Finding(group, "system", "problem", platform.platform(), need)


def _processor() -> Iterator[Finding]:
    processor = host.cpu()
    widths = [f for f in ("avx512f", "avx2", "asimd") if f in processor.features]
    yield _ok("Host", "processor", ", ".join([processor.model, processor.machine, *widths[:1]]))


def _cores() -> Iterator[Finding]:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = _cpu_quota()
    text = f"{usable} usable of {present}" if usable != present else f"{usable}"
    if quota is not None and quota < usable:
        text += f", limited to {quota:g} by the control group"
    yield _ok("Host", "cores", text)


def _cpu_quota() -> float | None:
    """Cores that the control group grants, when it limits them."""
    words = _read("/sys/fs/cgroup/cpu.max").split()
    if not words:
        words = [
            _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip(),
            _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us").strip(),
        ]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def _memory() -> Iterator[Finding]:
    info = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines())
    total, free = (int(info[k].split()[0]) * 1024 for k in ("MemTotal", "MemAvailable"))
    text = f"{_size(total)}, {_size(free)} free"
    limit = _read("/sys/fs/cgroup/memory.max") or _read(
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    if limit.strip().isdigit() and int(limit) < total:
        text += f", limited to {_size(int(limit))} by the control group"
    yield _ok("Host", "memory", text)


def _shared_memory() -> Iterator[Finding]:
    try:
        disk = shutil.disk_usage("/dev/shm")
    except OSError as error:
        yield Finding("Host", "/dev/shm", "missing", str(error), "not needed: segments are memfds")
    else:
        yield _ok("Host", "/dev/shm", f"{_size(disk.total)}, {_size(disk.free)} free")


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
        yield _ok("Host", "memfd", "works")


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
    pids = _read("/sys/fs/cgroup/pids.max") or _read("/sys/fs/cgroup/pids/pids.max")
    if pids.strip().isdigit():
        yield _ok("Host", "pids.max", f"{pids.strip()} (control group)")


# -- Python packages and libraries -----------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    for name in ("numpy", "ml-dtypes", "tqdm"):
        version = _version(name)
        state = "ok" if version else "problem"
        install = f"pip install {name}"
        yield Finding("Python", name, state, version or "missing", "disttrain itself", install)
    for name, enables in (
        ("torch", "side-by-side benchmarks (scripts/bench); never used otherwise"),
        ("tensorboard", "looking at the event files that training writes"),
    ):
        version = _version(name)
        state = "ok" if version else "missing"
        yield Finding("Python", name, state, version or "not found", enables, f"pip install {name}")


def _kernels() -> Iterator[Finding]:
    enables = "fused CPU kernels (elementwise chains, softmax, optimizers); numpy does them else"
    program = "import llvmlite.binding as b; print(b.llvm_version_info, b.get_host_cpu_name())"
    answer = _child(program) if _version("llvmlite") else ""
    if answer.startswith("("):
        numbers, _, cpu = answer.partition(") ")
        llvm = ".".join(numbers.strip("(").split(", "))
        text = f"llvmlite {_version('llvmlite')}, LLVM {llvm}, {cpu}"
        yield _ok("Kernels", "LLVM", text)
    else:
        text = answer or "not found"
        yield Finding("Kernels", "LLVM", "missing", text, enables, "pip install llvmlite")
    if host.libmvec() is not None:
        yield _ok("Kernels", "libmvec", "vector exp, log, tanh of the C library")
    else:
        text = "not found; own polynomials stand in"
        needs = "needs glibc 2.22 or newer on x86-64"
        yield Finding("Kernels", "libmvec", "missing", text, "somewhat faster kernels", needs)


def _mpi() -> Iterator[Finding]:
    enables = "ranks that MPI starts and connects (mpiexec, srun, dtrun --backend mpi)"
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")  # from MPICH's wheel
    command = next(filter(None, map(shutil.which, (beside, "mpiexec", "mpirun"))), None)
    if command:
        yield _ok("Communication", "mpiexec", f"{command}: {_first_line([command, '--version'])}")
    else:
        install = "pip install 'disttrain[mpi]'    (or apt install mpich)"
        yield Finding("Communication", "mpiexec", "missing", "not found", enables, install)
    version = _version("mpi4py")
    if version is None:
        install = "pip install 'disttrain[mpi]'"
        yield Finding("Communication", "mpi4py", "missing", "not found", enables, install)
        return
    program = "from mpi4py import MPI; print('+', MPI.Get_library_version().split('\\n')[0])"
    answer = _child(program)
    text = f"{version}: {answer.lstrip('+ ').strip(chr(0))}"
    state = "ok" if answer.startswith("+") else "problem"
    yield Finding("Communication", "mpi4py", state, text, enables, "apt install mpich")


def _cuda() -> Iterator[Finding]:
    yield _driver()
    answer = _child(
        "import cupy as c; r = c.cuda.runtime; print('+', c.__version__, 'runtime',"
        " r.runtimeGetVersion(), 'devices', r.getDeviceCount())"
    )
    install = "pip install cupy-cuda12x nvidia-nccl-cu12"
    yield _foreign("cupy", answer, _GPU, install)
    answer = _child("from cupy.cuda import nccl; print('+', nccl.get_version())")
    yield _foreign("NCCL", answer, f"collectives between GPUs; {_GPU}", install)


_DRIVER = """
import ctypes as c
lib = c.CDLL("libcuda.so.1")
code = lib.cuInit(0)
version, count = c.c_int(), c.c_int()
lib.cuDriverGetVersion(c.byref(version))
lib.cuDeviceGetCount(c.byref(count))
names = []
for i in range(count.value if code == 0 else 0):
    name, total, dev = c.create_string_buffer(100), c.c_size_t(), c.c_int()
    lib.cuDeviceGet(c.byref(dev), i)
    lib.cuDeviceGetName(name, 100, dev)
    lib.cuDeviceTotalMem_v2(c.byref(total), dev)
    names.append(f"{name.value.decode()} {total.value / 2**30:.0f} GiB")
v = version.value
print("+" if code == 0 and names else f"error {code}:", f"CUDA {v // 1000}.{v % 1000 // 10},",
      f"{len(names)} devices:", ", ".join(names))
"""


def _driver() -> Finding:
    install = "install NVIDIA's driver (https://www.nvidia.com/drivers)"
    if not _library("libcuda.so.1"):
        smi = shutil.which("nvidia-smi")
        text = f"no libcuda.so.1, but {smi}" if smi else "no libcuda.so.1, no nvidia-smi"
        return Finding("GPU", "driver", "missing", text, _GPU, install)
    answer = _child(_DRIVER)
    if answer.startswith("+"):
        return _ok("GPU", "driver", answer.lstrip("+ "))
    return Finding("GPU", "driver", "missing", answer or "does not answer", _GPU, install)


def _foreign(name: str, answer: str, enables: str, install: str) -> Finding:
    if answer.startswith("+"):
        return _ok("GPU", name, answer.lstrip("+ "))
    absent = "No module named" in answer or not answer
    text = "not found" if absent else answer
    return Finding("GPU", name, "missing", text, enables, install)


# -- small helpers ---------------------------------------------------------------------------------


def _child(program: str) -> str:
    """The last line that ``program`` prints in a fresh interpreter, or its error's last line."""
    return _first_line([sys.executable, "-P", "-c", program], last=True)


def _first_line(command: list[str], last: bool = False) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHILD_SECONDS, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_CHILD_SECONDS:.0f} s"
    except OSError as error:
        return str(error)
    if done.returncode < 0:
        return f"ended with code {done.returncode}"
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    if not lines:
        return f"ended with code {done.returncode} and no word" if done.returncode else ""
    return lines[-1 if last else 0]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"


_PROBES: tuple[Callable[[], Iterator[Finding]], ...] = (
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
    _cuda,
)
