"""Rows about jobs that cannot begin: nodes that do not fit together, addresses that cannot be."""

from __future__ import annotations

import os
import secrets
import shutil
import socket

from injections.rows.jobs import Experiment, Job
from injections.rows.row import Row, Seen, Trial
from injections.rows.step_job import Spec
from support.ranks import free_port

SHORT = Spec(steps=3, seconds=0.001)


class Meeting(Experiment):
    """Nodes on one machine that meet at ``port``."""

    def __init__(self, trial: Trial, port: int | None = None, host: str = "127.0.0.1") -> None:
        super().__init__(trial)
        self.port, self.host = port or free_port(), host
        token = trial.folder / "token"
        token.write_bytes(secrets.token_bytes(32))
        token.chmod(0o600)

    def join(self, node: int, nodes: str, *flags: str, spec: Spec = SHORT, **how: object) -> Job:
        """A node with one rank, number ``node`` as it says."""
        return self.start(
            spec, "--nnodes", nodes, "--node-rank", str(node), "--rdzv-backend", "static",
            "--rdzv-endpoint", f"{self.host}:{self.port}", *flags, ranks=1,
            node=str(len(self.jobs)), env={"DISTTRAIN_TOKEN_FILE": str(self.folder / "token")},
            **how,
        )  # fmt: skip

    def refused(self, *words: str) -> None:
        """All jobs end soon, and at least one says ``words``."""
        codes = [job.wait(20.0) for job in self.jobs]
        self.seen.values["ended"] = max(j.ended for j in self.jobs) - self.jobs[-1].began
        self.seen.expect(all(code > 0 for code in codes), f"exit codes {codes}: {self.words()}")
        said = [job.said() for job in self.jobs]
        for word in words:
            self.seen.expect(any(word in text for text in said), f"nobody says {word!r}: {said}")
        self.seen.expect(not any("Traceback" in text for text in said), f"a traceback: {said}")

    def close(self) -> Seen:
        for job in self.jobs:
            job.close()
        return self.result(["token"])


def duplicate(it: Meeting) -> None:
    it.join(0, "3")
    first, second = it.join(1, "3"), it.join(1, "3")
    it.refused(str(first.pid), str(second.pid))


def sizes(it: Meeting) -> None:
    it.join(0, "2")
    it.join(1, "3")
    it.refused("--nnodes: 2 and 3", str(it.jobs[0].pid), str(it.jobs[1].pid))


def out_of_range(it: Meeting) -> None:
    it.join(5, "2")
    it.refused("--node-rank")


def other_job(it: Meeting) -> None:
    """Who waits for its own job is not to end of it."""
    waits = it.join(0, "2", "--rdzv-id", "one")
    it.join(1, "2", "--rdzv-id", "other")
    it.jobs = [it.jobs[1]]
    it.refused("--rdzv-id", str(waits.pid))
    it.seen.expect(waits.runs(), f"the other job has ended: {waits.said()}")
    waits.kill()
    it.jobs.append(waits)


def other_command(it: Meeting) -> None:
    it.join(0, "2")
    it.join(1, "2", spec=Spec(steps=4))
    it.refused("command")


MISFITS = (duplicate, sizes, out_of_range, other_job, other_command)


def misfit(trial: Trial) -> Seen:
    """R25: one after the other."""
    how = MISFITS[trial.number % len(MISFITS)]
    with Meeting(trial) as it:
        how(it)
        return named(how.__name__, it.close())


def named(name: str, seen: Seen) -> Seen:
    """Which of the cases it was."""
    seen.wrong = [f"{name}: {text}" for text in seen.wrong]
    seen.values = {name.replace("_", " "): value for value in seen.values.values()}
    return seen


# -- addresses -------------------------------------------------------------------------------------


def in_use(trial: Trial) -> Seen:
    with socket.create_server(("127.0.0.1", 0)) as holder, Meeting(trial, _port(holder)) as it:
        it.join(0, "2")
        it.refused(str(it.port), str(os.getpid()))
        return it.close()


def _port(holder: socket.socket) -> int:
    return int(holder.getsockname()[1])


def privileged(trial: Trial) -> Seen:
    """Without the right to listen there."""
    with Meeting(trial, 81) as it:
        without = "-net_bind_service"
        it.join(0, "2", before=("setpriv", "--inh-caps", without, "--bounding-set", without))
        it.refused("81")
        return it.close()


def no_such_host(trial: Trial) -> Seen:
    with Meeting(trial, host="no-such-host.invalid") as it:
        it.join(0, "2")
        it.join(1, "2")
        it.refused("no-such-host.invalid")
        return it.close()


def works(it: Meeting) -> Seen:
    codes = [job.wait(30.0) for job in it.jobs]
    it.seen.expect(not any(codes), f"exit codes {codes}: {it.words()}")
    return it.close()


def newer_protocol(trial: Trial) -> Seen:
    with Meeting(trial, host="[::1]") as it:
        it.join(0, "2")
        it.join(1, "2")
        return works(it)


AT_ONCE = 10


def any_port(trial: Trial) -> Seen:
    """So many jobs at once that each take any port."""
    with Meeting(trial) as it:
        for number in range(AT_ONCE):
            it.start(SHORT, "--standalone", ranks=2, node=str(number))
        return works(it)


ADDRESSES = (in_use, privileged, no_such_host, newer_protocol, any_port)


def address(trial: Trial) -> Seen:
    """R26: one after the other."""
    how = ADDRESSES[trial.number % len(ADDRESSES)]
    return named(how.__name__, how(trial))


def why_not() -> str:
    return "" if shutil.which("setpriv") and not os.geteuid() else "needs root and setpriv"


ROWS = [
    Row(
        "R25", "nodes that do not fit: the same node rank, 2 and 3 nodes, a rank out of range, "
        "another job, another command (in turn)",
        "ended on all within 1 s, and it is said what does not fit, and who",
        "torchrun 10.8 s, 50.1 s, 19.8 s, without names",
        misfit, {how.__name__.replace("_", " "): 1.0 for how in MISFITS},
    ),
    Row(
        "R26", "a port in use, a port without the right to it, a name that is none, IPv6 only, 10 "
        "jobs at once on any port (in turn)",
        "refused within 1 s with the port, and who has it; the last two work",
        "torchrun at once where the port is in use",
        address, {how.__name__.replace("_", " "): 1.0 for how in ADDRESSES[:3]}, why_not=why_not,
    ),
]  # fmt: skip
