"""A small Slurm of this test run's own: one controller, two nodes, on this machine.

    with SlurmCluster(folder) as slurm:
        slurm.run("srun", "-N2", "hostname")

Its daemons, ports, keys and files are its own, so that it disturbs no other Slurm and several may
run at once. Both nodes are this host under two names and loopback addresses; their names cannot be
looked up, as on many clusters in clouds. Needs Debian's packages slurmctld, slurmd, slurm-client
and munge, and root, which slurmd is (``why_not`` says what is missing).
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
START = 30.0  # seconds for the nodes to be there
CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
SlurmdTimeout=5
KillWait=3
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=1 State=UNKNOWN\n"
PARTITION = (
    "PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4\n"
)


def why_not() -> str:
    """What is missing for a Slurm here; "" where nothing is."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here (Debian: slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started by root"


class SlurmCluster:
    """Begins with ``with``; nothing of it is left afterwards."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("n1", "n2")) -> None:
        self.folder, self.names = folder, names
        self.addresses = {name: f"127.0.1.{i}" for i, name in enumerate(names, 1)}
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.env["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        self._daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> SlurmCluster:
        try:
            self._start_munge()
            self._configure()
            self._start("slurmctld", "slurmctld", "-D")
            for name in self.names:
                self.start_node(name)
            self.wait_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._daemons):
            self._stop(name, signal.SIGTERM)
        self._stop_steps()

    # --- what a test does -----------------------------------------------------------------------

    def run(self, *words: str, timeout: float = 60.0, **settings) -> subprocess.CompletedProcess:
        """Run one of Slurm's commands to its end."""
        env = self.env | settings.pop("env", {})
        return subprocess.run(
            words, env=env, timeout=timeout, text=True, check=False, capture_output=True, **settings
        )

    def begin(self, *words: str, **settings) -> subprocess.Popen:
        """Start one of Slurm's commands."""
        env = self.env | settings.pop("env", {})
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=env, text=True, stdout=pipe, stderr=pipe, **settings)

    def state(self, job: str) -> str:
        """The state of a job, as PENDING; "" when Slurm has forgotten it."""
        said = self.run("scontrol", "show", "job", job, "--oneliner").stdout
        return dict(word.partition("=")[::2] for word in said.split()).get("JobState", "")

    def lose_node(self, name: str) -> None:
        """Its daemon, its steps and all that these have started are gone from one moment to the
        next, as when a machine loses its power; the controller is told, as by a health check."""
        victims = self._of_node(name)
        self._stop(name, signal.SIGKILL)
        for pid in victims:
            _kill(pid)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=lost")

    def start_node(self, name: str) -> None:
        """Start a node, or let it come back."""
        self._start(name, "slurmd", "-N", name, "-D")

    def wait_idle(self) -> None:
        """Until all nodes are there and do nothing."""
        deadline, wanted = time.monotonic() + START, f"idle {len(self.names)}"
        while (said := self.run("sinfo", "-h", "-o", "%T %D").stdout.strip()) != wanted:
            assert time.monotonic() < deadline, (
                f"Slurm's nodes are not there: {said}\n{self.logs()}"
            )
            time.sleep(0.1)

    def logs(self) -> str:
        """The end of what the daemons have written."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text()[-2000:]}" for file in files)

    # --- inside ---------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid",
                 "log-file": "munge.log", "seed-file": "munge.seed"}  # fmt: skip
        words = [f"--{name}={self.folder / file}" for name, file in files.items()]
        self._start("munged", "munged", "--foreground", "--force", "--num-threads=2", *words)
        _until((self.folder / "munge.socket").exists, "munged")

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(1 + len(self.names))
        (self.folder / "state").mkdir()
        text = CONFIG.format(host=host, folder=self.folder, port=ports[0])
        for name, port in zip(self.names, ports[1:]):
            (self.folder / f"spool-{name}").mkdir()
            address = self.addresses[name]
            text += NODE.format(name=name, host=host, address=address, port=port)
        text += PARTITION.format(names=",".join(self.names))
        (self.folder / "slurm.conf").write_text(text)

    def _start(self, name: str, *words: str) -> None:
        log = (self.folder / f"{name}.out.log").open("ab")
        with log:
            self._daemons[name] = subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _stop(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(5.0)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _of_node(self, name: str) -> list[int]:
        """The keepers of a node's steps, then all that these have started."""
        mark = f"SLURMD_NODENAME={name}\0".encode()
        tasks = [pid for pid, env in self._environments() if mark in env]
        keepers = {parent for pid in tasks if _is_keeper(parent := _parent(pid))}
        return [*keepers, *tasks]

    def _environments(self) -> list[tuple[int, bytes]]:
        """The processes that this Slurm has started, and their environments."""
        found, mine = [], f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for entry in os.listdir("/proc"):
            try:
                env = Path("/proc", entry, "environ").read_bytes() if entry.isdigit() else b""
            except OSError:
                continue
            if mine in env and int(entry) != os.getpid():
                found.append((int(entry), env))
        return found

    def _stop_steps(self) -> None:
        """End what steps have left, and the steps' keepers."""
        for pid, _ in self._environments():
            _kill(pid)


def _parent(pid: int) -> int:
    try:
        return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_keeper(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().startswith(b"slurmstepd")
    except OSError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def _until(ready, what: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
