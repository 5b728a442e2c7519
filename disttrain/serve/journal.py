"""What a server tells of itself: a line of JSON for each event, at standard error."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from typing import Any

from .. import outputs


def tell(event: str, level: str = "info", **more: Any) -> None:
    """Write one line; nobody has to read it. Control characters stand in it escaped."""
    stamp = time.time()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamp))
    line = {
        "time": f"{whole}.{int(stamp % 1 * 1000):03}Z",
        "level": level,
        "event": event,
        "pid": os.getpid(),
        **more,
    }
    outputs.put(json.dumps(line, separators=(",", ":"), default=str) + "\n")


def fail(error: BaseException) -> None:
    """Tell of an error that is a bug of ours."""
    text = "".join(traceback.format_exception(error))
    tell("internal_error", "error", error=f"{type(error).__name__}: {error}", traceback=text)


class Handler(logging.Handler):
    """What libraries log, as events of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of one record."""
        error = record.exc_info[1] if record.exc_info else None
        more = {} if error is None else {"error": f"{type(error).__name__}: {error}"}
        tell(record.name, record.levelname.lower(), text=record.getMessage(), **more)
