"""How a job under MPI ends: never by ranks that wait for one which will not come.

* All is well: every rank says at the end of its program that it has ended, waits until all have,
  and calls MPI_Finalize, which cannot hang then.
* An exception ends a rank: it prints the traceback, tells the others (those who wait in a call get
  ``PeerFailed`` with its cause), and aborts the job a moment later. Who failed only because another
  rank did says so in a line, and leaves the abort to that one.
* A rank ends early, by ``raise SystemExit(3)`` or by coming to its end: who waits for it is told
  that it has ended, and fails. When it hears of that it finds out with which exit code it ends
  (``_code_of_this_end``), and aborts the job with that, a moment later. ``os._exit(0)`` is an end
  as any other.
* A rank is killed: mpiexec ends the others.

Knows the station and the interpreter's hooks; no groups.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from .... import context
from ....errors import CommError, DisttrainError, PeerFailed
from ....outputs import drain
from ...job.segment import JOB_SLOT
from .notices import NOT_KNOWN
from .station import SLOT, Station, existing

_GRACE = 0.5  # seconds that the others have for what they are told before the job is aborted
_ASIDE = 1.0  # ... in which ranks that have failed of one mismatch hear of each other
_ECHO = 5.0  # ... that a rank which has failed because of another one leaves to that one
_PACKAGE = os.path.dirname(os.path.abspath(context.__file__)) + os.sep


def install(station: Station) -> None:
    """Let the end of this process be the end of its part in the job."""
    if station.hooks:
        return
    station.hooks = Hooks(sys.excepthook)
    sys.excepthook = _excepthook
    os._exit = station.hooks.leave
    atexit.register(_end_of_process)
    os.register_at_fork(after_in_child=_after_fork)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a rank that is killed loses no line


class Hooks:
    """The interpreter's own."""

    def __init__(self, excepthook: Any) -> None:
        self.excepthook = excepthook
        self._leave = os._exit

    def leave(self, status: int) -> NoReturn:
        """``os._exit``. mpiexec ends all other ranks where one goes without a word, and calls that
        a success if the code is 0: a program that has ended well says so first."""
        here = existing()
        if not status and threading.current_thread() is threading.main_thread():
            _end_of_process()
            if here is not None and here.MPI.Is_finalized():
                ctypes.PyDLL(None).exit(0)  # MPI says in its destructors that all is well
        elif here is not None and not here.over and not here.is_launched:
            os.write(2, f"rank {here.rank} of {here.size} leaves by os._exit({status})\n".encode())
            if threading.current_thread() is threading.main_thread():
                _abort(here, status)  # else mpiexec may give the code of a rank that it has killed
        self._leave(status)


def _excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """The program has ended with an exception."""
    here = existing()
    if here is None or here.over:
        sys.__excepthook__(kind, error, trace)
        return
    code = 130 if issubclass(kind, KeyboardInterrupt) else 1
    _fail(
        here, error, lambda: here.hooks.excepthook(kind, _without_ours(error), error.__traceback__)
    )
    _abort(here, code)


def _fail(here: Station, error: BaseException, show: Callable[[], None]) -> None:
    """Show the error where it is this rank's own, tell the others, and leave them a moment. Of
    ranks that fail of the same, one shows it."""
    text = "".join(traceback.format_exception(error))
    cause = f"{type(error).__name__}: {error}"
    if not isinstance(error, CommError):  # shown before others can say that they end because of it
        here.listen()
        own = cause not in [theirs for theirs, _ in here.board.failures.values()]
        _say(here, error, show if own else None)
        here.fail(cause, text)
        here.flush(_GRACE)
    else:
        own = not isinstance(error, PeerFailed) or not here.board.failures
        if own:
            here.fail(cause, text)
            here.flush(_GRACE)
        own = own and not _left_to_another(here, error)
        _say(here, error, show if own else None)
    _rest(here, _GRACE if own else _ECHO)


def _rest(here: Station, seconds: float) -> None:
    """Leave the others ``seconds``, and more to a rank that has ended its program: it gives its
    exit code to the job, once it knows it, unless that is 0."""
    start = time.monotonic()
    while (rested := time.monotonic() - start) < _ECHO:
        here.listen()
        if rested >= seconds and not any(_codes(here)):
            return
        time.sleep(0.005)


def _say(here: Station, error: BaseException, show: Callable[[], None] | None) -> None:
    """What this rank ends with; in a line, where another one says it all."""
    sys.stdout.flush()
    if show is not None:
        head = f"rank {here.rank} of {here.size} failed on {os.uname().nodename}:\n"
        _at_once(lambda: (sys.stderr.write(head), show()))
    else:
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, PeerFailed):
            cause = f"rank {error.rank} failed: {error.cause}"
        sys.stderr.write(f"rank {here.rank} ends, too: {cause.splitlines()[0]}\n")
    sys.stderr.flush()


def _at_once(show: Callable[[], object]) -> None:
    """What ``show`` writes to the standard error, in one piece: no other rank's line comes between,
    and a job that is aborted meanwhile does not end with half of it."""
    stream, text = sys.stderr, io.StringIO()
    sys.stderr = text
    try:
        show()
    finally:
        sys.stderr = stream
        stream.write(text.getvalue())
        stream.flush()


def _left_to_another(here: Station, error: BaseException) -> bool:
    """Has a rank before this one failed of the same, or any of something else?"""
    until = time.monotonic() + _ASIDE
    while here.rank and time.monotonic() < until:
        here.listen()
        for rank, (cause, _) in here.board.failures.items():
            if rank < here.rank or not cause.startswith(type(error).__name__):
                return True
        time.sleep(0.005)
    return False


def _without_ours(error: BaseException) -> BaseException:
    """The error without the frames inside this package, where it is one that speaks for itself."""
    trace, kept = error.__traceback__, []
    while trace is not None:
        kept.append(trace)
        trace = trace.tb_next
    if isinstance(error, DisttrainError):
        while len(kept) > 1 and kept[-1].tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.pop()
        kept[-1].tb_next = None
    return error


def _abort(here: Station, code: int) -> None:
    """End the job, with the code of a rank that has ended its program, if that is why."""
    ended = [code for code in _codes(here) if code > 0]
    here.over = True
    for fd in (1, 2):
        drain(fd)
    here.MPI.COMM_WORLD.Abort(ended[0] if ended else code)


def _codes(here: Station) -> list[int]:
    """Those with which ranks have ended too early; ``NOT_KNOWN`` where they do not know."""
    return [each.code for each in here.board.said.values() if each.kind == "ended"]


def _end_of_process() -> None:
    here = existing()
    if here is None or here.over or here.MPI.Is_finalized():
        return
    job = context.current().slots.get(JOB_SLOT)
    if job is not None and job.slot(context.current().rank).state == "failed":
        here.over = True  # the launcher's worker has said why; the code of this process counts
        return
    try:
        context.current().end()
        here.end()
    except Exception as late:
        error = late
        _fail(here, error, lambda: traceback.print_exception(_without_ours(error)))
        _abort(here, 1)
    if here.is_left:
        here.over = True  # MPI would wait for a rank that is gone
        return
    if _all_have_ended(here):
        here.detach()
        here.MPI.Finalize()
        return
    code = _code_of_this_end()
    if code is None:
        return
    here.tell(here.notice("ended", code=code))
    here.flush(_GRACE)
    if code:
        time.sleep(_GRACE + _ASIDE)  # the others say why they fail
        sys.stderr.write(
            f"rank {here.rank} of {here.size} has ended its program with exit code {code}, and "
            "others have still needed it\n"
        )
        sys.stderr.flush()
    else:
        time.sleep(_ECHO)  # who has failed aborts the job
    _abort(here, code or 1)


def _code_of_this_end() -> int | None:
    """The code that this process would end with, which nothing tells an exit handler of: a copy of
    it ends in its place. None in the copy."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        copy = os.fork()
    except (OSError, RuntimeError):
        return 1
    if not copy:
        atexit._clear()
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)  # before what libraries do at the end of a process
        return None
    until = time.monotonic() + _ECHO
    while time.monotonic() < until:
        pid, status = os.waitpid(copy, os.WNOHANG)
        if pid:
            return abs(os.waitstatus_to_exitcode(status))
        time.sleep(0.002)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return 1


def _all_have_ended(here: Station) -> bool:
    """Wait for the ends of the other ranks; False where one has failed instead."""
    here.tell(here.notice("ended", code=NOT_KNOWN))
    others = [rank for rank in range(here.size) if rank != here.rank]

    def all_said_so() -> bool:  # and all that they have said before was read
        here.listen()
        said = here.board.said
        return all(rank in said and said[rank].kind == "ended" for rank in others)

    try:
        context.wait_until(all_said_so, lambda: "the other ranks to end", float("inf"))
    except CommError:
        return False
    here.flush(_GRACE)
    return True


def _after_fork() -> None:
    """A process that a rank has forked is no rank, and must not touch its MPI."""
    here = context.current().slots.get(SLOT)
    if here is not None:
        for transport in here.open:
            transport.disable("it belongs to the process that this one was forked from")
        here.open = []
        here.pending = []
        here.detach()
