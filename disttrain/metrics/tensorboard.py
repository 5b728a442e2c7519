"""TensorBoard event files, written without TensorFlow, TensorBoard or protobuf.

An event file is a sequence of TFRecords (length, its checksum, data, its checksum), each of which
holds one ``Event`` message in protobuf's wire format. Field numbers are those of TensorFlow's
``event.proto``; what is in an event, ``summaries.py`` says.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any, Self

from ..errors import ConfigError
from ..outputs import write_all
from ..protobuf import double, integer, nested
from ..tfrecord import record
from . import summaries

_SESSION_START = 1


class EventWriter:
    """Writes one event file into ``folder``; every event is on disk before the call returns.

    ``purge_step`` is for a resumed run: TensorBoard drops what earlier files of the folder say
    about that step and later ones, because they are computed again.
    """

    def __init__(self, folder: str | Path, purge_step: int | None = None, suffix: str = "") -> None:
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path, self._fd = _create(folder, suffix)
        except OSError as error:
            raise ConfigError(f"EventWriter: {folder} cannot be written: {error}") from None
        self._write(_event(None, nested(3, b"brain.Event:2")))
        if purge_step is not None:
            start = nested(7, integer(1, _SESSION_START))
            self._write(_event(purge_step, start))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Record the number ``value`` of ``tag`` at ``step``."""
        self.scalars({tag: value}, step)

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Record several numbers of one ``step`` in one event."""
        self.summary(b"".join(summaries.scalar(tag, value) for tag, value in values.items()), step)

    def text(self, tag: str, text: str, step: int = 0) -> None:
        """Record ``text`` (Markdown) of ``tag`` at ``step``."""
        self.summary(summaries.text(tag, text), step)

    def summary(self, values: bytes, step: int | None, at: float | None = None) -> None:
        """Record ``values`` (of ``summaries``) of ``step``; ``at``: seconds since 1970 (None:
        now)."""
        self._write(_event(step, nested(5, values), at))

    def graph(self, definition: bytes, at: float | None = None) -> None:
        """Record a graph, a ``GraphDef`` message."""
        self._write(_event(None, nested(4, definition), at))

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        write_all(self._fd, record(data), str(self.path))


class RecordWriter:
    """Writes TFRecords to ``writer``, a file that takes bytes."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Write ``data`` as a record."""
        self._writer.write(record(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def flush(self) -> None:
        """Flush the file."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        closed: bool = self._writer.closed
        return closed


class FileWriter:
    """Writes messages of TensorBoard's own classes (``SerializeToString()``), or their bytes, into
    an event file of the folder ``log_dir``. ``max_queue`` and ``flush_secs`` have nothing to wait
    for."""

    def __init__(
        self,
        log_dir: str | Path,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        self.log_dir, self._suffix = str(log_dir), filename_suffix
        self.event_writer = EventWriter(self.log_dir, suffix=filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Write an ``Event``, whose time is set, and its step where one is given."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer._write(_bytes_of(event))

    def add_summary(self, summary: Any, global_step: Any = None, walltime: Any = None) -> None:
        """Write a ``Summary``."""
        step = None if global_step is None else int(global_step)
        self.event_writer.summary(_bytes_of(summary), step, walltime)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """Write a ``GraphDef``, the first of a pair; the second are the statistics of a step."""
        self.event_writer.graph(_bytes_of(graph_profile[0]), walltime)
        told = nested(1, b"step1") + nested(2, _bytes_of(graph_profile[1]))
        self.event_writer._write(_event(None, nested(8, told), walltime))

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        """Write a ``GraphDef``."""
        self.event_writer.graph(_bytes_of(graph), walltime)

    def flush(self) -> None:
        """Every event is on disk already."""

    def close(self) -> None:
        """Close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on in another file of the folder."""
        self.close()
        self.event_writer = EventWriter(self.log_dir, suffix=self._suffix)


def _bytes_of(message: Any) -> bytes:
    if isinstance(message, bytes):
        return message
    if not hasattr(message, "SerializeToString"):
        raise TypeError(
            f"FileWriter: a {type(message).__name__} given; a protobuf message or its bytes are "
            "needed"
        )
    out: bytes = message.SerializeToString()
    return out


def _create(folder: Path, suffix: str) -> tuple[Path, int]:
    """A new file by TensorBoard's naming rule; the last number keeps two of one second apart."""
    stem = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
    number = 0
    while True:
        path = folder / f"{stem}.{number}{suffix}"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            number += 1


def _event(step: int | None, rest: bytes, at: float | None = None) -> bytes:
    wall_time = double(1, time.time() if at is None else at)
    return wall_time + (b"" if step is None else integer(2, step)) + rest
