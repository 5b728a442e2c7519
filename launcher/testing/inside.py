"""What a rank does with a test: its call, as pytest makes it, and what came of that as JSON.

pytest was forked, so everything that it has ready for the test is here; what would be shared with
the other ranks, such as the files of captured output, becomes the rank's own first.
"""

from __future__ import annotations

import json
import os
import pdb  # noqa: T100
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from disttrain import context
from disttrain.errors import DisttrainError, PeerFailed

_PACKAGE = os.path.dirname(os.path.abspath(context.__file__)) + os.sep
INSIDE = pytest.StashKey[bool]()  # of an item, in the process of a rank


def call_phase(item: pytest.Item) -> tuple[dict[str, Any], BaseException | None]:
    """Run the test's call; what to tell of it, and the exception that has ended it."""
    logged = begin(item)
    with recorded_warnings() as warned:
        try:
            call = pytest.CallInfo.from_call(
                lambda: item.ihook.pytest_runtest_call(item=item),
                when="call",
                reraise=pytest.exit.Exception,
            )
        except pytest.exit.Exception as stop:
            return {"exit": [stop.msg, stop.returncode]}, stop
        told, error = told_of(item, call)
    told |= {"warnings": warned(), "logged": logged}
    save_coverage(item.config)
    return told, error


def begin(item: pytest.Item) -> list[Any]:
    """What this process shares with pytest's becomes its own; what it does not have is said. The
    reports, as data, that are made while the test runs (of subtests)."""
    item.stash[INSIDE] = True
    own_captures(item.config)
    pdb.set_trace = sys.breakpointhook = _no_terminal
    hooks, log = item.config.hook, _Log(item.config)
    for caller in (hooks.pytest_runtest_logreport, hooks.pytest_exception_interact):
        for implementation in list(caller.get_hookimpls()):
            caller._remove_plugin(implementation.plugin)
    item.config.pluginmanager.register(log)
    return log.told


class _Log:
    """Keeps reports for pytest's own process, which shows and counts them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.told = config, []  # type: ignore[var-annotated]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        serialize = self.config.hook.pytest_report_to_serializable
        self.told.append(serialize(config=self.config, report=report))


def _no_terminal(*args: object, **named: object) -> None:
    raise RuntimeError(
        "breakpoint(): ranks have no terminal to debug in (@pytest.mark.ranks). To step through "
        "this, let a script call what the test calls: `dtrun --nproc-per-node N script.py` gives "
        "breakpoint() its terminal, `dtrun --simulate N script.py` goes back in time, too "
        "(docs/debugger.md). Here, what ranks print is shown (with -s at once), and so are their "
        "variables with -l"
    )


def save_coverage(config: pytest.Config) -> None:
    """Leave what was measured here where pytest-cov, or ``coverage combine``, finds it."""
    coverage: Any = sys.modules.get("coverage")
    measured = None if coverage is None else coverage.Coverage.current()
    if measured is None:
        return
    measured.stop()
    if config.pluginmanager.hasplugin("_cov") or measured.get_option("run:parallel"):
        measured.save()


def told_of(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> tuple[dict[str, Any], BaseException | None]:
    """The report of a call as data, and its exception."""
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        _without_our_frames(call.excinfo.value)
        call.excinfo = type(call.excinfo).from_exception(call.excinfo.value)
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
    error = None if call.excinfo is None else call.excinfo.value
    told: dict[str, Any] = {"report": data, "echo": None}
    if isinstance(error, PeerFailed):
        told["echo"] = error.rank
    if error is not None and not report.passed:
        told["cause"] = f"{type(error).__name__}: {error}"
    return told, error


def to_json(told: dict[str, Any]) -> bytes:
    return json.dumps(told, default=repr).encode()


def _without_our_frames(error: BaseException) -> None:
    """Let the traceback of an error of this package, which speaks for itself, end where the program
    has called the package."""
    if not isinstance(error, DisttrainError):
        return
    last, entry = None, error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            last = entry
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None


def own_captures(config: pytest.Config) -> None:
    """Let what this process captures go to files of its own: those of pytest are shared with all
    that were forked from it."""
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is None or config.getoption("capture") == "no":
        return
    manager.resume_global_capture()
    shared = {_file_at(fd) for fd in (1, 2, _number(sys.stdout), _number(sys.stderr))} - {None}
    for place in shared:
        mine = os.memfd_create("captured")
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            if fd != mine and _file_at(fd) == place:
                os.dup2(mine, fd, inheritable=os.get_inheritable(fd))
        os.close(mine)
    manager.suspend_global_capture(in_=False)


def _number(stream: Any) -> int:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return -1


def _file_at(fd: int) -> tuple[int, int] | None:
    """Which file a descriptor leads to, if to one."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def recorded_warnings() -> Iterator[Callable[[], list]]:
    """What is warned of while the block runs, as data, wherever pytest keeps it; call it inside."""
    kept = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", None)
    with warnings.catch_warnings(record=not isinstance(kept, list)) as own:
        log: list[Any] = kept if isinstance(kept, list) else (own or [])
        before = len(log)
        yield lambda: [
            [str(w.message), w.category.__module__, w.category.__qualname__, w.filename, w.lineno]
            for w in log[before:]
        ]


def warn_again(told: list[list[Any]]) -> None:
    """Say in pytest's own process what ranks were warned of."""
    for text, module, name, filename, lineno in told:
        category = getattr(sys.modules.get(module), name, None)
        if not (isinstance(category, type) and issubclass(category, Warning)):
            category = UserWarning
        warnings.showwarning(text, category, filename, lineno)
