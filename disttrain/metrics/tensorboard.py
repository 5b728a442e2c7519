"""TensorBoard event files, written without TensorFlow, TensorBoard or protobuf.

An event file is a sequence of TFRecords (length, its checksum, data, its checksum), each of which
holds one ``Event`` message in protobuf's wire format. The few messages that scalars and text
need are encoded by hand here; field numbers are those of TensorFlow's ``event.proto``,
``summary.proto`` and ``tensor.proto``.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from ..errors import ConfigError
from ..outputs import write_all
from .crc32c import masked_crc32c

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_DT_STRING = 7
_SESSION_START = 1


class EventWriter:
    """Writes one event file into ``folder``; every event is on disk before the call returns.

    ``purge_step`` is for a resumed run: TensorBoard drops what earlier files of the folder say
    about that step and later ones, because they are computed again.
    """

    def __init__(self, folder: str | Path, purge_step: int | None = None) -> None:
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path, self._fd = _create(folder)
        except OSError as error:
            raise ConfigError(f"EventWriter: {folder} cannot be written: {error}") from None
        self._write(_event(None, _bytes(3, b"brain.Event:2")))
        if purge_step is not None:
            start = _bytes(7, _int(1, _SESSION_START))
            self._write(_event(purge_step, start))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Record the number ``value`` of ``tag`` at ``step``."""
        self.scalars({tag: value}, step)

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Record several numbers of one ``step`` in one event."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items()
        )
        self._write(_event(step, _bytes(5, summary)))

    def text(self, tag: str, text: str, step: int = 0) -> None:
        """Record ``text`` (Markdown) of ``tag`` at ``step``."""
        plugin = _bytes(1, _bytes(1, b"text"))
        shape = _bytes(2, _bytes(2, _int(1, 1)))
        tensor = _int(1, _DT_STRING) + shape + _bytes(8, text.encode())
        value = _bytes(1, f"{tag}/text_summary".encode()) + _bytes(8, tensor) + _bytes(9, plugin)
        self._write(_event(step, _bytes(5, _bytes(1, value))))

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
        length = struct.pack("<Q", len(data))
        head = length + struct.pack("<I", masked_crc32c(length))
        whole = head + data + struct.pack("<I", masked_crc32c(data))
        write_all(self._fd, whole, str(self.path))


def _create(folder: Path) -> tuple[Path, int]:
    """A new file by TensorBoard's naming rule; the last number keeps two of one second apart."""
    stem = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
    number = 0
    while True:
        path = folder / f"{stem}.{number}"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            number += 1


# -- protobuf's wire format ------------------------------------------------------------------------


def _event(step: int | None, rest: bytes) -> bytes:
    wall_time = _key(1, _FIXED64) + struct.pack("<d", time.time())
    return wall_time + (b"" if step is None else _int(2, step)) + rest


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _int(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _float(field: int, value: float) -> bytes:
    try:
        return _key(field, _FIXED32) + struct.pack("<f", value)
    except OverflowError:  # too large for a float32
        return _key(field, _FIXED32) + struct.pack(
            "<f", float("inf") if value > 0 else -float("inf")
        )


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
