"""The job segment: one sparse memfd that the launcher makes and every rank maps.

    page 0        header: magic, version, number of ranks, epoch, cores; first failure; which ranks
                  have agreed to go on without others, and how often (``survivors``); the clock
                  (``pause``)
    then, per rank, a slot of 64 KiB: pid, state, what the rank waits for, whether it is lost, and
                  the error that it died of (readable after SIGKILL; what it did before stands in
                  its ``blackbox``)
    then, per rank, a communication area of 64 KiB for the transport's flags and headers
    then, per rank, an arena (64 GiB of addresses; pages exist once they are touched)

A memfd has no name, so nothing can leak and no other user can open it. Knows bytes; what the
transport keeps in its areas, and who decides what a failure means, is elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import Any

from ...errors import CommError

MAGIC = 0x64747261696E3031
PAGE = 4096
SLOT_BYTES = 64 << 10
COMM_BYTES = 64 << 10
ARENA_BYTES = 64 << 30
TEXT_BYTES = 512
CAUSE_BYTES = 1024
TRACE_BYTES = 32 << 10
_PATIENCE = 1.0  # seconds for who publishes a failure at the same moment

_HEADER = struct.Struct("<QIIQQQ")  # magic, version, ranks, epoch, arena bytes, cores
_HERE_AT = 48  # two uint32: the first rank of this host and how many; 0, 0 where all are
_FAILED_AT = 64  # int32: rank + 1 of the first failure, 0 while there is none
_ROUNDS_AT = 72  # the last round that was decided; the last that was wanted; where its flags begin
_PID, _STATE, _BREAKPOINTS = 0, 8, 16
_JOINED, _MEMBER, _LOST = 32, 40, 48
_SAID = 56
_TURN_AT = 4088
_TEXT_AT, _ERROR_AT, _SAID_AT, SAID_BYTES = 64, 4096, 40 << 10, 12 << 10

HAS_LEFT = "has ended its program"  # what is said of a rank that others wait for after that
JOB_SLOT = "comm.job"  # the slot of a rank's context where its job segment is
# "vanished": its process ended with status 0, but not at the end of its program
STATES = ("starting", "running", "finished", "failed", "vanished")


@dataclass(frozen=True)
class Failure:
    """The first failure of a job."""

    rank: int
    cause: str
    traceback: str

    @property
    def is_mismatch(self) -> bool:
        """Did it find that ranks make different calls?"""
        return self.cause.startswith("CollectiveMismatch")


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
    """What one rank says of itself, and its end of the agreements on who goes on."""

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
    def breakpoints(self) -> int:
        """How many of ``distributed.breakpoint`` the rank has left behind."""
        return self._words[_BREAKPOINTS // 8]

    @breakpoints.setter
    def breakpoints(self, value: int) -> None:
        self._words[_BREAKPOINTS // 8] = value

    @property
    def joined(self) -> int:
        """The last round of agreement (``survivors``) that the rank takes part in."""
        return self._words[_JOINED // 8]

    @joined.setter
    def joined(self, value: int) -> None:
        self._words[_JOINED // 8] = value

    @property
    def member(self) -> int:
        """The last round that it is a member of."""
        return self._words[_MEMBER // 8]

    @member.setter
    def member(self, value: int) -> None:
        self._words[_MEMBER // 8] = value

    @property
    def lost(self) -> bool:
        """Has it failed, or ended before its program did?"""
        return bool(self._words[_LOST // 8]) or self.state in ("failed", "vanished", "finished")

    def lose(self, lost: bool = True) -> None:
        """It will do nothing more (or that was a mistake)."""
        self._words[_LOST // 8] = lost

    @property
    def turn(self) -> int:
        """How many processes have been this rank before the present one."""
        return struct.unpack_from("<Q", self._buffer, self._at + _TURN_AT)[0]

    @turn.setter
    def turn(self, value: int) -> None:
        struct.pack_into("<Q", self._buffer, self._at + _TURN_AT, value)

    def begin_anew(self) -> None:
        """What is said here of the process that was this rank before is over. Not before the others
        have agreed to go on without that one."""
        self.joined = 0
        self.record_error("", "")
        self.describe("")
        self._words[_SAID // 8] = 0
        self.lose(False)

    def say(self, data: bytes) -> None:
        """Tell who shares the segment. The last thing that was said can be read while this is
        written."""
        count = self._words[_SAID // 8] + 1
        at = self._at + _SAID_AT + count % 2 * SAID_BYTES
        struct.pack_into("<I", self._buffer, at, len(data))
        self._buffer[at + 4 : at + 4 + len(data)] = data
        self._words[_SAID // 8] = count

    @property
    def said(self) -> bytes:
        """The last of it; empty where nothing was said."""
        count = self._words[_SAID // 8]
        at = self._at + _SAID_AT + count % 2 * SAID_BYTES
        (n,) = struct.unpack_from("<I", self._buffer, at)
        return bytes(self._buffer[at + 4 : at + 4 + min(n, SAID_BYTES - 4)]) if count else b""

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
        magic, version, ranks, epoch, arena, cores = _HEADER.unpack_from(self.buffer, 0)
        if magic != MAGIC or version != 1:
            raise CommError(
                f"job segment: file descriptor {fd} is not a job segment of this version; start "
                "the ranks with the dtrun of the disttrain that they import"
            )
        self.num_ranks, self.epoch, self.arena_bytes = ranks, epoch, arena
        self.cores = cores  # that its maker may use: each rank may be bound to some of them
        first, count = struct.unpack_from("<II", self.buffer, _HERE_AT)
        self.here = range(first, first + count) if count else range(ranks)  # ranks of this host
        self._slots = [Slot(self.buffer, PAGE + r * SLOT_BYTES) for r in range(ranks)]
        self._failed = memoryview(self.buffer)[_FAILED_AT : _FAILED_AT + 4].cast("i")
        self.rounds = memoryview(self.buffer)[_ROUNDS_AT : _ROUNDS_AT + 24].cast("q")
        self.kept: dict[int, Any] = {}  # per rank: what it keeps of its arena over all its groups

    @classmethod
    def create(
        cls,
        num_ranks: int,
        arena_bytes: int = ARENA_BYTES,
        epoch: int = 1,
        here: range | None = None,
    ) -> Segment:
        """A fresh segment for ``num_ranks``; arenas shrink when the address space is limited.
        ``here``: the ranks of this host, where the others cannot see it."""
        if num_ranks < 1:
            raise CommError(f"job segment: {num_ranks} ranks given; at least one is needed")
        while True:
            fd = os.memfd_create("disttrain-job", os.MFD_CLOEXEC)
            try:
                total = _arenas_at(num_ranks) + num_ranks * arena_bytes
                os.ftruncate(fd, total)
                cores = len(os.sched_getaffinity(0))
                os.pwrite(fd, _HEADER.pack(MAGIC, 1, num_ranks, epoch, arena_bytes, cores), 0)
                if here is not None:
                    os.pwrite(fd, struct.pack("<II", here.start, len(here)), _HERE_AT)
                return cls(fd, total)
            except (OSError, OverflowError, ValueError) as error:
                os.close(fd)
                if arena_bytes <= 64 << 20:
                    limit = "the address space limit (ulimit -v)"
                    if getattr(error, "errno", 0) == errno.EFBIG:
                        limit = "the limit of a file's size, which holds for shared memory, too "
                        limit += "(ulimit -f)"
                    raise CommError(
                        f"job segment: {num_ranks} arenas of {arena_bytes >> 20} MiB cannot be "
                        f"mapped ({error}); raise {limit}"
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

    def members(self) -> list[int]:
        """The ranks that the job has: all, or those that have agreed to go on."""
        decided = self.rounds[0]
        return [r for r, slot in enumerate(self._slots) if slot.member >= decided]

    def failure(self) -> Failure | None:
        """The first failure of a member of the job, or None (one read)."""
        rank = self._failed[0] - 1
        if rank < 0 or self._slots[rank].member < self.rounds[0]:
            return None
        return Failure(rank, *self._slots[rank].error)

    def publish_failure(self, rank: int, cause: str, traceback: str = "") -> None:
        """Tell every rank that ``rank`` failed; the first writer wins."""
        slot = self._slots[rank]
        if not slot.error[0]:
            slot.record_error(cause, traceback)
        slot.lose()
        if not self._lock_for_a_failure():
            return
        try:
            if self.failure() is None:
                self._failed[0] = rank + 1
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, 0)

    def _lock_for_a_failure(self) -> bool:
        """Take the lock; who holds it may publish the failure of one that is no member any more, so
        it is waited for. Not for long: it may have been stopped."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError:
                if time.monotonic() > until:
                    return False
                time.sleep(0.0005)
            else:
                return True

    def overcome(self, members: list[int]) -> None:
        """``members`` go on: earlier failures are over, except one of theirs."""
        self._failed[0] = 0
        for rank in members:
            if self._slots[rank].lost:
                self._failed[0] = rank + 1
                return

    def close(self) -> None:
        """Unmap and close; views handed out keep the mapping alive until they go."""
        for slot in self._slots:
            slot.close()
        self._failed.release()
        self.rounds.release()
        self.kept.clear()
        try:
            self.buffer.close()
        except BufferError:
            pass
        os.close(self.fd)


def _arenas_at(num_ranks: int) -> int:
    end = PAGE + num_ranks * (SLOT_BYTES + COMM_BYTES)
    return -(-end // (2 << 20)) * (2 << 20)
