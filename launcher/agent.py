"""The agent: starts the ranks of one attempt, watches them, and performs the policy's actions.

It watches pidfds, output pipes and signals in one selector: a death is seen when it happens, not
at the next poll. It is the parent and the subreaper of everything that the ranks start, so nothing
can outlive the job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable

from disttrain.comm.control import Segment
from disttrain.errors import LaunchError
from disttrain.lifetime import adopt_orphans, die_with_parent
from disttrain.liveness import sample

from . import binding, devices, mpi, stillness, worker
from .env import JOB_FD, worker_env
from .options import streams_of
from .out_of_memory import Kills
from .output import Console, Stream, consoles
from .plan import Plan
from .policy import REAP, Exit, Policy, Signal, overcome, root_cause
from .processes import held_back, kill_descendants, reap
from .report import VANISHED, RankReport, cause_of, headline, write_report

FORKED_TOO_LATE = (
    "CUDA is initialised in the process that ranks are forked from (by a .pth file, sitecustomize "
    "or a module that they import); it would work in no rank. Use --start-method spawn, or import "
    "that module in the script"
)
LISTEN = 30.0  # seconds for a slow reader to take the last outputs of a job
LISTEN_FAILED = 0.5  # ... that has failed, and whose end must not wait
LATER = 0.5  # seconds after ``worker.FAREWELL`` that a failed rank is ended from outside

Body = Callable[[int], bytes]  # runs in a rank; what it returns goes to the result pipe


@dataclasses.dataclass
class Attempt:
    """What one attempt gave."""

    code: int
    first: RankReport | None
    ranks: list[RankReport]
    results: list[bytes]
    stopped_by: int


# Loaded once for all ranks.
WARM = ("disttrain.data", "disttrain.distributed", "disttrain.distributed.ddp", "disttrain.optim")


class Agent:
    """Runs attempts of ``plan``. ``front`` is a descriptor that ends when our starter does."""

    def __init__(self, plan: Plan, body: Body | None, front: int) -> None:
        self.plan, self.body, self.front = plan, body, front
        self.selector = selectors.DefaultSelector()
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        self.consoles: dict[int, Console] = consoles()

    def run(self) -> Attempt:
        """All attempts: the last one's outcome."""
        adopt_orphans()
        if not self.plan.spawn:
            if self.body is None and devices.cuda_is_initialised():
                raise LaunchError(FORKED_TOO_LATE)
            for package in WARM:
                importlib.import_module(package)
        self._listen_for_signals()
        for restart in range(self.plan.max_restarts + 1):
            attempt = self._attempt(restart)
            if attempt.code == 0 or attempt.stopped_by:
                break
            if restart < self.plan.max_restarts:
                say(f"rank {attempt.first.rank if attempt.first else '?'} failed "
                    f"({attempt.first.cause if attempt.first else attempt.code}); "
                    f"restart {restart + 1} of {self.plan.max_restarts}")  # fmt: skip
        return attempt

    # --- one attempt ----------------------------------------------------------------------------

    def _attempt(self, restart: int) -> Attempt:
        plan, self.restart = self.plan, restart
        self.segment = Segment.create(plan.num_ranks, epoch=restart + 1)
        self.policy = Policy(plan.num_ranks, plan.shutdown_timeout, plan.min_ranks)
        self.pids: dict[int, int] = {}
        self.results = [b""] * plan.num_ranks
        self.streams: list[Stream] = []
        self.held_up: list[Stream] = []  # streams that are not read until the console catches up
        self.result_fds: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.lost: set[int] = set()
        self.failing: dict[int, float] = {}  # ranks that said they have failed, and since when
        self.suspended = False
        self.judge = stillness.Judge(plan.num_ranks, plan.stopped_timeout)
        self.shims = mpi.Shims(plan.num_ranks) if plan.mpi else None
        self.kills = Kills()
        try:
            for rank in range(plan.num_ranks):
                self._start(rank, restart)
            self._watch()
        finally:
            if self.shims is not None:
                self.shims.close()
            left = kill_descendants(set(), REAP)
            for rank in list(self.result_fds):
                while self._take_result(rank):
                    continue
            until = time.monotonic() + (LISTEN_FAILED if self.policy.failed else LISTEN)
            for stream in self.streams:
                self._unwatch(stream.reader)
                stream.finish(until)
        if left:
            say(f"processes {left} do not go although they were killed")
        return self._outcome()

    def _start(self, rank: int, restart: int) -> None:
        plan = self.plan
        out, err = (self._stream(rank, restart, which) for which in (1, 2))
        result_reader, result_writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        agent = os.getpid()
        with held_back(plan.signals):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.close(result_reader)
                    _redirect(out, err, rank)
                    self.selector.close()
                    code = self._child(rank, restart, agent, result_writer)
                except BaseException as error:
                    sys.stderr.write(f"dtrun: rank {rank} could not be started: {error}\n")
                finally:
                    os._exit(code)
        os.close(result_writer)
        for stream in (out, err):
            if stream is not None:
                stream.started()
                self._read_from(stream)
                self.streams.append(stream)
        os.set_blocking(result_reader, False)
        self.result_fds[rank] = result_reader
        self.selector.register(result_reader, selectors.EVENT_READ, lambda: self._result_came(rank))
        pidfd = os.pidfd_open(pid)
        self.pids[rank] = pid
        self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._gone(rank, pidfd))

    def _child(self, rank: int, restart: int, agent: int, result: int) -> int:
        if self.shims is not None:
            self.shims.attach(rank, agent)
        if self.plan.cores:
            binding.bind(self.plan.cores[rank])
        if self.plan.spawn:
            self._execute(rank, restart, agent)
        worker.become_rank(self.plan, self.segment, rank, restart, agent)
        if self.body is not None:
            body, me = self.body, os.getpid()
            worker.forget_exit_handlers()

            def run() -> None:
                data = body(rank)
                if os.getpid() == me:  # and no process that the body has forked
                    _write(result, data)

            return worker.run_rank(self.plan, self.segment, rank, restart, run)
        os.close(result)
        return worker.run_rank(
            self.plan, self.segment, rank, restart, worker.program_body(self.plan)
        )

    def _execute(self, rank: int, restart: int, agent: int) -> None:
        """Replace this forked process by a fresh Python, or by the program itself."""
        plan = self.plan
        die_with_parent(agent)
        os.setpgid(0, 0)
        for number in plan.signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, plan.signals)
        os.set_inheritable(self.segment.fd, True)
        env = {**os.environ, **worker_env(plan, rank, restart), JOB_FD: str(self.segment.fd)}
        self.segment.slot(rank).pid = os.getpid()
        if plan.no_python:
            os.execvpe(plan.program[0], list(plan.program), env)
        fields = json.dumps(dataclasses.asdict(plan))
        args = [sys.executable, "-m", "launcher.worker", str(rank), str(restart), fields]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [_root(), env.get("PYTHONPATH", "")]))
        os.execve(sys.executable, args, env)

    def _stream(self, rank: int, restart: int, which: int) -> Stream | None:
        """The pipe for stdout (1) or stderr (2); None: the rank inherits ours."""
        plan = self.plan
        redirect = streams_of(plan.redirects, rank) & which
        tee = streams_of(plan.tee, rank) & which
        if plan.num_ranks == 1 and not (redirect or tee) and plan.shown is None:
            return None
        hidden = (redirect and not tee) or (plan.shown is not None and rank not in plan.shown)
        path = None
        if (redirect or tee) and plan.log_dir:
            name = "stdout.log" if which == 1 else "stderr.log"
            path = os.path.join(plan.rank_dir(restart, rank), name)
        num_shown = plan.num_ranks if plan.shown is None else len(plan.shown)
        prefix = f"[rank {rank}] " if num_shown > 1 else ""
        return Stream(prefix, None if hidden else self.consoles[which], path)

    # --- events ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self.policy.over:
            for key, _ in self.selector.select(self._patience()):
                if key.data() is False:
                    self._unwatch(key.fd)
            self._tend_outputs()
            self._look_at_ranks(time.monotonic())
            self._perform(self.policy.tick(time.monotonic()))

    def _patience(self) -> float | None:
        """How long to wait for an event: until something is due. None: for ever."""
        waits = []
        if not self.suspended:
            waits.append(max(self.judge.next_look - time.monotonic(), 0.0))
        if self.policy.next_tick is not None:
            waits.append(max(self.policy.next_tick - time.monotonic(), 0.0))
        if any(console.behind for console in self.consoles.values()):
            waits.append(0.02)
        if any(stream.tail for stream in self.streams):
            waits.append(0.1)
        return min(waits, default=None)

    def _look_at_ranks(self, now: float) -> None:
        """Find ranks that were stopped, which nothing else would show."""
        if self.suspended or self.policy.stopped_by or now < self.judge.next_look:
            return
        self._end_failed(now)
        ranks = self.pids.keys() - self.lost
        if self.shims is not None:
            self.shims.look(self.pids.values())
        self.kills.look(self.pids.values())
        warnings, lost = self.judge.look(now, {r: sample(self.pids[r]) for r in ranks})
        for text in warnings:
            say(text)
        for rank, (state, seconds) in lost.items():
            self.lost.add(rank)
            if not self.segment.slot(rank).error[0]:
                cause = stillness.cause(self.pids[rank], state, seconds)
                self.segment.slot(rank).record_error(cause, "")
            self._perform(self.policy.lost(rank))

    def _end_failed(self, now: float) -> None:
        """End ranks that have failed and do not end by themselves, which who has no memory left may
        be unable to do."""
        for rank in list(self.pids):
            if self.segment.slot(rank).state != "failed":
                continue
            if now - self.failing.setdefault(rank, now) > worker.FAREWELL + LATER:
                if rank not in self.stopped:
                    say(f"rank {rank} has failed and does not end; it is killed")
                self.stopped.add(rank)
                self._perform([Signal(signal.SIGKILL, rank)])

    def _tend_outputs(self) -> None:
        """Go on with what consoles and streams hold back."""
        for console in self.consoles.values():
            console.flush()
        for stream in self.streams:
            stream.release()
        for stream in [s for s in self.held_up if not s.held_up]:
            self.held_up.remove(stream)
            self._read_from(stream)

    def _read_from(self, stream: Stream) -> None:
        self.selector.register(stream.reader, selectors.EVENT_READ, lambda: self._pump(stream))

    def _pump(self, stream: Stream) -> bool:
        if not stream.held_up:
            return stream.pump()
        self.held_up.append(stream)
        return False

    def _unwatch(self, fd: int) -> None:
        try:
            self.selector.unregister(fd)
        except (KeyError, ValueError):
            pass

    def _gone(self, rank: int, pidfd: int) -> bool:
        pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
        if pid == 0:
            return True
        now = time.monotonic()
        self._unwatch(pidfd)
        os.close(pidfd)
        del self.pids[rank]
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        cause, text = self.segment.slot(rank).error
        by_us = rank in self.lost or rank in self.stopped
        if number == signal.SIGKILL and not (cause or by_us) and (cause := self.kills.why(pid)):
            self.segment.slot(rank).record_error(cause, "")
        if rank in self.lost:
            number, code = 0, stillness.CODE
        elif cause and number and rank in self.stopped:
            number, code = 0, 1  # its exception ended it; our signal only cut its farewell short
        if code == 0 and self.segment.slot(rank).state in ("starting", "running"):
            self.segment.slot(rank).state = "vanished"  # who waits for it learns of it
        event = Exit(rank, code, now, number)
        if event.failed:
            if self.shims is not None:
                self.shims.look(self.pids.values())
            self.segment.publish_failure(rank, cause_of(event, cause), text)
        self._perform(self.policy.exited(event))
        if event.failed and not self.policy.failed:
            say(f"rank {rank} failed ({cause_of(event, cause)}); the others may go on without it "
                f"(--min-ranks {self.plan.min_ranks})")  # fmt: skip
        return True

    def _result_came(self, rank: int) -> bool:
        self._take_result(rank)
        return True

    def _take_result(self, rank: int) -> bool:
        """Read what has come of a result; True when there may be more at once."""
        fd = self.result_fds[rank]
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        self.results[rank] += data
        if not data:
            self._unwatch(fd)
            os.close(fd)
            del self.result_fds[rank]
        return bool(data)

    def _perform(self, actions: list[Signal]) -> None:
        for action in actions:
            if action.rank is None:
                if self.suspended:
                    self._suspend(False)
                self.stopped.update(self.pids)
                self._signal(action.number, self.pids)
            elif action.rank in self.pids:
                self._signal(action.number, [action.rank])

    def _signal(self, number: int, ranks: Iterable[int]) -> None:
        for rank in ranks:
            pid = self.pids[rank]
            try:
                os.killpg(pid, number)
            except (ProcessLookupError, PermissionError):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _suspend(self, suspended: bool) -> None:
        """Ctrl-Z at our terminal, and its end: the whole job stops, and goes on."""
        self.suspended = suspended
        self._signal(signal.SIGSTOP if suspended else signal.SIGCONT, self.pids)

    def _listen_for_signals(self) -> None:
        """Signals wake the selector; until now they were held back (see ``held_back``)."""
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        for number in (*self.plan.signals, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.plan.signals)
        self.selector.register(self.wake_reader, selectors.EVENT_READ, self._signalled)
        if self.front >= 0:
            self.selector.register(self.front, selectors.EVENT_READ, self._front_gone)

    def _signalled(self) -> bool:
        for number in os.read(self.wake_reader, 512):
            if number == signal.SIGCHLD:
                reap(set(self.pids.values()))
            elif number in (signal.SIGTSTP, signal.SIGCONT):
                self._suspend(number == signal.SIGTSTP)
            else:
                self._perform(self.policy.signalled(number, time.monotonic()))
        return True

    def _front_gone(self) -> bool:
        if os.read(self.front, 1):
            return True
        self._perform(self.policy.orphaned())
        return False

    # --- the end --------------------------------------------------------------------------------

    def _outcome(self) -> Attempt:
        reports = {e.rank: self._rank_report(e) for e in self.policy.exits}
        echoes = {r.rank for r in reports.values() if r.echo}
        vanished = {r.rank for r in reports.values() if r.vanished}
        members = self.segment.members()
        over = overcome(self.policy.exits, members, self.plan.min_ranks)
        exits = [e for e in self.policy.exits if e.rank not in over]
        first, code = root_cause(exits, echoes, vanished)
        if self.policy.stopped_by:
            code = 128 + self.policy.stopped_by
        ranks = [reports[rank] for rank in sorted(reports)]
        root = None if first is None else reports[first.rank]
        if self.plan.log_dir:
            write_report(self.plan.log_dir, root, ranks, code)
        results, self.results = self.results, []
        self.segment.close()
        return Attempt(code, root, ranks, results, self.policy.stopped_by)

    def _rank_report(self, e: Exit) -> RankReport:
        slot = self.segment.slot(e.rank)
        cause, text = slot.error
        vanished = not e.failed and slot.state == "vanished"
        return RankReport(
            rank=e.rank, pid=slot.pid, code=e.code, signal=e.signal,
            cause=VANISHED if vanished else cause_of(e, cause), vanished=vanished,
            traceback=text, doing=slot.doing if e.failed else "",
            echo=cause.startswith("PeerFailed"), stopped=e.rank in self.stopped,
            error_file=self._error_file(e.rank) if cause else "",
        )  # fmt: skip

    def _error_file(self, rank: int) -> str:
        return self.plan.error_file(self.restart, rank) if self.plan.log_dir else ""


def tell(attempt: Attempt, plan: Plan) -> None:
    """Print the failure summary of an attempt that failed by itself."""
    if attempt.first is None or attempt.stopped_by:
        return
    others = [r for r in attempt.ranks if r.rank != attempt.first.rank]
    sys.stderr.write(headline(attempt.first, others, " ".join(plan.program)) + "\n")
    sys.stderr.flush()


def say(text: str) -> None:
    """One line of the launcher's own."""
    sys.stderr.write(f"dtrun: {text}\n")
    sys.stderr.flush()


def _redirect(out: Stream | None, err: Stream | None, rank: int) -> None:
    """Give a rank its outputs. Rank 0 keeps our input unless that is a terminal (a process group
    in the background may not read one); the others have none."""
    if rank != 0 or os.isatty(0):
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
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
