"""Starts one rank: the fork, what the child becomes, and the exec where it is to be a fresh Python.

``ranks`` calls it, and watches what it has started.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from disttrain import settings
from disttrain.comm.job.blackbox import BOX_FD, Box
from disttrain.comm.job.segment import Segment
from disttrain.lifetime import Leash, die_with_parent
from disttrain.outputs import flush, put

from ..options.limits import restore_open_files
from ..plan import binding
from ..plan.generation import Generation
from ..plan.job import Plan
from ..worker import main
from ..worker.environment import JOB_FD, worker_env
from ..worker.processes import held_back
from .output import Stream

Body = Callable[[int], bytes]  # runs in a rank; what it returns goes to the result pipe


@dataclass
class Start:
    """What all ranks of a generation are started with."""

    plan: Plan
    generation: Generation
    segment: Segment
    box: Box
    body: Body | None
    shims: Any  # mpi.Shims, where mpiexec keeps the ranks
    selector: selectors.BaseSelector  # the agent's, which a child lets go of
    leash: Leash = field(default_factory=Leash)

    def fork(self, rank: int, out: Stream | None, err: Stream | None) -> tuple[int, int]:
        """(pid, descriptor at which the rank's result can be read)."""
        result_reader, result_writer = os.pipe()
        flush()
        agent = os.getpid()
        with held_back(self.plan.signals):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.close(result_reader)
                    redirect(out, err, first=self.generation.local_rank(rank) == 0)
                    self._let_go()
                    os.setpgid(0, 0)
                    self.leash.put_on()
                    code = self._child(rank, agent, result_writer)
                except KeyboardInterrupt:  # who pressed Ctrl-C knows
                    code = 128 + signal.SIGINT
                except BaseException as error:
                    put(f"dtrun: rank {rank} could not be started: {error}\n")
                finally:
                    os._exit(code)
        os.close(result_writer)
        os.set_blocking(result_reader, False)
        return pid, result_reader

    def _let_go(self) -> None:
        """Close what is the agent's: the ends of other ranks' pipes, of which there may be more
        than a program may open files."""
        for key in list(self.selector.get_map().values()):
            os.close(key.fd)
        self.selector.close()
        restore_open_files(self.plan.open_files)

    def _child(self, rank: int, agent: int, result: int) -> int:
        plan, generation, segment = self.plan, self.generation, self.segment
        if self.shims is not None:
            self.shims.attach(rank, agent)
        if plan.cores:
            binding.bind(plan.cores[generation.local_rank(rank)])
        if plan.spawn:
            self._execute(rank, agent)
        main.become_rank(plan, generation, segment, self.box, rank, agent)
        if self.body is not None:
            body, me = self.body, os.getpid()
            main.forget_exit_handlers()

            def run() -> None:
                data = body(rank)
                if os.getpid() == me:  # and no process that the body has forked
                    _write(result, data)

            return main.run_rank(plan, generation, segment, rank, run)
        os.close(result)
        return main.run_rank(plan, generation, segment, rank, main.program_body(plan))

    def _execute(self, rank: int, agent: int) -> None:
        """Replace this forked process by a fresh Python, or by the program itself."""
        plan, segment = self.plan, self.segment
        die_with_parent(agent)
        for number in plan.signals:
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores for itself
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, plan.signals)
        env = {**settings.environment(), **worker_env(plan, self.generation, rank)}
        for name, fd in ((JOB_FD, segment.fd), (BOX_FD, self.box.fd)):
            os.set_inheritable(fd, True)
            env[name] = str(fd)
        if plan.kept_fd >= 0:
            os.set_inheritable(plan.kept_fd, True)
        segment.slot(rank).pid = os.getpid()
        if plan.no_python:
            os.execvpe(plan.program[0], list(plan.program), env)
        fields = json.dumps(dataclasses.asdict(plan))
        args = [sys.executable, "-c", main.FRESH, _root(), str(rank)]
        args += [self.generation.to_json(), fields]
        os.execve(sys.executable, args, env)


def redirect(out: Stream | None, err: Stream | None, first: bool) -> None:
    """Give a rank its outputs. The first one keeps our input unless that is a terminal (a process
    group in the background may not read one); the others have none."""
    if not first or os.isatty(0):
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    for stream, fd in ((out, 1), (err, 2)):
        if stream is not None:
            os.dup2(stream.writer, fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.close(fd)


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
