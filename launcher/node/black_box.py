"""What the launcher keeps of its ranks while they run: the black box, and where others find it.

``ranks`` tells it what happens. The box lies in the log directory where there is one, so that it is
there even after this process was killed; what it means is ``disttrain.watch``'s to say.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

from disttrain.comm.job.blackbox import Box
from disttrain.errors import ConfigError
from disttrain.watch import processes, running, stragglers, summary, table
from disttrain.watch.reading import SHOWN, UNDER_WAY, Follower, Words, read_rank, read_words
from disttrain.watch.trace import Trace

from ..plan.generation import Generation
from ..plan.inactivity import Standing, awaited
from ..plan.job import Plan
from ..worker.program import here
from .report import say

_GROUPS = 0.5  # seconds for which a rank is taken to stay in its control group
_DRAIN = 0.2  # seconds between two looks at the operations themselves
_HUNG = 5.0  # seconds that a rank of a job waits which somebody ends since it hangs
_LONGEST = 256  # characters of a job's name in its box
_TOLD = 200  # characters of what a rank is in that others are told
_MANY = 16  # ranks, which are looked at less often


@dataclass(frozen=True)
class LastWords:
    """What a rank's black box says at its end. ``doing``: what it was in the middle of;
    ``operations``: the last ones; ``time_ns``: of the end, on the wall clock."""

    step: int
    doing: str
    operations: tuple[str, ...]
    time_ns: int


class Watching:
    """Of one generation's ranks here."""

    def __init__(self, plan: Plan, generation: Generation) -> None:
        self.plan, self.generation = plan, generation
        self.path, self.box = _box(plan, generation)
        self._announced = ""
        self._looked: table.Look | None = None
        self.stragglers, self._stalls = stragglers.Judge(), stragglers.Stalls()
        self.stands = Standing()  # the ranks here, as far as others are to know it
        self._limited: dict[int, tuple[bool, float]] = {}  # has it limits of its own; until when
        self._awaited: set[int] = set()  # ranks that all wait for, which people know
        self.next_look = 0.0
        self._followers = {r: Follower(self.box, r) for r in generation.ranks}
        self._trace = self._open_trace()
        self._drained = 0.0

    def announce(self, nodes_fd: int = -1) -> None:
        """Let this user find the job. ``nodes_fd``: where others nodes' ranks are shown."""
        plan, generation = self.plan, self.generation
        try:
            job = running.this_process(
                plan.run_id, summary.command(plan.program), self.box.fd,
                generation=generation.number, node=generation.me, num_nodes=generation.num_nodes,
                world_size=generation.world_size, first_rank=generation.first_rank,
                num_ranks=generation.num_ranks, nodes_fd=nodes_fd,
                front=self._front(), log_dir=os.path.join(here(), plan.log_dir or ""),
                debugger=plan.debugger,
            )  # fmt: skip
            self._announced = running.announce(job)
        except (OSError, ConfigError) as error:
            say(f"`disttrain top` will not find this job: {error}")

    def _front(self) -> int:
        """The pid in this node's name."""
        name = self.generation.nodes[self.generation.me] if self.generation.nodes else ""
        return int(name.rpartition(":")[2] or 0)

    def ended(self, rank: int, code: int) -> None:
        """A rank has ended, with the code that a shell would show."""
        self.box.ended(rank, code)

    # --- while they run -------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Look at what the ranks do, and warn; again at ``next_look``."""
        if now < self.next_look:
            return
        moment = time.monotonic_ns()
        words = {rank: read_words(self.box, rank) for rank in self.generation.ranks}
        if now - self._drained > _DRAIN:
            self._drained = now
            self._follow(moment, words)
        running = {r: w for r, w in words.items() if w.pid and not w.ended}
        seen = self._seen(moment, running)
        if len(running) > 1:
            found = self.stragglers.look(moment, seen)
            if found is not None and self.generation.num_nodes == 1:  # else all are compared
                say(found.text(self._waits_in(found.rank, running)))
        self.stands = Standing(False, *self._stalls.look(moment, seen))
        if self.generation.num_nodes == 1 and len(running) > 1:
            self.tell_awaited(awaited([self.stands]), running)
        many = len(running) > _MANY
        self.next_look = now + (max(_DRAIN, len(running) / 100) if many else self.stragglers.pace)

    def for_others(self) -> dict[str, Any]:
        """What is compared between nodes: what each rank here has done until now."""
        now = time.monotonic_ns()
        words = {rank: read_words(self.box, rank) for rank in self.generation.ranks}
        running = {r: w for r, w in words.items() if w.pid and not w.ended}
        ranks = {str(r): list(astuple(s)[:6]) for r, s in self._seen(now, running).items()}
        return {"at": now, "ranks": ranks, "in": self._waits_in(-1, running)[:_TOLD]}

    def rows(self) -> dict[str, Any]:
        """What `disttrain top` shows on other nodes."""
        before, self._looked = self._looked, table.look(self.box)
        me, generation = self.generation.me, self.generation
        name = generation.nodes[me] if generation.nodes else os.uname().nodename
        rows = [asdict(row) for row in table.rows(name, self._looked, before, me)]
        for row in rows:
            row["doing"] = row["doing"][:_TOLD]
        return {"node": me, "name": name, "rows": rows}

    def packed(self) -> bytes:
        """The box for those who gather what all nodes have of the job."""
        return zlib.compress(bytes(self.box.buffer), 1)

    def tell_awaited(self, rank: int, running: Iterable[int] = ()) -> None:
        """All ranks of the job have waited for ``rank`` for long (-1: for none)."""
        if rank < 0 or rank in self._awaited:
            return
        self._awaited.add(rank)
        where = self._waits_in(rank, running or self.generation.ranks)
        node = "" if self.generation.num_nodes == 1 else self.generation.name_of(rank)
        say(stragglers.stalled(rank, where, node))
        self.tell_where_ranks_stand()

    def tell_if_hung(self) -> None:
        """Somebody ends the job: where its ranks stand, if one has waited for long."""
        now = time.monotonic_ns()
        words = [read_words(self.box, rank) for rank in self.generation.ranks]
        since = [w.waits_since for w in words if w.pid and not w.ended and w.waits_since]
        if since and now - min(since) > _HUNG * 1e9:
            say("interrupted while ranks waited:")
            self.tell_where_ranks_stand()

    def tell_where_ranks_stand(self) -> None:
        """As their black boxes say, and how to learn more."""
        ranks = [read_rank(self.box, rank) for rank in self.generation.ranks]
        for line in summary.stands(ranks, time.monotonic_ns()):
            say(f"  {line}")
        if self._announced:
            job = shlex.quote(self.plan.run_id)
            say(f"  next, while it runs: `disttrain stacks {job}` shows the stacks of all threads")

    def suspended(self) -> None:
        """The ranks were stopped, all of them."""
        self.stragglers.reset()
        self._stalls, self.stands = stragglers.Stalls(), Standing()

    def _seen(self, now: int, running: Mapping[int, Words]) -> dict[int, stragglers.Seen]:
        return {
            rank: stragglers.Seen(
                w.waited_by(now), w.step, self._followers[rank].newest(),
                max(0, now - w.waits_since) if w.waits_since else 0,
                self._deprived(w.pid), max(0, now - w.step_at) if w.step_at else 0,
            )
            for rank, w in running.items()
        }  # fmt: skip

    def _deprived(self, pid: int) -> int:
        """For how long it got no processor though it was ready to run. What a control group of its
        own takes from a rank is none of a machine that is loaded."""
        limited, until = self._limited.get(pid, (False, 0.0))
        if until < time.monotonic():
            limited = processes.control_group(pid) != processes.control_group(os.getpid())
            self._limited[pid] = limited, time.monotonic() + _GROUPS
        return 0 if limited else processes.deprived(pid)

    def _waits_in(self, slow: int, running: Iterable[int]) -> str:
        """What the others wait in."""
        for rank in running:
            last = read_rank(self.box, rank, 1).last if rank != slow else None
            if last is not None:
                return last.shown
        return ""

    def _follow(self, now: int, words: Mapping[int, Words]) -> None:
        """Take what has ended since into the trace."""
        trace = self._trace
        if trace is None:
            return
        keeps = trace.keeps(now)
        for rank, follower in self._followers.items():
            operations, lost = follower.new()
            if keeps:
                trace.add(rank, operations, lost)
                trace.step(rank, words[rank].step, words[rank].step_at)
        self._tell_problem(trace)

    def _tell_problem(self, trace: Trace) -> None:
        if trace.problem and self._trace is not None:
            self._trace = None
            say(trace.problem)

    def _end_trace(self, trace: Trace) -> None:
        words = {rank: read_words(self.box, rank) for rank in self.generation.ranks}
        self._follow(time.monotonic_ns(), words)
        for rank, follower in self._followers.items():  # what never ended
            left = read_rank(self.box, rank).operations
            trace.add(rank, [op for op in left if op.number >= follower.next])
        trace.close()
        self._tell_problem(trace)

    def _open_trace(self) -> Trace | None:
        if not self.path:
            return None
        path, host = os.path.join(os.path.dirname(self.path), "trace.json"), os.uname().nodename
        try:
            return Trace(path, self.generation.ranks, host, self.box.monotonic)
        except OSError as error:
            say(f"{path}: {error.strerror}; there will be no trace")
            return None

    # --- their ends -----------------------------------------------------------------------------

    def last_words(self, rank: int, at: float, failed: bool) -> LastWords:
        """What it did until ``at`` (monotonic seconds), when its end was seen. Of one that has not
        ``failed`` the operations do not matter."""
        seen, moment = read_rank(self.box, rank, SHOWN if failed else 0), round(at * 1e9)
        last = seen.last
        doing = last.shown if last is not None and last.state == UNDER_WAY else ""
        operations = tuple(summary.summary(seen, moment))
        wall = time.time_ns() - (time.monotonic_ns() - moment)
        return LastWords(seen.words.step, doing, operations, wall)

    def close(self) -> None:
        """All ranks have ended."""
        if self._trace is not None:
            self._end_trace(self._trace)
        if self.plan.straggler_report:
            for line in ("stragglers:", *stragglers.table(self.stragglers.totals)):
                say(line)
        if self._announced:
            running.withdraw(self._announced)
        self.box.close()


def _box(plan: Plan, generation: Generation) -> tuple[str, Box]:
    """A fresh box, and its path; "" where it has none."""
    about = {
        "job": plan.run_id[:_LONGEST], "program": summary.command(plan.program),
        "host": os.uname().nodename, "world_size": generation.world_size,
        "generation": generation.number, "node": generation.me,
    }  # fmt: skip
    if plan.log_dir:
        folder = plan.attempt_dir(generation)
        path = os.path.join(folder, summary.NAME)
        fd = -1
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # of an earlier job, of which something may still run
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            return path, Box.create(generation.num_ranks, about, generation.first_rank, fd)
        except OSError as error:
            say(f"{path}: {error.strerror}; the black box is kept in memory alone")
            if fd >= 0:
                os.close(fd)
                os.unlink(path)
    return "", Box.create(generation.num_ranks, about, generation.first_rank)
