"""``record``: an exception of the program's main function is kept for schedulers, as JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ... import settings

P = ParamSpec("P")
R = TypeVar("R")


def record(fn: Callable[P, R], error_handler: Any = None) -> Callable[P, R | None]:
    """Decorate the main function: an exception that leaves it is written to the file that
    ``TORCHELASTIC_ERROR_FILE`` names (``dtrun --log-dir`` sets it), then raised.

    ``dtrun`` records every exception of a script by itself; this is for scripts that also run
    under other launchers. ``sys.exit(0)`` returns None. ``error_handler``: an object with
    ``initialize()`` and ``record_exception(error)`` instead, as in PyTorch.
    """

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        if error_handler is not None:
            error_handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as stop:
            if stop.code == 0:
                return None
            raise
        except Exception as error:
            (write if error_handler is None else error_handler.record_exception)(error)
            raise

    return wrapper


def write(error: BaseException) -> None:
    """The file, in the form that torchelastic gives it; nothing without a name for it. That it
    cannot be written hides no error."""
    path = settings.ERROR_FILE.said()
    if not path:
        return
    now = time.time_ns()
    text = "".join(traceback.format_exception(error))
    extra = {"py_callstack": text, "timestamp": str(now // 10**9)}
    message = f"{type(error).__name__}: {error}"
    content = {"message": {"message": message, "extraInfo": extra, "timestamp_ns": now}}
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            json.dump(content, f)
