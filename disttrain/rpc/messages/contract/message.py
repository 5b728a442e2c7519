"""What travels between two workers, how large it may be.

Knows bytes and arrays; no transport, and not what a message means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....comm.calls.header import dtype_code
from ....errors import ConfigError, MessageTooLarge

MAX_DIMS = 64  # numpy's own limit

Bytes = bytes | bytearray | memoryview


class Message:
    """A request, or the answer to one.

    ``kind`` (0 to 255) and ``call`` (64 bits) are the sender's own words; an answer carries the
    ``call`` of its request and has ``answers`` set. Every request is answered once, except those
    with ``call`` 0, which nobody answers. ``head`` is small, ``payload`` any bytes. ``arrays`` are
    C-contiguous, of any of our element types; received ones belong to the receiver: writable, and
    nobody else's.
    """

    __slots__ = ("answers", "arrays", "call", "head", "kind", "payload")

    def __init__(
        self,
        kind: int,
        call: int,
        answers: bool = False,
        head: bytes = b"",
        payload: Bytes = b"",
        arrays: Sequence[np.ndarray] = (),
    ) -> None:
        self.kind, self.call, self.answers = kind, call, answers
        self.head, self.payload, self.arrays = head, payload, arrays

    def __repr__(self) -> str:
        what = "answer" if self.answers else "request"
        return (
            f"<{what} {self.call} of kind {self.kind}: {len(self.head)} + {len(self.payload)} "
            f"bytes, {len(self.arrays)} arrays>"
        )


@dataclass(frozen=True)
class Limits:
    """How much an endpoint sends and hears, in bytes, counts and seconds.

    The first four hold for every message and are checked on both sides. The rest is about those
    who have connected and not yet proved who they are.
    """

    message_bytes: int = 256 << 30
    payload_bytes: int = 8 << 30
    head_bytes: int = 1 << 20
    arrays: int = 1 << 20
    strangers: int = 256
    handshake_seconds: float = 0.0  # 0: as the way between the workers needs
    threads: int = 4096  # that handle messages at once; later ones wait for one of them

    def within(self, seconds: float) -> Limits:
        """The same, with so many ``handshake_seconds`` where none were given."""
        return self if self.handshake_seconds else replace(self, handshake_seconds=seconds)

    def small(self) -> int:
        """A message of at most so many bytes in all, without arrays, is within the limits."""
        return min(self.head_bytes, self.payload_bytes, self.message_bytes)

    def check(self, head: int, payload: int, arrays: int, array_bytes: int, where: str) -> None:
        """Raise ``MessageTooLarge`` for a message of these sizes where it is over a limit."""
        found = (
            ("head_bytes", head, self.head_bytes, "bytes before its payload"),
            ("payload_bytes", payload, self.payload_bytes, "bytes of payload"),
            ("arrays", arrays, self.arrays, "arrays"),
            ("message_bytes", head + payload + array_bytes, self.message_bytes, "bytes in all"),
        )
        for name, given, most, what in found:
            if given > most:
                raise MessageTooLarge(
                    f"{where}: a message with {given} {what}; at most {most} ({name}). Send it in "
                    "parts, or raise the limit on every worker"
                )


def check_arrays(arrays: Sequence[np.ndarray], where: str) -> int:
    """The bytes of ``arrays``; ``DTypeError`` or ``ConfigError`` where one cannot be sent."""
    total = 0
    for array in arrays:
        if not array.flags.c_contiguous:
            raise ConfigError(
                f"{where}: an array of shape {array.shape} that is not contiguous; C-contiguous "
                "ones can be sent. Copy it with numpy.ascontiguousarray"
            )
        dtype_code(array.dtype)
        total += array.nbytes
    return total
