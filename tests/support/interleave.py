"""Run functions on threads of which one goes on at a time, and try in which order they can.

    def stage(play):                     # builds everything anew, and names the actors
        play.actor(first), play.actor(second)
        return check                     # called when all have ended

    explore(stage, files, turns=2)       # every order that takes two turns of its own

At every line of ``files`` an actor may be stopped and another one go on. ``play.wait(ready)`` is
how actors block, and ``play.threading`` stands in for the module where locks are made: time does
not pass, so where nobody can go on the actors are ``Stuck``.
"""

from __future__ import annotations

import random
import sys
import threading
from types import SimpleNamespace


class Stuck(AssertionError):
    """Nobody can go on."""


class _Over(BaseException):
    """Ends the actors of a play that is stuck."""


class _Actor:
    def __init__(self, body, play):
        self.body, self.ready, self.ended = body, None, False
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread = threading.Thread(target=play._run, args=(self,), daemon=True)
        self.where = ""


class _Lock:
    def __init__(self, play):
        self._play, self._held = play, False

    def locked(self):
        return self._held

    def acquire(self, blocking=True, timeout=-1):
        if self._held:
            if not blocking:
                return False
            self._play.wait(lambda: not self._held)
        self._held = True
        return True

    def release(self):
        assert self._held, "release of a lock that nobody holds"
        self._held = False

    def __enter__(self):
        self.acquire()

    def __exit__(self, *exc):
        self.release()


class Play:
    """One order of events. ``prefix``: which of the actors that can go on does, choice by choice;
    afterwards the one that runs goes on as long as it can, and then the first one that can. A turn
    is a choice of another one."""

    def __init__(self, files, prefix):
        self._files, self._prefix, self._actors = files, prefix, []
        self.choices = []  # (options, chosen)
        self._me = None
        self._end, self.failed = threading.Semaphore(0), None
        self.threading = SimpleNamespace(
            Lock=lambda: _Lock(self), get_ident=threading.get_ident, local=threading.local
        )

    def actor(self, body):
        self._actors.append(_Actor(body, self))

    def wait(self, ready):
        """Block the calling actor until ``ready()``."""
        me = self._me
        if ready():
            return
        me.ready = ready
        self._go_on(me)
        me.ready = None

    def _can(self, actor):
        return not actor.ended and (actor.ready is None or bool(actor.ready()))

    def _go_on(self, me):
        """Let the next actor go on; return when it is this one's turn."""
        runs = me is not None and self._can(me)
        options = [me] if runs else []
        options += [a for a in self._actors if a is not me and self._can(a)]
        if not options:
            if not all(actor.ended for actor in self._actors) and self.failed is None:
                places = "\n".join(a.where for a in self._actors if not a.ended)
                self.failed = Stuck(f"nobody can go on:\n{places}")
            self._end.release()
            if me is None or me.ended:
                return
            me.baton.acquire()
            raise _Over
        at = len(self.choices)
        chosen = self._prefix[at] if at < len(self._prefix) else 0
        self.choices.append((len(options), chosen))
        self._me = options[chosen]
        if self._me is me:
            return
        self._me.baton.release()
        if me is not None and not me.ended:
            me.baton.acquire()
            if self.failed is not None:
                raise _Over

    def _trace(self, frame, event, arg):
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame, event, arg):
        if event == "line":
            me = self._me
            me.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            self._go_on(me)
        return self._line

    def _run(self, actor):
        actor.baton.acquire()
        try:
            if self.failed is None:
                sys.settrace(self._trace)
                actor.body()
        except _Over:
            return
        except BaseException as error:
            self.failed = self.failed or error
        finally:
            sys.settrace(None)
            actor.ended = True
        if self.failed is None:
            self._go_on(actor)
        else:
            self._end.release()

    def run(self):
        for actor in self._actors:
            actor.thread.start()
        self._go_on(None)
        self._end.acquire()
        for actor in self._actors:
            if not actor.ended:
                actor.baton.release()
            actor.thread.join(10)
        if self.failed is not None:
            raise self.failed


def explore(stage, files, turns, most=None):
    """Play all orders with at most so many ``turns`` (of more than ``most``, some by chance);
    returns how many there were. Raises what an actor or the check raised, and tells the order."""
    chance, todo, plays = random.Random(0), [([], turns)], 0
    while todo and (most is None or plays < most):
        at = chance.randrange(len(todo)) if most else -1
        todo[at], todo[-1] = todo[-1], todo[at]
        prefix, left = todo.pop()
        play = Play(files, prefix)
        check = stage(play)
        plays += 1
        try:
            play.run()
            check()
        except BaseException as error:
            error.add_note(f"in the order {prefix}")
            raise
        for at in range(len(prefix), len(play.choices)):
            before = [chosen for _, chosen in play.choices[:at]]
            options = play.choices[at][0] if left else 0
            todo += [([*before, other], left - 1) for other in range(1, options)]
    return plays
