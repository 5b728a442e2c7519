"""TFRecords: a file of records, each its length and its bytes with a checksum of either.

The checksum is CRC-32C (Castagnoli), as RFC 3720 appendix B.4 defines it: in plain Python for short
records (about 0.1 us a byte), by machine code for long ones. Knows nothing of what is in a record.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from .backends.llvm.checksum import crc32c_blocks
from .errors import ConfigError, SerializationError

_LENGTH, _SUM = struct.Struct("<Q"), struct.Struct("<I")
_LONG = 4096  # bytes from which machine code is worth its call

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_entry(i) for i in range(256))


def crc32c(data: bytes, before: int = 0) -> int:
    """The checksum of ``data``; ``before`` is that of the bytes in front of it."""
    table = _TABLE
    crc = before ^ 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files store it: rotated and shifted, so that a checksum of bytes
    that hold checksums stays a good one."""
    crc = _sum(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _sum(data: bytes) -> int:
    if len(data) < _LONG:
        return crc32c(data)
    return int(crc32c_blocks(np.frombuffer(data, np.uint8), len(data))[0])


def record(data: bytes) -> bytes:
    """``data`` as a record."""
    length = _LENGTH.pack(len(data))
    head = length + _SUM.pack(masked_crc32c(length))
    return head + data + _SUM.pack(masked_crc32c(data))


def records(path: str, place: int = 0, compression: str = "") -> Iterator[tuple[bytes, int]]:
    """The records of a file from byte ``place`` (of what is compressed) on, each with the place
    after it. ``compression``: "", "GZIP" or "ZLIB"."""
    with opened(path, "rb", compression) as file:
        file.seek(place)
        while head := file.read(12):
            data = _checked(path, place, head, file)
            place += len(data) + 16
            yield data, place


def _checked(path: str, place: int, head: bytes, file: Any) -> bytes:
    if len(head) == 12 and masked_crc32c(head[:8]) == _SUM.unpack_from(head, 8)[0]:
        (size,) = _LENGTH.unpack_from(head)
        data = file.read(size)
        end = file.read(4)
        if len(data) == size and len(end) == 4:
            if masked_crc32c(data) == _SUM.unpack(end)[0]:
                return bytes(data)
            raise SerializationError(f"{path}: the record at byte {place} is corrupted: its "
                                     "checksum is another one")  # fmt: skip
        raise SerializationError(f"{path}: truncated record at byte {place}")
    what = "truncated record" if len(head) < 12 else "corrupted record"
    raise SerializationError(f"{path}: {what} at byte {place}")


def opened(path: str, mode: str, compression: str = "") -> IO[bytes]:
    """The file, compressed or not."""
    if compression == "GZIP":
        return gzip.open(path, mode)  # type: ignore[return-value]
    if compression == "ZLIB":
        return _Zlib(path, mode)  # type: ignore[return-value]
    if compression:
        raise ConfigError(f"compression {compression!r} given; there are '', 'GZIP' and 'ZLIB'")
    return open(path, mode)


class _Zlib:
    """A file as one zlib stream: written as it comes, read as a whole."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = open(path, mode)  # noqa: SIM115  (closed by ``close``)
        self._pack = zlib.compressobj() if "w" in mode else None
        self._data = b"" if "w" in mode else zlib.decompress(self._file.read())
        self._at = 0

    def write(self, data: bytes) -> None:
        assert self._pack is not None
        self._file.write(self._pack.compress(data))

    def seek(self, place: int) -> None:
        self._at = place

    def read(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._pack is not None and not self._file.closed:
            self._file.write(self._pack.flush())
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def __enter__(self) -> _Zlib:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
