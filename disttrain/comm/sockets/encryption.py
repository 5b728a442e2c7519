"""One direction of a sealed link: records of AES-256-GCM (NIST SP 800-38D).

    record: length of what follows u32 | encrypted bytes | tag 16

As TLS 1.3 does it, but in records of up to 256 KB. The nonce counts the records, so that none can
be left out, repeated or moved; the length is authenticated with them. A key is replaced, one way,
long before the limits of the cipher (RFC 8446, 5.5): after 2**18 records, 64 GB.

Uses the package cryptography, loaded when a seal is made. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import importlib
import struct

from ...errors import CommError
from ..store import hello

MOST = 256 << 10  # bytes that one record carries
TAG = 16
LENGTH = struct.Struct("<I")
OVERHEAD = LENGTH.size + TAG
RENEW = 1 << 18  # records that one key seals
_NONCE = struct.Struct("<Q4x")


class Broken(CommError):
    """What came was not sealed by the other end, or not in this order."""


class Seal:
    """Seals or opens the records of one direction, in their order."""

    def __init__(self, key: bytes) -> None:
        aead = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        self._make = aead.AESGCM
        self._key, self._count = key, 0
        self._cipher = self._make(key)

    def seal(self, data: memoryview, out: memoryview) -> int:
        """Write the record of ``data`` (at most ``MOST`` bytes) to ``out``; its size."""
        size = len(data) + TAG
        LENGTH.pack_into(out, 0, size)
        end = LENGTH.size + size
        nonce = self._next()  # which may bring another cipher
        self._cipher.encrypt_into(nonce, data, out[: LENGTH.size], out[LENGTH.size : end])
        return end

    def open(self, record: memoryview, out: memoryview) -> None:
        """Write what ``record`` carries to ``out``, of exactly that size. Raises ``Broken``: then
        ``out`` holds nothing that may be used."""
        nonce = self._next()
        header, text = record[: LENGTH.size], record[LENGTH.size :]
        try:
            self._cipher.decrypt_into(nonce, text, header, out)
        except Exception as error:  # InvalidTag, which is loaded with the package
            raise Broken(f"a record that does not fit its seal ({type(error).__name__})") from None

    def _next(self) -> bytes:
        """The nonce of the next record, which is sealed with ``_cipher`` as it is afterwards."""
        if self._count == RENEW:
            self._key, self._count = hello.derive_key(self._key, "next link key"), 0
            self._cipher = self._make(self._key)
        self._count += 1
        return _NONCE.pack(self._count)


def record_size(header: memoryview) -> int:
    """The size of a record, whole, of its first ``LENGTH.size`` bytes. Raises ``Broken``."""
    (size,) = LENGTH.unpack(header)
    if not TAG < size <= MOST + TAG:
        raise Broken(f"a record of {size} bytes")
    return LENGTH.size + int(size)
