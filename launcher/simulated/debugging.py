"""The debugger on a simulated cluster: any rank has the process's terminal, and time goes back.

While a rank talks with people it keeps the baton, so nobody else goes on. To go back to an earlier
turn of the schedule is to run the program again, in a fresh process with the same seed, without
what it says, up to that turn: a simulation is what its seed says. Where programs' computing is
measured, the second run is given what the first one measured. What the program does outside of its
process it does again.

Knows the scheduler and the terminal.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import traceback
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from disttrain import context
from disttrain.comm.transports.sim import Scheduler
from disttrain.comm.transports.sim.scheduler import Task
from disttrain.debugger import prompt, session, stopping
from disttrain.lifetime import die_with_parent
from disttrain.outputs import flush

_TURN_BYTES = 8
_SHOWN = 20  # turns
TURN = "turn"
_exit = os._exit  # of the process: a rank's ends the rank


@dataclass(frozen=True)
class Point:
    """A turn of a schedule (from 1 on; 0: none). ``measured``: what programs' computing has taken
    until then, and a little longer."""

    turn: int = 0
    measured: bytes = b""

    def encode(self) -> bytes:
        return self.turn.to_bytes(_TURN_BYTES, "little") + self.measured

    @classmethod
    def decode(cls, data: bytes) -> Point:
        return cls(int.from_bytes(data[:_TURN_BYTES], "little"), data[_TURN_BYTES:])


def run_again(run: Callable[[Debugging], int]) -> int:
    """``run`` in a process of its own; again, up to the point where that wants to be. The exit
    code."""
    point = Point()
    while True:
        reader, writer = os.pipe()
        flush()
        me, child = os.getpid(), os.fork()
        if child == 0:
            os.close(reader)
            _run(run, Debugging(point, writer), me)
        os.close(writer)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child hears it, too
        try:
            with os.fdopen(reader, "rb") as file:
                data = file.read()
            _, status = os.waitpid(child, 0)
        finally:
            signal.signal(signal.SIGINT, before)
        if not data:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        point = Point.decode(data)


def _run(run: Callable[[Debugging], int], debugging: Debugging, parent: int) -> None:
    code = 1
    try:
        die_with_parent(parent)
        code = run(debugging)
        atexit._run_exitfuncs()
        flush()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Debugging:
    """Of one run, up to ``point``. ``writer``: where the next one is told."""

    def __init__(self, point: Point = Point(), writer: int = -1) -> None:
        self.point, self._writer = point, writer
        self.muted = point.turn > 0
        self.talks = False  # with people
        self.exact = False  # it stands at the beginning of a turn
        self.failed = False  # somebody's failure was looked at
        self.streams = sys.stdin, sys.stdout, sys.stderr
        self._measured = array("d", point.measured)
        self._used = 0
        self.scheduler: Scheduler | None = None
        self.when_changed: list[Callable[[], None]] = []  # told when ``muted`` or ``talks`` changes

    def listen(self) -> None:
        """Ranks stop at ``breakpoint()``; Ctrl-C is none of a job that talks. For the main
        thread."""
        sys.breakpointhook = stopping.hook
        signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if not self.talks:
            raise KeyboardInterrupt
        self.streams[1].write("\n(quit ends the simulation)\n")
        self.streams[1].flush()

    def set_up(self, scheduler: Scheduler) -> None:
        """Before anything runs."""
        self.scheduler = scheduler
        scheduler.called_in = {} if self._writer >= 0 else None
        if self.muted:
            scheduler.stop_at, scheduler.at_stop = self.point.turn, self._arrive
        lasts = scheduler.stopwatch
        if lasts is None or self._writer < 0:
            return

        def remembered(rank: int, spent: float, is_call: bool) -> float:
            assert lasts is not None
            if self._used == len(self._measured):
                self._measured.append(lasts(rank, spent, is_call))
            self._used += 1
            return self._measured[self._used - 1]

        scheduler.stopwatch = remembered

    def begin(self) -> None:
        """A rank begins, which is the caller's."""
        slots = context.current().slots
        slots[session.TERMINAL_SLOT] = lambda: Shared(self)
        slots[prompt.MAKER_SLOT] = lambda terminal, seconds: Simulated(self, terminal, seconds)
        if self.muted:
            slots[stopping.MUTED_SLOT] = True

    def look_at(self, error: BaseException) -> None:
        """The first rank that fails is looked at."""
        if not (self.failed or self.muted):
            self.failed = True
            stopping.post_mortem(error)

    def _arrive(self, task: Task) -> None:
        """The point is reached, by the caller's task."""
        scheduler = self.scheduler
        assert scheduler is not None
        if task.name:  # no program's: on to the next turn of one
            scheduler.stop_at += 1
            return
        self._unmute()
        self.exact = True
        header = f"turn {self.point.turn}: rank {task.rank} goes on"
        prompt.stop_at_program(sys._getframe(1), TURN, header)

    def _unmute(self) -> None:
        self.muted = False
        assert self.scheduler is not None
        for task in self.scheduler.tasks:
            if task.place is not None:
                task.place.slots.pop(stopping.MUTED_SLOT, None)
        self._changed()

    def _changed(self) -> None:
        for tell in self.when_changed:
            tell()

    def talk(self, on: bool) -> None:
        self.talks = on
        self._changed()

    def told_at_end(self) -> str:
        """What is to be said where the point was not reached."""
        if not self.muted:
            return ""
        return (
            f"turn {self.point.turn} did not come again: the program does not do the same each "
            "time (it looks at the clock, or at what was there before)"
        )

    @property
    def is_last(self) -> bool:
        """Can there be no other run?"""
        return self._writer < 0

    def turns(self, rank: int) -> list[int]:
        """The turns until now in which a rank's program has come on."""
        scheduler = self.scheduler
        assert scheduler is not None
        called = (scheduler.called_in or {}).get(rank, [])
        return sorted({*called, len(scheduler.schedule)})

    def go(self, turn: int) -> None:
        """Run again up to that turn. Does not return."""
        data = Point(turn, self._measured.tobytes()).encode()
        with os.fdopen(self._writer, "wb") as file:
            file.write(data)
        _exit(0)  # nothing more of this run


class Shared:
    """The process's terminal, from one prompt to the next."""

    stays = False

    def __init__(self, debugging: Debugging) -> None:
        self._debugging = debugging
        self._before: tuple[Any, ...] = ()
        self._began = 0.0

    def take(self, kind: str, where: str, seconds: float) -> None:
        scheduler = self._debugging.scheduler
        assert scheduler is not None
        self._began = time.thread_time()
        self._debugging.talk(True)
        known = vars(sys)  # past what notes who sets what
        self._before = known["stdin"], known["stdout"], known["stderr"]
        _flush(self._before[1:])
        known["stdin"], known["stdout"], known["stderr"] = self._debugging.streams

    def leave(self, how: str) -> None:
        known = vars(sys)
        _flush((known["stdout"], known["stderr"]))
        known["stdin"], known["stdout"], known["stderr"] = self._before
        self._debugging.talk(False)
        task: Task | None = context.thread.task
        if task is not None:  # what was said has taken no time
            task.stamp += time.thread_time() - self._began


def _flush(streams: tuple[Any, ...]) -> None:
    for stream in streams:
        if stream is not None:
            stream.flush()


class Simulated(prompt.Debugger):
    """The debugger of a simulated rank: it knows the schedule."""

    def __init__(self, debugging: Debugging, terminal: session.Terminal, seconds: float) -> None:
        self._debugging = debugging
        super().__init__(terminal, seconds)

    def interaction(self, frame: Any, traceback: Any) -> None:
        try:
            super().interaction(frame, traceback)
        finally:
            self._debugging.exact = False

    def do_schedule(self, arg: str) -> None:
        """schedule [n]

        Show the last n turns of the schedule (20), and what each rank waits for.
        """
        scheduler = self._debugging.scheduler
        count = self._number(arg, _SHOWN)
        if scheduler is None or count is None:
            return
        schedule = scheduler.schedule
        for i in range(max(0, len(schedule) - count), len(schedule)):
            here = "  <- here" if i + 1 == len(schedule) else ""
            self.message(f"turn {i + 1}: rank {schedule[i]}{here}")
        for task in sorted(scheduler.alive, key=lambda t: (t.rank, t.name)):
            text = "is here" if task is scheduler.running else str(task).partition(": ")[2]
            self.message(f"{task.where()}: {text}")

    def do_back(self, arg: str) -> None:
        """back [n]

        Go back to where this rank last came on from a call of a collective or the like; n: to the
        n-th such place before now.
        """
        debugging, count = self._debugging, self._number(arg, 1)
        if count is None:
            return
        turns = debugging.turns(self.rank)
        turns = turns[:-1] if debugging.exact else turns
        if self._debugging.is_last:
            self.error("there is no going back: the job was not started at a terminal")
        elif count > len(turns):
            self.error(f"rank {self.rank} has come on {len(turns)} times before")
        else:
            self._go(turns[-count])

    def do_turn(self, arg: str) -> None:
        """turn n

        Go to the n-th turn of the whole schedule: whichever rank goes on there stops.
        """
        scheduler, number = self._debugging.scheduler, self._number(arg, 0)
        if scheduler is None or number is None:
            return
        if self._debugging.is_last:
            self.error("there is no going back: the job was not started at a terminal")
        elif not 0 < number <= len(scheduler.schedule):
            self.error(f"there were turns 1 to {len(scheduler.schedule)} until now")
        else:
            self._go(number)

    def _go(self, turn: int) -> None:
        self.message(f"back to turn {turn} (the program runs again up to there)")
        self._debugging.go(turn)

    def _number(self, arg: str, default: int) -> int | None:
        if not arg.strip():
            return default
        if not arg.strip().isdigit() or int(arg) < 1:
            self.error(f"{arg}: a number from 1 on is needed")
            return None
        return int(arg)
