"""The zip archive of ``torch.save``: records, stored as they are.

The central directory is read by ``zipfile``; what it claims is checked before any byte is used:
records lie in the file, one behind the other, are not compressed, and have one name each.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import numpy as np

from ...errors import SerializationError

MAGIC = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s5H3I2H")  # the head of a record; its name and more follow
_MOST = 1 << 20  # records
_LINE = 256  # bytes that are looked through at a time


class Bytes(io.RawIOBase):
    """An array of bytes as a file, without a copy."""

    def __init__(self, data: np.ndarray) -> None:
        self._view, self._at = data.data, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._at, len(self._view))[whence]
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """At most what there is, so that a false length allocates nothing."""
        end = len(self._view) if size < 0 else min(self._at + size, len(self._view))
        part = bytes(self._view[self._at : end])
        self._at += len(part)
        return part

    def readline(self, size: int | None = -1) -> bytes:
        """Up to the end of a line, or of the file."""
        begin, found = self._at, -1
        while found < 0 and (part := self.read(_LINE)):
            found = part.find(b"\n")
            if found >= 0:
                self._at -= len(part) - found - 1
        return bytes(self._view[begin : self._at])


class Archive:
    """The records of an archive, by their names below its one folder."""

    def __init__(self, data: np.ndarray, where: str, verify: bool) -> None:
        self._data, self.where, self._verify = data, where, verify
        self._records: dict[str, zipfile.ZipInfo] = {}
        try:
            with zipfile.ZipFile(Bytes(data)) as file:
                self._take(file.infolist())
        except (zipfile.BadZipFile, struct.error, NotImplementedError, UnicodeError) as error:
            raise SerializationError(
                f"{where}: a damaged zip archive ({error}); load a copy that is whole"
            ) from None

    def _take(self, found: list[zipfile.ZipInfo]) -> None:
        if len(found) > _MOST:
            raise SerializationError(f"{self.where}: {len(found)} records; at most {_MOST}")
        if not any(info.filename.endswith("/data.pkl") for info in found):
            return  # another program's, of which nothing is asked
        if any(info.filename.endswith("/constants.pkl") for info in found):
            raise SerializationError(
                f"{self.where}: a TorchScript archive, which holds code. Save the state_dict() of "
                "the model that it was made of"
            )
        folders = {info.filename.partition("/")[0] for info in found}
        if sum(info.file_size for info in found) > self._data.size:
            raise SerializationError(f"{self.where}: its records claim more bytes than it has")
        for info in found:
            name = info.filename.partition("/")[2] if len(folders) == 1 else info.filename
            if name in self._records:
                raise SerializationError(f"{self.where}: two records named {name!r:.60}")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise SerializationError(
                    f"{self.where}: record {name!r:.60} is compressed, which PyTorch never does"
                )
            self._records[name] = info

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def read(self, name: str) -> np.ndarray:
        """The bytes of a record, where they lie in the file."""
        info = self._records.get(name)
        if info is None:
            raise SerializationError(f"{self.where}: record {name!r:.60} is missing")
        at = info.header_offset
        head = bytes(self._data[at : at + _LOCAL.size])
        if at < 0 or len(head) < _LOCAL.size or head[:4] != MAGIC:
            raise SerializationError(f"{self.where}: record {name!r:.60} has no head")
        *_, name_size, extra_size = _LOCAL.unpack(head)
        begin = at + _LOCAL.size + name_size + extra_size
        raw = self._data[begin : begin + info.file_size]
        if raw.size != info.file_size:
            raise SerializationError(f"{self.where}: record {name!r:.60} is cut short")
        if self._verify and info.CRC and zlib.crc32(raw.data) != info.CRC:
            raise SerializationError(
                f"{self.where}: record {name!r:.60} does not fit its checksum. The file is "
                "damaged; load a copy that is whole"
            )
        return np.frombuffer(raw.data, np.uint8) if raw.size else raw
