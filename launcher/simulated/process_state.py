"""What a process has one of, and every simulated rank has one of its own.

Ranks that are threads of one process take turns, and whoever goes on finds the process as it left
it: environment, ``sys.argv``, ``sys.path``, working directory, the modules of the program (those
that are neither Python's nor installed), what it has set in other modules (``overlay``), the states
of ``random`` and ``numpy.random``, filters of warnings, and the handlers and level of the root
logger. Outputs are told apart by the calling thread; threads that a rank starts belong to it.

All the rest is shared: open files, the process's number, modules of the standard library and
installed packages with what they keep. ``docs/simulate.md`` tells a user.
"""

from __future__ import annotations

import atexit
import importlib._bootstrap as bootstrap
import logging
import os
import random
import signal
import site
import sys
import sysconfig
import threading
import time
import traceback
import warnings
import weakref
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from disttrain import context
from disttrain.comm.transports.sim import Killed, SimWaiter

from ..node.report import VANISHED
from ..worker.program import here
from .overlay import Overlay, Overlays

_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SHARED_FOLDERS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.join(_OWN, "disttrain"),
        os.path.join(_OWN, "disttrain_launcher"),
        site.getusersitepackages(),
    }
)
_MOMENT = 1e-3  # seconds
_SOME = 64


def is_of_the_program(spec: ModuleSpec | None) -> bool:
    """Whether every rank gets a module of its own: its file is the program's, neither Python's nor
    an installed one."""
    if spec is None or isinstance(spec.loader, ExtensionFileLoader):
        return False
    places = [spec.origin] if spec.has_location and spec.origin else []
    places += list(spec.submodule_search_locations or ())
    return bool(places) and not any(
        os.path.realpath(place).startswith(_SHARED_FOLDERS) for place in places
    )


def _is_python_own(module: str) -> bool:
    return module != "__main__" and module.partition(".")[0] in sys.stdlib_module_names


class Ambient:
    """What one rank finds in the process. ``seed``: of what it draws without a seed of its own."""

    def __init__(self, rank: int, env: dict[str, str], argv: Sequence[str], seed: str) -> None:
        self.rank, self.seed = rank, seed
        self.env = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        self.folder = here()
        self.modules: dict[str, ModuleType] = {"__main__": sys.modules["__main__"]}
        self.names = {"__main__"}  # of the modules that are its own
        self.random: Any = None  # None: it has not begun
        self.numpy_random: Any = None
        self.handlers = list(logging.root.handlers)
        self.level = logging.root.level
        self.at_exit: list[tuple[Callable[..., Any], tuple, dict]] = []
        self.signals: dict[int, Any] = {}
        self.finalizers: list[weakref.finalize] = []  # of its objects
        self.most_finalizers = _SOME  # before those of objects that are gone are taken out
        self.threads: list[threading.Thread] = []  # that the program has started
        self.overlay = Overlay(self.names.__contains__)
        self.overlay.give(sys, "argv", list(argv))
        self.overlay.give(sys, "path", list(sys.path))
        self.overlay.give(warnings, "filters", list(warnings.filters))

    def end(self, patience: float | None = None) -> None:
        """What Python does at the end of a program: wait for its threads (so many seconds at most),
        call what it has registered with ``atexit`` and its objects' finalizers, the last one first,
        and flush its outputs."""
        for thread in self.threads:
            if not thread.daemon:
                thread.join(patience)
        while self.at_exit:
            fn, args, kwargs = self.at_exit.pop()
            _call(fn, *args, **kwargs)
        while self.finalizers:
            if (last := self.finalizers.pop()).atexit:
                _call(last)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _call(fn: Callable[..., Any], *args: object, **kwargs: object) -> None:
    try:
        fn(*args, **kwargs)
    except Exception:
        traceback.print_exc()


class Stage:
    """The process, on which one rank at a time stands. ``enter(rank)`` is called by its thread."""

    def __init__(self, ambients: Sequence[Ambient]) -> None:
        self.ambients = ambients
        self._now: Ambient | None = None
        self._process_thread = threading.get_ident()
        self._originals: list[tuple[Any, str, Any]] = []
        self.overlays = Overlays(self._overlay)

    # -- changing places ----------------------------------------------------------------------

    def enter(self, rank: int) -> None:
        """The rank whose thread calls this goes on."""
        before, after = self._now, self.ambients[rank]
        if before is after:
            return
        if before is not None:
            _leave(before)
            self.overlays.leave(before.overlay)
        self._now = after
        self.overlays.enter(after.overlay)
        _enter(after)

    # -- the process's own --------------------------------------------------------------------

    def open(self) -> None:
        """From now on ranks come by: what would be the whole process's is the calling rank's."""
        sys.meta_path.insert(0, _Finder(self))
        self._replace(atexit, "register", self._register)
        self._replace(atexit, "unregister", self._unregister)
        self._replace(weakref.finalize, "__init__", self._finalizer())
        self._replace(signal, "signal", self._signal)
        self._replace(os, "_exit", self._exit)
        self._replace(os, "kill", self._kill)
        self._replace(os, "abort", self._abort)
        self._replace(signal, "raise_signal", self._raise)
        self._replace(threading.Thread, "start", self._starter())
        self._replace(time, "sleep", self._sleep)
        self.overlays.adopt(list(sys.modules.values()))

    def _replace(self, owner: object, name: str, new: Callable) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def _original(self, name: str) -> Callable[..., Any]:
        return next(old for _, known, old in self._originals if known == name)

    def _mine(self) -> Ambient | None:
        """The calling rank's; None for a thread of the process itself."""
        if threading.get_ident() == self._process_thread:
            return None
        waiter = context.current().waiter
        return self.ambients[waiter.rank] if isinstance(waiter, SimWaiter) else None

    def _overlay(self) -> Overlay | None:
        mine = self._mine()
        return None if mine is None else mine.overlay

    def _sleep(self, seconds: float) -> None:
        """Virtual, so that others go on meanwhile; and real for a moment, since who looks out for
        something outside of the simulation sleeps between its looks."""
        if self._mine() is None or context.thread.task is None:
            self._original("sleep")(seconds)
            return
        self._original("sleep")(min(seconds, _MOMENT))
        context.sleep(seconds)

    def _starter(self) -> Callable[[threading.Thread], None]:
        """``Thread.start``: a thread belongs to the rank that starts it."""
        start = threading.Thread.start

        def start_for_its_rank(thread: threading.Thread) -> None:
            mine = self._mine()
            if mine is not None:
                mine.threads = [t for t in mine.threads if t.is_alive()] + [thread]
                place, run = context.current(), thread.run

                def run_there() -> None:
                    with context.attach(place):
                        run()

                thread.run = run_there  # type: ignore[method-assign]
            start(thread)

        return start_for_its_rank

    def _finalizer(self) -> Callable[..., None]:
        """``weakref.finalize``: an object belongs to the rank that makes it."""
        init = weakref.finalize.__init__

        def init_for_its_rank(new: weakref.finalize, *args: Any, **kwargs: object) -> None:
            init(new, *args, **kwargs)
            mine = self._mine()
            if mine is not None:
                if len(mine.finalizers) >= mine.most_finalizers:
                    mine.finalizers = [each for each in mine.finalizers if each.alive]
                    mine.most_finalizers = max(_SOME, 2 * len(mine.finalizers))
                mine.finalizers.append(new)

        return init_for_its_rank

    def _register(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """What Python's own modules register, as ``multiprocessing`` and ``weakref`` do, is about
        the objects of all ranks, so it is the process's."""
        mine = self._mine()
        if mine is None or _is_python_own(sys._getframe(1).f_globals.get("__name__", "")):
            return self._original("register")(fn, *args, **kwargs)
        mine.at_exit.append((fn, args, kwargs))
        return fn

    def _unregister(self, fn: Callable[..., Any]) -> None:
        mine = self._mine()
        if mine is None:
            self._original("unregister")(fn)
        else:
            mine.at_exit = [each for each in mine.at_exit if each[0] != fn]

    def _signal(self, number: int, handler: object) -> Any:
        """A rank's handlers are kept, so that a program may set them; no signal reaches a rank."""
        mine = self._mine()
        if mine is None:
            return self._original("signal")(number, handler)
        before = mine.signals.get(number, signal.getsignal(number))
        mine.signals[number] = handler
        return before

    def _exit(self, code: int) -> None:
        """Ends the calling rank at once, as it would end its process."""
        if self._mine() is None:
            self._original("_exit")(code)
        code &= 0xFF
        _end(code or 1, f"exit code {code}" if code else VANISHED)

    def _kill(self, pid: int, number: int) -> None:
        mine = self._mine()
        if mine is None or pid != os.getpid() or number == 0:
            self._original("kill")(pid, number)
            return
        handler = mine.signals.get(number)
        if callable(handler):
            handler(number, None)
        elif handler != signal.SIG_IGN:
            _end(128 + number, f"killed by {signal.Signals(number).name}")

    def _raise(self, number: int) -> None:
        if self._mine() is None:
            self._original("raise_signal")(number)
        else:
            self._kill(os.getpid(), number)

    def _abort(self) -> None:
        if self._mine() is None:
            self._original("abort")()
        _end(128 + signal.SIGABRT, "killed by SIGABRT")


class Ended(Killed):
    """A rank ends with this exit code; its program does not catch it by accident."""

    def __init__(self, code: int, how: str) -> None:
        super().__init__(how)
        self.code = code


def _end(code: int, how: str) -> None:
    """End the calling rank where it stands, with all its threads."""
    waiter = context.current().waiter
    assert isinstance(waiter, SimWaiter)
    waiter.scheduler.end_rank(waiter.rank, how)
    raise Ended(code, how)


def _leave(mine: Ambient) -> None:
    """Take along what is this rank's."""
    mine.env = dict(os.environ._data)  # type: ignore[attr-defined]
    mine.handlers, mine.level = list(logging.root.handlers), logging.root.level
    mine.random = random.getstate()
    if "numpy.random" in sys.modules:
        mine.numpy_random = sys.modules["numpy.random"].get_state()
    mine.folder = here() or mine.folder
    for name in mine.names:
        module = sys.modules.pop(name, None)
        if module is not None:
            mine.modules[name] = module
        else:
            mine.modules.pop(name, None)
        # Who imports it now is another rank, whose module it is not.
        bootstrap._module_locks.pop(name, None)  # type: ignore[attr-defined]


def _enter(mine: Ambient) -> None:
    """Put in place what is this rank's."""
    _set_env(mine.env)
    if logging.root.level != mine.level:
        logging.root.setLevel(mine.level)
    logging.root.handlers[:] = mine.handlers
    if mine.random is None:
        random.seed(mine.seed)
    else:
        random.setstate(mine.random)
    if "numpy.random" in sys.modules:
        if mine.numpy_random is None:
            sys.modules["numpy.random"].seed(zlib.crc32(mine.seed.encode()))
        else:
            sys.modules["numpy.random"].set_state(mine.numpy_random)
    if mine.folder != here():
        with suppress(FileNotFoundError):  # it was removed
            os.chdir(mine.folder)
    sys.modules.update(mine.modules)


def _set_env(wanted: dict[bytes, bytes]) -> None:
    """Change what differs only: a write goes to the C library, too. (All ranks do this at every
    turn, so it is done on what ``os.environ`` holds, as bytes.)"""
    have: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    for name in have.keys() - wanted.keys():
        os.unsetenv(name)
        del have[name]
    for name, value in wanted.items() - have.items():
        os.putenv(name, value)
        have[name] = value


class _Finder:
    """Notes which modules of the program a rank has imported: they are its own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        mine = self._stage._mine()
        if mine is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if is_of_the_program(spec):
            mine.names.add(name)
        elif spec is not None and not isinstance(spec.loader, ExtensionFileLoader):
            self._stage.overlays.adopt_when_made(spec)
        return spec
