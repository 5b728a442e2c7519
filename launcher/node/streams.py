"""The outputs of all ranks of this node: which pipes there are, and when they are read."""

from __future__ import annotations

import os
import selectors
import string

from disttrain.errors import LaunchError

from ..options.environment import LINE_PREFIX
from ..options.logs import streams_of
from ..plan.generation import Generation
from ..plan.job import Plan
from ..worker.logs import FULL, Log, Sieve
from .output import Console, Stream
from .report import say

_SHOWN = 3  # lines that a rank said last
_NAMES = {1: "stdout", 2: "stderr"}


class Streams:
    """The ranks' outputs in one generation. A stream whose console is behind is not read until
    that has caught up."""

    def __init__(
        self,
        plan: Plan,
        generation: Generation,
        selector: selectors.BaseSelector,
        consoles: dict[int, Console],
    ) -> None:
        self._plan, self._generation = plan, generation
        self._selector, self._consoles = selector, consoles
        self._streams: list[Stream] = []
        self._errors: dict[int, Stream] = {}  # by rank
        self._held_up: list[Stream] = []
        self._filtered: dict[int, Log] = {}  # what all ranks' outputs are duplicated to

    def open(self, rank: int, which: int) -> Stream | None:
        """The pipe for stdout (1) or stderr (2); None: the rank inherits ours."""
        plan, local = self._plan, self._generation.local_rank(rank)
        redirect = streams_of(plan.redirects, local) & which
        tee = streams_of(plan.tee, local) & which
        world = self._generation.world_size
        if world == 1 and not (redirect or tee or plan.duplicates[which - 1] or plan.shown):
            return None
        hidden = (redirect and not tee) or (plan.shown is not None and local not in plan.shown)
        path = None
        if (redirect or tee) and plan.log_dir:
            path = os.path.join(plan.rank_dir(self._generation, rank), f"{_NAMES[which]}.log")
        num_shown = world if plan.shown is None else len(plan.shown)
        prefix = self._prefix(rank) if num_shown > 1 else ""
        log = None if path is None else self._log(path)
        lost = path is not None and log is None  # better there than nowhere
        console = self._consoles[which] if lost or not hidden else None
        stream = Stream(prefix, console, log, rank, self._sieve(rank, which))
        if which == 2:
            self._errors[rank] = stream
        return stream

    def said_last(self, rank: int) -> tuple[str, ...]:
        """The last lines of a rank's stderr, where it goes through us."""
        last = self._errors[rank].last if rank in self._errors else b""
        lines = last.decode(errors="replace").splitlines()
        return tuple(line.rstrip() for line in lines if line.strip())[-_SHOWN:]

    def _prefix(self, rank: int) -> str:
        """What stands in front of a rank's lines, in torchrun's words where it is given so."""
        names = {
            "role_name": self._plan.role,
            "rank": rank,
            "local_rank": self._generation.local_rank(rank),
        }
        return string.Template(LINE_PREFIX.text()).safe_substitute(names)

    def _sieve(self, rank: int, which: int) -> Sieve | None:
        words, name = self._plan.duplicates[which - 1], _NAMES[which]
        if words and which not in self._filtered:
            folder = self._plan.attempt_dir(self._generation)
            log = self._log(os.path.join(folder, f"filtered_{name}.log"))
            if log is None:
                return None
            self._filtered[which] = log
        return Sieve(words, self._filtered[which], self._prefix(rank)) if words else None

    def _log(self, path: str) -> Log | None:
        """The file; None where the disk is full, which is no reason for the job to fail."""
        try:
            return Log(path)
        except OSError as error:
            if error.errno not in FULL:
                raise LaunchError(
                    f"--log-dir: {error}; a folder that may be written to is needed"
                ) from None
            say(f"outputs go to no file, and are shown here: {error}")
            return None

    def add(self, stream: Stream) -> None:
        """Read from ``stream``, whose rank has been started."""
        stream.started()
        self._read_from(stream)
        self._streams.append(stream)

    def tend(self) -> None:
        """Go on with what consoles and streams hold back."""
        for console in self._consoles.values():
            console.flush()
        for stream in self._streams:
            stream.release()
        for stream in [s for s in self._held_up if not s.held_up]:
            self._held_up.remove(stream)
            self._read_from(stream)

    def waits(self) -> list[float]:
        """After how many seconds ``tend`` is due."""
        behind = any(console.behind for console in self._consoles.values())
        held_back = any(stream.tail for stream in self._streams)
        return [0.02] * behind + [0.1] * held_back

    def finish(self, until: float) -> None:
        """Pass on what is still there; their writers are gone."""
        for stream in self._streams:
            unwatch(self._selector, stream.reader)
            self._finish(stream, until)
        for which, console in self._consoles.items():
            if why := console.told():
                say(f"{_NAMES[which]}: {why}")
        for log in self._filtered.values():
            if why := log.close():
                say(why)
        self._filtered.clear()

    def _finish(self, stream: Stream, until: float) -> None:
        if why := stream.finish(until):
            say(why)

    @property
    def unheard(self) -> bool:
        """Has somebody who read the outputs gone?"""
        return any(console.gone for console in self._consoles.values())

    def _read_from(self, stream: Stream) -> None:
        self._selector.register(stream.reader, selectors.EVENT_READ, lambda: self._pump(stream))

    def _pump(self, stream: Stream) -> bool:
        if not stream.held_up:
            return stream.pump() or self._ended(stream)
        self._held_up.append(stream)
        return False

    def _ended(self, stream: Stream) -> bool:
        """Let go of what has ended, where the console has taken all of it: a job whose ranks are
        started anew has many."""
        unwatch(self._selector, stream.reader)
        if stream.console is None or not (stream.console.behind or stream.held_up):
            self._streams.remove(stream)
            self._finish(stream, 0.0)
        return False


def unwatch(selector: selectors.BaseSelector, fd: int) -> None:
    """Look at ``fd`` no more, where it was looked at."""
    try:
        selector.unregister(fd)
    except (KeyError, ValueError):
        pass
