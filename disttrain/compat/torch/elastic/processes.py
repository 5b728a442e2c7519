"""``torch.distributed.elastic.multiprocessing``: where workers' outputs go, and how they have
ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

from .errors import ProcessFailure

_NUMBERS = ("0", "1", "2", "3")


class SignalException(Exception):
    """A signal has ended the job."""

    def __init__(self, msg: str, sigval: Any) -> None:
        super().__init__(msg)
        self.sigval = sigval


class Std(IntFlag):
    """Which outputs."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """``"3"``, or by rank: ``"0:3,1:1"``. Raises ``ValueError``."""
        if vm in _NUMBERS:
            return cls(int(vm))
        found: dict[int, Std] = {}
        for part in vm.split(","):
            rank, colon, number = part.partition(":")
            if not colon or not rank.isdigit() or number not in _NUMBERS:
                raise ValueError(f"{vm!r}: 0, 1, 2 or 3, or pairs such as 0:3,1:1 are needed")
            found[int(rank)] = cls(int(number))
        return found


Outputs = Std | dict[int, Std]


def to_map(val_or_map: Outputs, local_world_size: int) -> dict[int, Std]:
    """For each rank."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


class LogsSpecs:
    """Where outputs go: ``redirects`` to files below ``log_dir``, ``tee`` to both, and which ranks
    are shown."""

    def __init__(
        self, log_dir: str | None = None, redirects: Outputs = Std.NONE, tee: Outputs = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:  # fmt: skip
        self._root_log_dir, self._redirects, self._tee = log_dir, redirects, tee
        self._local_ranks_filter = local_ranks_filter

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)


class DefaultLogsSpecs(LogsSpecs):
    """In a new folder below ``log_dir`` (none: the system's temporary one) for each job."""

    def __init__(
        self, log_dir: str | None = None, redirects: Outputs = Std.NONE, tee: Outputs = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:  # fmt: skip
        if log_dir is not None:
            if os.path.exists(log_dir) and not os.path.isdir(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is not a directory")
            os.makedirs(log_dir, mode=0o700, exist_ok=True)
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run_log_dir: str | None = None

    def folder(self, run_id: str) -> str:
        """That of the job ``run_id``, made when it is first asked for."""
        if self._run_log_dir is None:
            prefix = f"{run_id}_" if self._root_log_dir else f"torchelastic_{run_id}_"
            self._run_log_dir = tempfile.mkdtemp(prefix=prefix, dir=self._root_log_dir)
        return self._run_log_dir

    def done(self) -> None:
        """The job has ended well: a temporary folder that nobody has asked for goes."""
        wanted = (self._root_log_dir, self._redirects or None, self._tee or None)
        if self._run_log_dir is not None and not any(wanted):
            shutil.rmtree(self._run_log_dir, ignore_errors=True)
            self._run_log_dir = None


def as_text(outputs: Outputs) -> str:
    """As ``--redirects`` and ``--tee`` spell it."""
    if isinstance(outputs, Std):
        return str(int(outputs))
    return ",".join(f"{rank}:{int(which)}" for rank, which in outputs.items()) or "0"


@dataclass
class RunProcsResult:
    """How processes have ended, by local rank."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        return bool(self.failures)


def ranks_of(text: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(sorted(text))
