"""What was committed, in memory of the node's launcher, which outlives the node's ranks.

Ranks of one host go on in their processes when others are replaced. Those of several hosts are
started anew, all of them; so that nothing is lost by that, each keeps its last commits here, and
whoever begins after them takes them up. Of what is the same on all ranks the first of a node keeps
the one copy, random numbers are each rank's own.

Each rank has a place, and in it two parts that are written in turn, the older one first: who is
killed while it writes leaves the other one whole. Knows bytes and places; not what they mean.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import numpy as np

from ... import settings
from ...trace import logger
from ..collectives import objects

NAME = "disttrain-kept"  # of the memory
_HEAD = struct.Struct("<QQI")  # which commit it is of, length, checksum
_PLACE, _PART = 1 << 36, 1 << 35  # bytes of a rank's place, and of a part of it, mostly empty


class Kept:
    """One rank's end: ``fd`` is the memory, ``local`` its number on the node."""

    def __init__(self, fd: int, local: int) -> None:
        self._fd, self.local, self._turn = fd, local, 0

    def put(self, commit: int, value: object) -> None:
        """Keep what is as of this commit. Where there is no room for it, that is told once, and
        nothing is kept any more."""
        if self._fd < 0:
            return
        at = self.local * _PLACE + self._turn * _PART
        data = memoryview(objects.encode(value).data).cast("B")
        try:
            os.pwrite(self._fd, bytes(_HEAD.size), at)
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done : done + (1 << 30)], at + _HEAD.size + done)
            os.pwrite(self._fd, _HEAD.pack(commit + 1, len(data), zlib.crc32(data)), at)
        except OSError as error:
            logger("disttrain.elastic").warning(
                "commits of this rank are not kept for its successor: %s", error.strerror
            )
            self._fd = -1
        self._turn = 1 - self._turn

    def newest(self, local: int) -> tuple[int, Any] | None:
        """The last whole commit of a rank of this node: which one, and what was put."""
        if self._fd < 0:
            return None
        heads = []
        for part in (0, 1):
            at = local * _PLACE + part * _PART
            raw = os.pread(self._fd, _HEAD.size, at)
            if len(raw) == _HEAD.size and any(raw):
                heads.append((*_HEAD.unpack(raw), at + _HEAD.size, part))
        for commit, length, checksum, at, part in sorted(heads, reverse=True):
            data = self._read(at, length)
            if data is not None and zlib.crc32(data) == checksum:
                if local == self.local:
                    self._turn = 1 - part
                return commit - 1, objects.decode(np.frombuffer(data, np.uint8))
        return None

    def _read(self, at: int, length: int) -> bytearray | None:
        if length > _PART or os.fstat(self._fd).st_size < at + length:
            return None
        data, done = bytearray(length), 0
        view = memoryview(data)
        while done < length:
            got = os.preadv(self._fd, [view[done : done + (1 << 30)]], at + done)
            if not got:
                return None
            done += got
        return data


def of_this_rank() -> Kept:
    """As the launcher has told; one that keeps nothing where it has not."""
    fd, local = settings.KEPT_FD.text(), settings.LOCAL_RANK.text()
    told = fd.isdigit() and local.isdigit()
    return Kept(int(fd), int(local)) if told and _is_it(fd) else Kept(-1, 0)


def _is_it(fd: str) -> bool:
    """A program that a rank has started has heard of a descriptor that it has not inherited."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{NAME}")
    except OSError:
        return False
