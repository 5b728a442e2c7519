"""What runs in a rank: the forked or executed process, from its first line to its exit code."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from disttrain import context, settings
from disttrain.comm.job import termination
from disttrain.comm.job.blackbox import STACKS_FD, Box, adopt
from disttrain.comm.job.pause import Pause
from disttrain.comm.job.segment import JOB_SLOT, Segment
from disttrain.debugger import stopping
from disttrain.errors import DisttrainError, PeerFailed
from disttrain.lifetime import die_with_parent
from disttrain.outputs import UNHEARD, is_heard, put
from disttrain.watch import stacks

from ..plan.generation import Generation
from ..plan.job import Plan
from . import open_files
from .environment import worker_env
from .logs import write_whole
from .program import here, run_module, run_script

AS_EVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD,
           signal.SIGTSTP, signal.SIGCONT)  # fmt: skip
FAREWELL = 3.0  # seconds that a failed rank has for its threads and exit handlers


def become_rank(
    plan: Plan, generation: Generation, segment: Segment, box: Box, rank: int, agent: int
) -> None:
    """Turn a freshly forked process into rank ``rank``."""
    die_with_parent(agent)
    for number in AS_EVER:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    me = context.current()
    me.slots.clear()  # what the process that we were forked from kept is not ours
    if plan.on_term == "checkpoint":
        termination.listen()
    os.environ.update(worker_env(plan, generation, rank))
    os.environ |= {settings.JOB_FD.name: str(segment.fd), settings.BLACKBOX_FD.name: str(box.fd)}
    me.rank, me.local_rank = rank, generation.local_rank(rank)
    me.world_size, me.local_world_size = generation.world_size, generation.num_ranks
    me.waiter.interrupts.clear()
    me.waiter.clock = Pause(segment.buffer).now
    me.slots[JOB_SLOT] = segment
    segment.slot(rank).pid = os.getpid()
    segment.slot(rank).state = "running"
    mine = adopt(box.recorder(rank))
    mine.words[STACKS_FD] = stacks.listen()
    stopping.listen()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a rank that is killed loses no line
    if not faulthandler.is_enabled() and _has_descriptor(sys.stderr):
        faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, plan.signals)


def _has_descriptor(stream: Any) -> bool:
    try:
        return stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def forget_exit_handlers() -> None:
    """Drop the exit handlers that the process we were forked from has registered for itself:
    they would, for example, remove its temporary directories. Later ones work as ever."""
    atexit._clear()
    finalize: Any = weakref.finalize
    for inherited in list(finalize._registry):
        inherited.atexit = False
    finalize._registered_with_atexit = False
    if "multiprocessing.util" in sys.modules:  # ends the rank's own daemonic children
        atexit.register(sys.modules["multiprocessing.util"]._exit_function)


def run_rank(
    plan: Plan, generation: Generation, segment: Segment, rank: int, body: Callable[[], Any]
) -> int:
    """Run ``body`` and give the exit code; an exception is printed, recorded and published.

    A process that ``body`` has forked comes back from it, too, when nothing else ends it. It ends
    like any Python process, and says nothing of the rank.
    """
    slot, me = segment.slot(rank), os.getpid()
    error: BaseException | None = None
    code, hook = 0, sys.excepthook
    try:
        body()
    except SystemExit as stop:
        code = exit_code(stop)
        if told := getattr(stop, "told", ""):  # by who has quit the debugger
            slot.record_error(told, "")
    except KeyboardInterrupt as stop:
        code = 128 + signal.SIGINT
        if os.getpid() == me:  # the launcher shows it, unless it has passed on a Ctrl-C
            slot.record_error("KeyboardInterrupt", format_error(stop))
    except BrokenPipeError as raised:
        error, code = (raised, 1) if is_heard(1) and is_heard(2) else (None, UNHEARD)
    except BaseException as raised:
        error, code = raised, 1
    is_rank = os.getpid() == me
    if error is not None:
        _flush(sys.stdout)
        if not _tells_itself(error, hook):
            put(format_error(error), patience=FAREWELL)
        if plan.post_mortem and not isinstance(error, PeerFailed):
            _look_at(error)
    if code and is_rank:
        if error is not None:
            _report(plan, generation, segment, rank, error)
        slot.state = "failed"
        _end_within(FAREWELL, code)
    code, late = _finish(code)
    if is_rank:
        if late is not None and error is None:
            _report(plan, generation, segment, rank, late)
        slot.state = "failed" if code else "finished"
    return code


def _look_at(error: BaseException) -> None:
    """Let people look where it was raised, before anybody hears of it."""
    try:
        stopping.post_mortem(error)
    except Exception as why:
        put(f"dtrun: --pdb: {why}\n")


def _tells_itself(error: BaseException, before: object) -> bool:
    """Has the program its own ``sys.excepthook``, which tells of the error?"""
    hook = sys.excepthook
    module = getattr(hook, "__module__", None) or ""
    if hook in (before, sys.__excepthook__) or module.partition(".")[0] == context.__package__:
        return False
    try:
        hook(type(error), error, error.__traceback__)
    except BaseException:
        put(f"Error in sys.excepthook:\n{traceback.format_exc()}\nOriginal exception was:\n")
        return False
    return True


def _finish(code: int) -> tuple[int, BaseException | None]:
    """What Python does at the end of a program: threads, exit handlers, outputs. The exit code,
    and what went wrong in doing so."""
    late = None
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # wait for the program's threads
        atexit._run_exitfuncs()  # which may still call the others
        context.current().end()
    except BaseException as error:
        traceback.print_exc()
        late, code = error, code or 1
    open_files.write()
    for stream in (sys.stdout, sys.stderr):
        why = _flush(stream)
        if isinstance(why, BrokenPipeError):
            code = code or UNHEARD
        elif why is not None:
            put(f"dtrun: {getattr(stream, 'name', 'output')}: not all was written: {why}\n")
            code = code or 1
    return code, late


def _flush(stream: Any) -> Exception | None:
    """Write what is in its buffer; why that cannot be, if so."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except (OSError, ValueError) as error:
        return error
    return None


def _end_within(seconds: float, code: int) -> None:
    """End this process after that time: a rank that has failed is not kept by a thread, an exit
    handler or a child that never ends. (One that succeeds waits for them, as Python does.)"""
    me = os.getpid()

    def end() -> None:
        time.sleep(seconds)
        threads = [t.name for t in threading.enumerate() if not t.daemon and t.is_alive()]
        said = f"dtrun: process {me} has failed and is ended, though it still waits; its threads: "
        os.write(2, f"{said}{', '.join(threads)}\n".encode(errors="replace"))
        os._exit(code)

    with contextlib.suppress(RuntimeError):  # no thread may be started: the agent does it then
        threading.Thread(target=end, daemon=True).start()


def exit_code(stop: SystemExit) -> int:
    """What a program that raised ``stop`` exits with; a text is printed, as Python does."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _report(
    plan: Plan, generation: Generation, segment: Segment, rank: int, error: BaseException
) -> None:
    text = format_error(error)
    cause = f"{type(error).__name__}: {error}"
    segment.slot(rank).record_error(cause, text)
    job = context.current().slots.get(JOB_SLOT, segment)
    if not isinstance(error, PeerFailed):
        segment.publish_failure(rank, cause, text)
    elif 0 <= error.rank < job.num_ranks and job.slot(error.rank).state == "vanished":
        job.publish_failure(error.rank, error.cause)  # before others hear only of this one's end
    if plan.log_dir:
        why_not = write_error_file(plan.error_file(generation, rank), cause, text)
        if why_not:
            put(f"dtrun: {why_not}\n")


def format_error(error: BaseException) -> str:
    """The traceback as the program's author wants it: without the launcher's frames on top, and,
    where one of our own errors speaks for itself, without the frames inside this package."""
    report = traceback.TracebackException.from_exception(error)
    launcher = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    package = os.path.dirname(os.path.abspath(context.__file__)) + os.sep
    frames = list(report.stack)
    while len(frames) > 1 and (
        frames[0].filename.startswith(launcher)
        or frames[0].filename.startswith(("<frozen runpy", "<frozen importlib"))
    ):
        frames.pop(0)
    if isinstance(error, DisttrainError):
        while len(frames) > 1 and frames[-1].filename.startswith(package):
            frames.pop()
    report.stack[:] = frames
    return "".join(report.format())


def write_error_file(path: str, cause: str, text: str) -> str:
    """The JSON that torchelastic writes, which schedulers read; plus nanoseconds. Why not, if it
    cannot be written."""
    now = time.time_ns()
    extra = {"py_callstack": text, "timestamp": str(now // 10**9)}
    content = {"message": {"message": cause, "extraInfo": extra, "timestamp_ns": now}}
    return write_whole(path, json.dumps(content))


def program_body(plan: Plan) -> Callable[[], None]:
    """Run the plan's script or module as ``__main__``."""

    def body() -> None:
        if "numpy.random" in sys.modules:  # forked ranks would all draw the same numbers
            sys.modules["numpy.random"].seed()
        sys.argv = list(plan.program)
        told = (list(plan.program), plan.module, plan.run_path, plan.face)
        context.current().slots[context.PROGRAM_SLOT] = told
        if plan.face:
            importlib.import_module(plan.face).install()
        for name in plan.observers:
            importlib.import_module(name).begin()
        if plan.module:
            run_module(plan.program[0])
            return
        if plan.run_path and plan.spawn:
            sys.path[0] = here()  # not where the launcher is
        run_script(plan.program[0], enter=not plan.run_path)

    return body


def main(argv: list[str]) -> int:
    """RANK GENERATION PLAN, as JSON: a rank that was executed."""
    rank, generation = int(argv[0]), Generation.from_json(argv[1])
    fields = json.loads(argv[2])
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = tuple(value)
    plan = Plan(**fields)
    segment = Segment.attach(int(settings.JOB_FD.text()))
    box = Box(int(settings.BLACKBOX_FD.text()))
    for fd in (segment.fd, box.fd):
        os.set_inheritable(fd, False)
    become_rank(plan, generation, segment, box, rank, os.getppid())
    return run_rank(plan, generation, segment, rank, program_body(plan))


# What a fresh Python is given with -c, followed by the folder of this package and the words of
# ``main``. (PYTHONPATH would be found by what the program starts, too.)
FRESH = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from disttrain_launcher.worker.main import begin; begin()"
)


def begin() -> None:
    """The whole life of such a process."""
    status = main(sys.argv[1:])
    _flush(sys.stdout)
    os._exit(status)
