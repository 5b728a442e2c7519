"""Ranks that are more than the processor's cores: who waits sleeps until what it waits for comes.

A rank that spins, or yields again and again, takes time from the ranks that it waits for. So one
that waits for all members of a group to reach a flag says that somebody sleeps and goes to sleep on
the group's *bell*, a word that the kernel watches (futex). Whoever publishes a flag and finds that
all have reached it rings the bell: of the ranks that come to a meeting only the last one does, and
every sleeper wakes once. Who waits for some members only is woken by each flag.

    in the control block of the group's first member: sleepers (all) u64 | sleepers (any) u64
    | bell u64, of which the kernel watches the lower half

A sleeper looks at the flags between its announcement and its sleep, a publisher at the announcement
after its flag, each behind a full barrier, so that one of them sees the other. Knows words; no
operations.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

FOR_ALL_AT, FOR_ANY_AT, BELL_AT = 0x140, 0x148, 0x180  # in a control block
_NUMBERS = {"x86_64": 202, "aarch64": 98}  # of the system call futex
_WAIT, _WAKE, _EVERYBODY = 0, 1, (1 << 31) - 1
YIELDS = 20  # times that a rank lets others go first before it goes to sleep
# Seconds of a sleep, since a wake-up may be lost where two ring at once: the more ranks on a core,
# the longer, or they would do nothing but look.
_FIRST_NAP, _LONGEST_NAP = 0.001, 0.01
_NAP_OF_EACH = 0.001


def futex() -> Callable[..., int] | None:
    """``futex(address, operation, value, timeout)``, or None where this machine has none."""
    number = _NUMBERS.get(platform.machine())
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    if number is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    kinds = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
    call = ctypes.CFUNCTYPE(ctypes.c_long, *kinds)(ctypes.cast(syscall, ctypes.c_void_p).value or 0)
    return lambda *args: call(number, *args)


class Bell:
    """One group's bell, seen from one of its members."""

    def __init__(self, hub: Any, block: int) -> None:
        """``block``: the control block of the group's first member."""
        self._words, self._lock, self._futex = hub.words, hub.lock, hub.futex
        self._for_all, self._for_any = (block + FOR_ALL_AT) // 8, (block + FOR_ANY_AT) // 8
        self._bell, self._address = (block + BELL_AT) // 8, hub.address + block + BELL_AT
        self.nap = max(_LONGEST_NAP, _NAP_OF_EACH * hub.ranks_per_core)

    def ring(self, idxs: Sequence[int], value: int) -> None:
        """A flag has got ``value``, those of the others are at ``idxs``: wake who waits for it."""
        words = self._words
        with self._lock:  # a full barrier
            pass
        if not words[self._for_any]:
            if not words[self._for_all]:
                return
            for i in idxs:
                if words[i] < value:
                    return
        words[self._for_all] = words[self._for_any] = 0
        # Unlike any number before, also where two ring at once: who goes to sleep just now sees it.
        words[self._bell] = time.monotonic_ns()
        self._futex(self._address, _WAKE, _EVERYBODY, None)


class Nap:
    """How one wait sleeps: ``nap(seconds)`` returns when the bell rings, or after a while."""

    def __init__(self, bell: Bell, flags: Any) -> None:
        self._bell, self._flags, self._longest = bell, flags, _FIRST_NAP

    def __call__(self, seconds: float) -> None:
        bell, words = self._bell, self._bell._words
        heard = words[bell._bell] & 0xFFFFFFFF
        words[bell._for_all if self._flags.for_all else bell._for_any] = 1
        with bell._lock:  # a full barrier
            pass
        if self._flags():
            return
        limit = min(seconds, self._longest)
        self._longest = min(2 * self._longest, bell.nap)
        whole = int(limit)
        span = (ctypes.c_long * 2)(whole, int((limit - whole) * 1e9))
        bell._futex(bell._address, _WAIT, heard, ctypes.addressof(span))


def wait_a_little(ready: Callable[[], bool]) -> bool:
    """Let other ranks go first some times; whether ``ready()`` after that."""
    for _ in range(YIELDS):
        os.sched_yield()
        if ready():
            return True
    return False
