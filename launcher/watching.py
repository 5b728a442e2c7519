"""What the launcher keeps of its ranks while they run: the black box, and where others find it.

``ranks`` tells it what happens. The box lies in the log directory where there is one, so that it is
there even after this process was killed; what it means is ``disttrain.watch``'s to say.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from disttrain.comm.blackbox import Box
from disttrain.errors import ConfigError
from disttrain.watch import running, telling
from disttrain.watch.reading import UNDER_WAY, read_rank

from .generation import Generation
from .plan import Plan
from .report import say


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

    def announce(self) -> None:
        """Let this user find the job."""
        plan, generation = self.plan, self.generation
        try:
            job = running.this_process(
                plan.run_id, " ".join(plan.program), self.box.fd, generation=generation.number,
                node=generation.me, num_nodes=generation.num_nodes,
                world_size=generation.world_size, first_rank=generation.first_rank,
                num_ranks=generation.num_ranks, log_dir=os.path.abspath(plan.log_dir or ""),
            )  # fmt: skip
            self._announced = running.announce(job)
        except (OSError, ConfigError) as error:
            say(f"`disttrain top` will not find this job: {error}")

    def ended(self, rank: int, code: int) -> None:
        """A rank has ended, with the code that a shell would show."""
        self.box.ended(rank, code)

    def last_words(self, rank: int, at: float) -> LastWords:
        """What it did until ``at`` (monotonic seconds), when its end was seen."""
        seen, moment = read_rank(self.box, rank), round(at * 1e9)
        last = seen.last
        doing = last.shown if last is not None and last.state == UNDER_WAY else ""
        operations = tuple(telling.summary(seen, moment))
        wall = time.time_ns() - (time.monotonic_ns() - moment)
        return LastWords(seen.words.step, doing, operations, wall)

    def close(self) -> None:
        """All ranks have ended."""
        if self._announced:
            running.withdraw(self._announced)
        self.box.close()


def _box(plan: Plan, generation: Generation) -> tuple[str, Box]:
    """A fresh box, and its path; "" where it has none."""
    about = {"job": plan.run_id, "program": list(plan.program), "host": os.uname().nodename,
             "world_size": generation.world_size, "generation": generation.number,
             "node": generation.me}  # fmt: skip
    if plan.log_dir:
        folder = plan.attempt_dir(generation)
        path = os.path.join(folder, telling.NAME)
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
