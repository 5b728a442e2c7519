"""Which jobs of this user run on this machine: a small file for each, in a directory of the user's.

The launcher's agent writes one when its ranks start and removes it when they have ended; whoever
looks sweeps those whose agent is gone (it is known by boot, pid and start time, so that no other
process is taken for it). Nothing listens: a job's black box is opened through /proc/PID/fd, which
the kernel allows the same user alone. Knows files and processes; no ranks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import stat
import time
from dataclasses import dataclass
from typing import Any

from .. import settings
from ..comm.job.blackbox import Box
from ..errors import CommError, ConfigError
from .processes import boot_id, place, started_at

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_BYTES = 64 << 10


@dataclass(frozen=True)
class Job:
    """One job as its agent tells of it. ``box_fd``: a descriptor of that process; ``since``: when
    this generation of ranks was started (seconds of the wall clock); ``place``: where its pid
    means something; ``debugger``: where it listens for terminals; ``nodes_fd``: another descriptor,
    for ranks of other nodes; ``front``: the pid by which they call this one."""

    job: str
    program: str
    pid: int
    start: int
    boot: str
    box_fd: int
    since: float
    generation: int = 1
    node: int = 0
    num_nodes: int = 1
    world_size: int = 1
    first_rank: int = 0
    num_ranks: int = 1
    log_dir: str = ""
    place: str = ""
    debugger: str = ""
    nodes_fd: int = -1
    front: int = 0

    @property
    def runs(self) -> bool:
        """Does its agent still run?"""
        return self.boot == boot_id() and started_at(self.pid) == self.start

    def open_nodes(self) -> int:
        """Where the ranks of other nodes are shown, as a descriptor (``nodes``); -1: nowhere."""
        if self.nodes_fd < 0:
            return -1
        try:
            return os.open(f"/proc/{self.pid}/fd/{self.nodes_fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return -1

    def open_box(self) -> Box:
        """Its black box. Raises ``CommError`` where the job has just ended."""
        path = f"/proc/{self.pid}/fd/{self.box_fd}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CommError(f"job {self.job}: its black box cannot be read: {error}") from None
        try:
            return Box(fd, writable=False)
        except BaseException:
            os.close(fd)
            raise


def this_process(job: str, program: str, box_fd: int, **more: Any) -> Job:
    """A job whose agent is this process."""
    me = os.getpid()
    since = time.time()
    return Job(job, program, me, started_at(me), boot_id(), box_fd, since, place=place(), **more)


def directories() -> list[str]:
    """Where files of this user's jobs may be; the first is where new ones go."""
    uid = os.getuid()
    runtime = settings.RUNTIME.text()
    places = [os.path.join(runtime, "disttrain")] if os.path.isabs(runtime) else []
    places.append(os.path.join(_temporary(), f"disttrain-{uid}"))
    places += [f"/run/user/{uid}/disttrain", f"/tmp/disttrain-{uid}"]
    return list(dict.fromkeys(places))


def _temporary() -> str:
    """The folder that Python's tempfile would take, which takes longer to load."""
    named = [settings.environment().get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for folder in (*named, "/tmp", "/var/tmp", "/usr/tmp"):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return os.curdir


def announce(job: Job) -> str:
    """Let others find ``job``: the path of its file, which ``withdraw`` removes.

    Raises ``ConfigError`` where the directory is not this user's alone, ``OSError``.
    """
    folder = directories()[0]
    name = _UNFIT.sub("_", job.job)[:80] + f".{job.pid}.json"
    path = os.path.join(folder, name)
    data = json.dumps(dataclasses.asdict(job)).encode()
    for _ in range(3):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        _check(folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path + ".new", flags, 0o600)
        except FileNotFoundError:  # another job was the last one, and has removed the directory
            continue
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.rename(path + ".new", path)
        return path
    raise ConfigError(f"{folder} is removed again and again")


def withdraw(path: str) -> None:
    """The job has ended: remove its file, and the directory where that was the last one."""
    with contextlib.suppress(OSError):
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def _check(folder: str) -> None:
    """Only this user may have made it, and may write there."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{folder} must be a directory of this user alone (mode 0700); remove it, or set "
            "XDG_RUNTIME_DIR"
        )


def jobs() -> list[Job]:
    """All that run here, the oldest first. Files of those that do not any more are removed."""
    found, here = [], place()
    for folder in directories():
        try:
            _check(folder)
            names = os.listdir(folder)
        except (OSError, ConfigError):
            continue
        for name in names:
            path = os.path.join(folder, name)
            job = _read(path) if name.endswith(".json") else None
            if job is None or job.place != here:
                continue  # none, or of another host or container: theirs to sweep
            if job.runs:
                found.append(job)
            else:
                withdraw(path)
    return sorted(found, key=lambda j: (j.since, j.pid))


def _without_other_nodes(running: list[Job]) -> list[Job]:
    """Each job once."""
    found: dict[tuple, Job] = {}
    for job in sorted(running, key=lambda j: j.node):
        alone = job.num_nodes == 1 or job.job == "none"  # which many jobs are called
        found.setdefault((job.job, job.program, job.pid if alone else 0), job)
    return sorted(found.values(), key=lambda j: (j.since, j.pid))


def _read(path: str) -> Job | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            told = json.loads(file.read(_MOST_BYTES))
        known = {f.name for f in dataclasses.fields(Job)}
        job = Job(**{k: v for k, v in told.items() if k in known})
        return job if isinstance(job.pid, int) and isinstance(job.box_fd, int) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def find(wanted: str | None, any_node: bool = False) -> Job:
    """The running job of this name (or the start of it, or its pid); None: the only one.
    ``any_node``: of one that has several nodes here, the first. Raises ``ConfigError`` that names
    the jobs where that is not one."""
    running = jobs()
    if any_node and str(wanted) not in {str(j.pid) for j in running}:
        running = _without_other_nodes(running)
    names = "; ".join(f"{j.job} (pid {j.pid}, {j.program})" for j in running)
    if wanted is None:
        if len(running) == 1:
            return running[0]
        what = f"several jobs run: {names}. Name one" if running else "no job of yours runs here"
        raise ConfigError(what)
    exact = [j for j in running if wanted in (j.job, str(j.pid))]
    fitting = exact or [j for j in running if j.job.startswith(wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(
            f"job {wanted!r} may be any of {len(fitting)}: {names}. Name it by its pid"
        )
    raise ConfigError(
        f"no job {wanted!r} of yours runs here" + (f"; there is {names}" if names else "")
    )
