"""Ranks without a launcher find one segment through a store.

Rank 0 makes the segment and hands its descriptor over a Unix socket with an abstract name, so no
file is left anywhere. The name and a random token travel through the store; who connects must be
of the same user (the kernel says so) and know the token. Since no launcher watches the processes,
every rank holds a pidfd of every other one and notices an end itself.

Knows stores, sockets and processes; no arrays.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from .... import context
from ....errors import CommError
from ....liveness import LOOK_EVERY, STOPPED, Stillness, sample, told
from ...job.segment import Segment
from ...meeting.meeting import host_id

_TOKEN_BYTES = 16
_WATCH_EVERY = 0.05


def share_segment(
    store: Any,
    rank: int,
    world_size: int,
    timeout: float,
    prefix: str = "shm",
    members: Sequence[int] | None = None,
) -> Segment:
    """One segment for all ranks, or for ``members``, the first of which makes it. ``store``:
    ``set(key, bytes)``, and ``get(key)`` that waits."""
    key = f"{prefix}/segment"
    members = range(world_size) if members is None else members
    if rank == members[0]:
        segment = Segment.create(world_size)
        if len(members) > 1:
            _serve(segment, store, key, set(members[1:]), timeout)
    else:
        segment = _fetch(json.loads(bytes(store.get(key))), rank, timeout)
    segment.slot(rank).pid = os.getpid()
    return segment


def _serve(segment: Segment, store: Any, key: str, missing: set[int], timeout: float) -> None:
    """Give the descriptor to every other rank, each once."""
    token = os.urandom(_TOKEN_BYTES)
    name = f"disttrain-{os.urandom(12).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(len(missing))
        listener.setblocking(False)
        told = {"name": name, "token": token.hex(), "host": host_id()}
        store.set(key, json.dumps(told).encode())

        def all_came() -> bool:
            try:
                peer, _ = listener.accept()
            except BlockingIOError:
                return not missing
            with peer:
                missing.discard(_greet(peer, token, segment.fd))
            return not missing

        context.wait_until(
            all_came, lambda: f"connect_by_store: ranks {sorted(missing)} to connect", timeout
        )


def _greet(peer: socket.socket, token: bytes, fd: int) -> int:
    """Check who has connected and hand over the descriptor; the rank, -1 for a stranger."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    peer.settimeout(1.0)
    try:
        hello = peer.recv(_TOKEN_BYTES + 4, socket.MSG_WAITALL)
        known = len(hello) == _TOKEN_BYTES + 4 and hmac.compare_digest(hello[:-4], token)
        if uid != os.getuid() or not known:
            return -1
        socket.send_fds(peer, [b"1"], [fd])
    except OSError:
        return -1
    return int.from_bytes(hello[-4:], "little")


def _fetch(told: dict, rank: int, timeout: float) -> Segment:
    """Connect to rank 0 and receive the descriptor."""
    if told["host"] != host_id():
        raise CommError(
            f"shm: rank 0 runs on another host or as another user than rank {rank}; shared memory "
            "needs one of each. Use a transport that crosses hosts."
        )
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            link.connect("\0" + told["name"])
            link.sendall(bytes.fromhex(told["token"]) + rank.to_bytes(4, "little"))
            _, fds, _, _ = socket.recv_fds(link, 1, 1)
        except OSError as error:
            raise CommError(
                f"shm: rank {rank} could not get the segment from rank 0 ({error}). Is rank 0 "
                "still running, in the same network namespace?"
            ) from None
    if not fds:
        raise CommError(f"shm: rank 0 refused to give its segment to rank {rank}.")
    return Segment.attach(fds[0])


class Watch:
    """Notices peers whose processes have ended or were stopped; called while this rank waits, by
    whichever of its threads do."""

    def __init__(self, segment: Segment, rank: int, size: int) -> None:
        self._segment = segment
        self._peers = {r for r in range(size) if r != rank}
        self._ended: set[int] = set()
        self._fds: dict[int, int] = {}
        self._poll = select.poll()
        self._next = self._next_look = 0.0
        self._stillness = Stillness()
        self._turn = threading.Lock()
        self._closed = False

    def has_ended(self, rank: int) -> bool:
        """Has the process of ``rank`` ended, as far as was noticed?"""
        return rank in self._ended

    def was_stopped(self, rank: int) -> bool:
        """Does it count as failed since it was stopped?"""
        slot = self._segment.slot(rank)
        return slot.lost and slot.error[0].startswith(STOPPED)

    def end_stopped(self) -> None:
        """Kill peers that count as failed since they were stopped: they must not come back."""
        with self._turn:
            for fd, rank in self._fds.items():
                if self.was_stopped(rank):
                    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                        signal.pidfd_send_signal(fd, signal.SIGKILL)

    def __call__(self) -> None:
        now = context.now()
        if now < self._next or not self._turn.acquire(False):  # or another thread is at it
            return
        try:
            if not self._closed:
                self._look_around(now)
        finally:
            self._turn.release()

    def _look_around(self, now: float) -> None:
        self._next = now + _WATCH_EVERY
        for rank in self._peers - self._ended - set(self._fds.values()):
            self._open(rank)
        for fd, _ in self._poll.poll(0):
            self._poll.unregister(fd)
            self._ended.add(self._fds.pop(fd))
            os.close(fd)
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY
            self._look(now)

    def _look(self, now: float) -> None:
        """Tell everybody of a peer that was stopped for too long."""
        pids = {rank: self._segment.slot(rank).pid for rank in self._fds.values()}
        self._stillness.look(now, {rank: sample(pid) for rank, pid in pids.items()})
        for rank, pid in pids.items():
            if self._stillness.is_lost(rank):
                cause = told(pid, *self._stillness.still(rank))
                self._segment.publish_failure(rank, f"{cause}. `kill -CONT {pid}` lets it go on")

    def _open(self, rank: int) -> None:
        pid = self._segment.slot(rank).pid
        if not pid:
            return  # has not come yet
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.add(rank)
            return
        self._fds[fd] = rank
        self._poll.register(fd, select.POLLIN)

    def close(self) -> None:
        with self._turn:
            self._closed = True
            for fd in self._fds:
                os.close(fd)
            self._fds.clear()

    def disown(self) -> None:
        """In a process forked from this rank, a thread of which may have been at it."""
        self._turn = threading.Lock()
        self.close()
