"""Runs the program of a recorded rank again, in this process, which was started for that.

``disttrain replay`` starts it with the recorded environment, and ``Options`` on its command line.
"""

from __future__ import annotations

import argparse
import atexit
import bdb
import builtins
import importlib
import importlib.util
import io
import json
import os
import sys
import threading
import traceback
import types
from importlib.machinery import SourceFileLoader
from types import CodeType, FrameType
from typing import Any

from ... import context
from ...core.observers import OperationObserver
from ...errors import ConfigError, SerializationError
from ...optim.state import register_optimizer_step_post_hook
from ..log.opening import CHECKER_SLOT
from ..log.surroundings import code_notes, seed_again, version_notes, versions
from ..reader import about_of
from ..recording import record
from .checking import Checker
from .options import Options, opened
from .outside import Outside
from .session import ReplayEnds, Session, error_line, to_stderr
from .stops import PausedWaiter, Stops, parse

SAME, DIFFERS, REFUSED = 0, 1, 2


class _Operations(OperationObserver):
    """Stops before operations."""

    by_nodes = True

    def __init__(self, stops: Stops) -> None:
        self.stops = stops

    def __str__(self) -> str:
        return "replay"

    def process(self, prim: Any, args: tuple, params: dict, forward: Any) -> Any:
        self.stops.operation(prim.name)
        return forward(prim, args, params)


class Replay:
    """One replay in this process."""

    def __init__(self, options: Options) -> None:
        self.options, self.log = options, opened(options)
        self.stops = Stops(parse(options.until), options.debug)
        self.session = Session(self.log, self.stops, to_stderr)
        self.told = self.session.meta
        self.checker: Checker | None = None
        self.recorded: record | None = None

    # -- before --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let this process be as the recorded one was when its program began."""
        told, me = self.told, context.current()
        me.numbers = tuple(told["numbers"])
        me.waiter = waiter = PausedWaiter()
        waiter.stops = self.stops
        folder = self.options.cwd or told["cwd"]
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.argv = [self.path, *told["words"][1:]]
        self._note_differences()
        if told["face"]:
            importlib.import_module(told["face"]).install()
        seed_again(told)
        me.slots[CHECKER_SLOT] = self._checker
        Outside(self.session).stand_in()

    @property
    def path(self) -> str:
        """The program: a file, or a module's name."""
        said = self.options.program or self.told["words"][0]
        if self.told["module"] or os.path.exists(said):
            return said
        near = os.path.relpath(said, self.told["cwd"] or "/")
        return near if os.path.exists(near) else said

    def _note_differences(self) -> None:
        notes = version_notes(self.told["versions"], versions())
        hashes: dict[str, str] = {}
        for frame in self.log.frames:
            if frame.meta.get("k") == "code":
                self.log.check(frame)
                hashes |= frame.meta["files"]
        self.hashes = hashes
        notes += code_notes(hashes, self._found(hashes))
        for note in notes:
            to_stderr(f"not as recorded: {note}")
        if notes and self.options.strict:
            raise ConfigError("replay: --strict was given, and this is not what was recorded")
        if not self.told["module"] and not os.path.exists(self.path):
            raise ConfigError(
                f"replay: the program {self.path} is not here; say where it is by --program FILE"
            )

    def _found(self, hashes: dict[str, str]) -> dict[str, str]:
        """Where files of the code are here: as they were, below this folder, or in this package."""
        cwd, out = self.told["cwd"] or "/", {}
        package = os.path.dirname(context.__file__)
        for path in hashes:
            if os.path.realpath(self.told["words"][0]) == path:
                out[path] = self.path
                continue
            inside = path.rpartition("/disttrain/")[2]
            near = [path, os.path.relpath(path, cwd), os.path.join(package, inside)]
            out[path] = next((p for p in near if os.path.exists(p)), path)
        return out

    def _checker(self, folder: str, rank: int) -> Checker:
        end = self.log.frames[-1].meta
        num_rows = end.get("rows", 0) if end.get("k") == "exit" else None
        self.checker = made = Checker(
            self.options.folder, self.options.rank, self.session.differs, num_rows
        )  # fmt: skip
        if num_rows is not None and made.torn:
            to_stderr(f"only the first {made.whole_rows} of {num_rows} rows are here")
        return made

    def watch(self) -> None:
        """Compare rows, and know of steps."""
        about = about_of(self.options.folder)
        first, steps = about.get("first_step", 0), about.get("steps")
        if self.told["launched"]:  # else the program records by itself
            self.recorded = record(
                self.options.folder, about["level"], first_step=first,
                steps=None if steps is None else tuple(steps),
            )  # fmt: skip
            self.recorded.__enter__()
        counted = Steps(self.stops, first)
        self.session.step = lambda: counted.now

    # -- the program ---------------------------------------------------------------------------

    def run(self) -> int:
        """Run the program; the exit code."""
        self.prepare()
        self.watch()
        if self.stops.until is not None and self.stops.until.what == "op":
            context.thread.stack.append(_Operations(self.stops))
            context.thread.refresh()
        atexit.register(self.finish)
        code: Any = 0
        if self.stops.until == ("step", 0, "") or (self.options.debug and not self.stops.until):
            _stop_in(self.path, self.stops)
        try:
            run_module(self.path) if self.told["module"] else run_script(self.path, self.told)
        except ReplayEnds:
            return self._end(False, "")
        except bdb.BdbQuit:
            return self._end(False, "ended in the debugger")
        except SystemExit as stop:
            code = stop.code
        except BaseException as error:
            return self._raised(error)
        _join_threads()
        self._at_end()
        return self._end(True, f"exit code {code}" if code else "")

    def _at_end(self) -> None:
        """Exit handlers of the program, which may still call others."""
        atexit.unregister(self.finish)
        try:
            atexit._run_exitfuncs()
        except ReplayEnds:
            return

    def _raised(self, error: BaseException) -> int:
        traceback.print_exception(error)
        self.stops.error(error)
        return self._end(False, f"the program raised {error_line(error)}")

    def _end(self, whole: bool, note: str) -> int:
        session = self.session
        if self.recorded is not None:
            self.recorded.__exit__()
        ended = self.log.frames[-1].meta.get("k") == "exit"
        if whole and not session.ended:
            left = session.left()
            if left:
                session.differs(f"the program has ended; the recording goes on with {left}")
        if self.checker is not None:
            self.checker.finish(whole and ended and not session.difference)
        return self._summary(note)

    def _summary(self, note: str) -> int:
        session, until = self.session, self.stops.until
        if until is not None and not self.stops.reached:
            to_stderr(f"--until {self.options.until}: the program did not come there")
        compared = 0 if self.checker is None else self.checker.compared
        said = f"rank {self.options.rank}: {session.calls} calls, {compared} rows"
        more = f"; {note}" if note else ""
        if session.difference:
            to_stderr(f"{said}: {session.differences} differ{more}")
            return DIFFERS
        to_stderr(f"{said}: bitwise equal{more}")
        return SAME

    def finish(self) -> None:
        """The process ends in another way."""


class Steps:
    """Counts the steps of the first optimizer that steps, and says when they begin."""

    def __init__(self, stops: Stops, first: int) -> None:
        self.stops, self.now = stops, first
        self._of: int | None = None
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *rest: object) -> None:
        if self._of is None:
            self._of = id(optimizer)
        if self._of == id(optimizer):
            self.now += 1
            self.stops.step(self.now)


def _join_threads() -> None:
    """Wait for the program's threads, as Python does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _stop_in(path: str, stops: Stops) -> None:
    """Open the debugger at the first line of the program."""
    real = os.path.realpath(path)

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if event == "call" and os.path.realpath(frame.f_code.co_filename) == real:
            sys.settrace(None)
            stops.reached = True
            stops.opened(frame, "the program begins")
            return frame.f_trace
        return None

    sys.settrace(trace)


# --- running as __main__ --------------------------------------------------------------------------


def run_script(path: str, told: dict[str, Any]) -> None:
    """As ``python PATH``."""
    if not told["plain"] and not sys.flags.safe_path:
        sys.path[:1] = [os.path.dirname(os.path.realpath(path))]
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    _run(code, path)


def run_module(name: str) -> None:
    """As ``python -m NAME``."""
    sys.path[:1] = [os.getcwd()]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(f"replay: there is no module {name} here")
    loader: Any = spec.loader
    sys.argv[0] = spec.origin
    _run(loader.get_code(spec.name), spec.origin, spec)


def _run(code: CodeType, path: str, spec: Any = None) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(
        __file__=path, __builtins__=builtins, __spec__=spec, __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
        __package__=None if spec is None else spec.parent,
    )  # fmt: skip
    sys.modules["__main__"] = main
    _Program(code).exec_module(main)


class _Program(SourceFileLoader):
    """Runs code that is at hand in a module, as an import does."""

    def __init__(self, code: CodeType) -> None:
        super().__init__("__main__", code.co_filename)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def main(argv: list[str]) -> int:
    """The words: options as JSON."""
    parser = argparse.ArgumentParser(prog="disttrain replay")
    parser.add_argument("options")
    options = Options(**json.loads(parser.parse_args(argv).options))
    try:
        return Replay(options).run()
    except (ConfigError, SerializationError) as error:
        sys.stderr.write(f"disttrain {error}\n")
        return REFUSED


__all__ = ["Replay", "main", "run_module", "run_script"]
