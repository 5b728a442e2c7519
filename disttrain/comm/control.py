"""The job segment: one sparse memfd that the launcher makes and every rank maps.

    page 0        header: magic, version, number of ranks, epoch, first failure
    then, per rank, a slot of 64 KiB: pid, state, step, operation number, what the rank is doing
                  (the black box, readable after SIGKILL), and the error it died of
    then, per rank, a communication area of 64 KiB for the transport's flags and headers
    then, per rank, an arena (64 GiB of addresses; pages exist once they are touched)

A memfd has no name, so nothing can leak and no other user can open it. Knows bytes; what the
transport keeps in its areas, and who decides what a failure means, is elsewhere.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass
from typing import Any

from ..errors import CommError

MAGIC = 0x64747261696E3031
PAGE = 4096
SLOT_BYTES = 64 << 10
COMM_BYTES = 64 << 10
ARENA_BYTES = 64 << 30
TEXT_BYTES = 512
CAUSE_BYTES = 1024
TRACE_BYTES = 32 << 10

_HEADER = struct.Struct("<QIIQQ")  # magic, version, ranks, epoch, arena bytes
_FAILED_AT = 64  # int32: rank + 1 of the first failure, 0 while there is none
_FAILURE_AT = 128  # cause and traceback, length-prefixed
_PID, _STATE, _STEP, _SEQ = 0, 8, 16, 24
_TEXT_AT, _ERROR_AT = 64, 4096

JOB_SLOT = "comm.job"  # the slot of a rank's context where its job segment is
# "vanished": its process ended with status 0, but not at the end of its program
STATES = ("starting", "running", "finished", "failed", "vanished")


@dataclass(frozen=True)
class Failure:
    """The first failure of a job."""

    rank: int
    cause: str
    traceback: str


def _put_text(buffer: mmap.mmap, at: int, text: str, limit: int) -> None:
    raw = text.encode("utf-8", "replace")
    if len(raw) > limit:  # the middle is what a reader misses least
        raw = raw[: limit // 2 - 3] + b" ... " + raw[len(raw) - limit // 2 + 2 :]
    buffer[at + 4 : at + 4 + len(raw)] = raw
    struct.pack_into("<I", buffer, at, len(raw))


def _get_text(buffer: mmap.mmap, at: int, limit: int) -> str:
    (n,) = struct.unpack_from("<I", buffer, at)
    return bytes(buffer[at + 4 : at + 4 + min(n, limit)]).decode("utf-8", "replace")


class Slot:
    """One rank's black box."""

    def __init__(self, buffer: mmap.mmap, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._words = memoryview(buffer)[at : at + 64].cast("q")

    def close(self) -> None:
        self._words.release()

    @property
    def pid(self) -> int:
        return self._words[_PID // 8]

    @pid.setter
    def pid(self, value: int) -> None:
        self._words[_PID // 8] = value

    @property
    def state(self) -> str:
        return STATES[self._words[_STATE // 8]]

    @state.setter
    def state(self, value: str) -> None:
        self._words[_STATE // 8] = STATES.index(value)

    @property
    def step(self) -> int:
        return self._words[_STEP // 8]

    @step.setter
    def step(self, value: int) -> None:
        self._words[_STEP // 8] = value

    @property
    def seq(self) -> int:
        """The number of the last collective that the rank has entered."""
        return self._words[_SEQ // 8]

    def progress(self, seq: int) -> None:
        self._words[_SEQ // 8] = seq

    def describe(self, text: str) -> None:
        """Say in one line what the rank is doing now."""
        _put_text(self._buffer, self._at + _TEXT_AT, text, TEXT_BYTES)

    @property
    def doing(self) -> str:
        return _get_text(self._buffer, self._at + _TEXT_AT, TEXT_BYTES)

    def record_error(self, cause: str, traceback: str) -> None:
        """Keep the exception that ends this rank."""
        at = self._at + _ERROR_AT
        _put_text(self._buffer, at, cause, CAUSE_BYTES)
        _put_text(self._buffer, at + 4 + CAUSE_BYTES, traceback, TRACE_BYTES)

    @property
    def error(self) -> tuple[str, str]:
        """(cause, traceback); empty strings when there is none."""
        at = self._at + _ERROR_AT
        return (
            _get_text(self._buffer, at, CAUSE_BYTES),
            _get_text(self._buffer, at + 4 + CAUSE_BYTES, TRACE_BYTES),
        )


class Segment:
    """The mapped job segment. Close it when done; the memory goes with its last holder."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self.buffer = mmap.mmap(fd, nbytes, flags=flags)
        self.buffer.madvise(mmap.MADV_DONTDUMP)  # a core file of a rank is large enough without
        magic, version, ranks, epoch, arena = _HEADER.unpack_from(self.buffer, 0)
        if magic != MAGIC or version != 1:
            raise CommError(
                f"job segment: file descriptor {fd} is not a job segment of this version; start "
                "the ranks with the dtrun of the disttrain that they import"
            )
        self.num_ranks, self.epoch, self.arena_bytes = ranks, epoch, arena
        self._slots = [Slot(self.buffer, PAGE + r * SLOT_BYTES) for r in range(ranks)]
        self._failed = memoryview(self.buffer)[_FAILED_AT : _FAILED_AT + 4].cast("i")
        self.kept: dict[int, Any] = {}  # per rank: what it keeps of its arena over all its groups

    @classmethod
    def create(cls, num_ranks: int, arena_bytes: int = ARENA_BYTES, epoch: int = 1) -> Segment:
        """A fresh segment for ``num_ranks``; arenas shrink when the address space is limited."""
        if num_ranks < 1:
            raise CommError(f"job segment: {num_ranks} ranks given; at least one is needed")
        while True:
            fd = os.memfd_create("disttrain-job", os.MFD_CLOEXEC)
            try:
                total = _arenas_at(num_ranks) + num_ranks * arena_bytes
                os.ftruncate(fd, total)
                os.pwrite(fd, _HEADER.pack(MAGIC, 1, num_ranks, epoch, arena_bytes), 0)
                return cls(fd, total)
            except (OSError, OverflowError, ValueError) as error:
                os.close(fd)
                if arena_bytes <= 64 << 20:
                    raise CommError(
                        f"job segment: {num_ranks} arenas of {arena_bytes >> 20} MiB cannot be "
                        f"mapped ({error}); raise the address space limit (ulimit -v)"
                    ) from None
                arena_bytes >>= 2

    @classmethod
    def attach(cls, fd: int) -> Segment:
        """Map the segment that another process made."""
        try:
            nbytes = os.fstat(fd).st_size
        except OSError as error:
            raise CommError(f"job segment: file descriptor {fd} is not open: {error}") from None
        if nbytes < PAGE:
            raise CommError(
                f"job segment: file descriptor {fd} holds {nbytes} bytes, not a segment"
            )
        return cls(fd, nbytes)

    def slot(self, rank: int) -> Slot:
        return self._slots[rank]

    def comm_area(self, rank: int) -> tuple[int, int]:
        """(offset, size) of the transport's own area of ``rank``."""
        return PAGE + self.num_ranks * SLOT_BYTES + rank * COMM_BYTES, COMM_BYTES

    def arena(self, rank: int) -> tuple[int, int]:
        """(offset, size) of the memory that ``rank`` hands out."""
        return _arenas_at(self.num_ranks) + rank * self.arena_bytes, self.arena_bytes

    def failure(self) -> Failure | None:
        """The first failure of the job, or None (one read)."""
        rank = self._failed[0]
        if not rank:
            return None
        trace_at = _FAILURE_AT + 4 + CAUSE_BYTES
        return Failure(
            rank - 1,
            _get_text(self.buffer, _FAILURE_AT, CAUSE_BYTES),
            self._slots[rank - 1].error[1]  # has more room
            or _get_text(self.buffer, trace_at, PAGE - trace_at - 4),
        )

    def publish_failure(self, rank: int, cause: str, traceback: str = "") -> None:
        """Tell every rank that ``rank`` failed; the first writer wins."""
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another process is publishing at this moment: it is first
        try:
            if not self._failed[0]:
                trace_at = _FAILURE_AT + 4 + CAUSE_BYTES
                _put_text(self.buffer, _FAILURE_AT, cause, CAUSE_BYTES)
                _put_text(self.buffer, trace_at, traceback, PAGE - trace_at - 4)
                self._failed[0] = rank + 1
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Unmap and close; views handed out keep the mapping alive until they go."""
        for slot in self._slots:
            slot.close()
        self._failed.release()
        self.kept.clear()
        try:
            self.buffer.close()
        except BufferError:
            pass
        os.close(self.fd)


def _arenas_at(num_ranks: int) -> int:
    end = PAGE + num_ranks * (SLOT_BYTES + COMM_BYTES)
    return -(-end // (2 << 20)) * (2 << 20)
