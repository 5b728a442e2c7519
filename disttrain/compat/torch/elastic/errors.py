"""``torch.distributed.elastic.multiprocessing.errors``: how a worker's end is told, in PyTorch's
classes. (``record`` is ``disttrain.distributed.elastic.record``.)
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from ....distributed.elastic import records
from ....errors import DisttrainError

_NOT_TOLD = "<N/A>"
_BAR = "=" * 60


class ErrorHandler:
    """Writes what ends a worker to the file that ``TORCHELASTIC_ERROR_FILE`` names."""

    def initialize(self) -> None:
        """Nothing is to be prepared: ranks of the launcher print their stacks by themselves."""

    def record_exception(self, e: BaseException) -> None:
        """Write ``e`` and its traceback, where a file is named."""
        records.write(e)


def get_error_handler() -> ErrorHandler:
    return ErrorHandler()


@dataclass
class ProcessFailure:
    """One failed worker. ``timestamp`` (seconds) and ``message`` are its error file's, where it has
    written one; else what its end tells."""

    local_rank: int
    pid: int
    exitcode: int  # -N after signal N
    error_file: str
    error_file_data: Any = field(init=False)
    message: str = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data, self.timestamp = {}, int(time.time())
        try:
            with open(self.error_file, encoding="utf-8") as file:
                self.error_file_data = json.load(file)
        except (OSError, ValueError):
            self.error_file = _NOT_TOLD
        told = self.error_file_data.get("message", self.error_file_data)
        if isinstance(told, dict) and told:
            extra = told.get("extraInfo", {})
            self.timestamp = int(extra.get("timestamp", self.timestamp))
            self.message = "\n".join(filter(None, [told.get("message"), extra.get("py_callstack")]))
        elif isinstance(told, str):
            self.message = told
        else:
            self.message = self._of_its_end()

    def _of_its_end(self) -> str:
        if self.exitcode < 0:
            return f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        return "To enable traceback see: docs/failures.md"

    def signal_name(self) -> str:
        """``SIGKILL`` for exit code -9; ``<N/A>`` where no signal ended it."""
        if self.exitcode >= 0:
            return _NOT_TOLD
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return _NOT_TOLD

    def timestamp_isoformat(self) -> str:
        return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(self.timestamp))


class ChildFailedError(DisttrainError):
    """A job has failed: ``failures`` by global rank; the first of them in time is the cause."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        assert failures
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        rank = min(self.failures, key=lambda r: self.failures[r].timestamp)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The block that people paste into issues. (The first argument's name is PyTorch's.)"""
        rank, first = self.get_first_failure()
        others = [_told(r, f) for r, f in sorted(self.failures.items()) if r != rank]
        rule = section_delim * len(_BAR)
        lines = [boarder_delim * len(_BAR), f"{self.name} FAILED", rule, "Failures:"]
        lines += others or ["  <NO_OTHER_FAILURES>"]
        lines += [rule, "Root Cause (first observed failure):", _told(rank, first)]
        return "\n".join(["", *lines, boarder_delim * len(_BAR)])


def _told(rank: int, failure: ProcessFailure) -> str:
    return "\n".join(
        [
            f"  time      : {failure.timestamp_isoformat()}",
            f"  host      : {os.uname().nodename}",
            f"  rank      : {rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.exitcode} (pid: {failure.pid})",
            f"  error_file: {failure.error_file}",
            f"  traceback : {failure.message}",
        ]
    )
