"""Processes of Linux as the launcher needs them: held-back signals, whole trees, reaping."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def held_back(signals: Iterable[int]) -> Iterator[None]:
    """Signals wait while the block runs: neither side of a fork may miss one or die of it before
    its handlers stand. A child that leaves the block by another way unblocks them itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def children() -> dict[int, list[int]]:
    """parent -> children, of all processes (zombies left out)."""
    tree: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
                rest = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        if rest[0] not in "ZX":
            tree.setdefault(int(rest[1]), []).append(int(name))
    return tree


def descendants(of: int) -> list[int]:
    """All processes below ``of``."""
    tree, found, stack = children(), [], [of]
    while stack:
        for child in tree.get(stack.pop(), ()):
            found.append(child)
            stack.append(child)
    return found


def kill_descendants(keep: set[int], timeout: float) -> list[int]:
    """Kill everything below this process except ``keep``; what is still there after ``timeout``.

    Nothing is left once two looks in a row have found nothing: one look reads process after
    process, and misses whose parent ends between the two readings.
    """
    deadline, seen = time.monotonic() + timeout, True
    while _has_children():
        left = [pid for pid in descendants(os.getpid()) if pid not in keep]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap(keep)
        if not (left or seen) or time.monotonic() > deadline:
            return left
        seen = bool(left)
        if left:
            time.sleep(0.005)
    return []


def _has_children() -> bool:
    """Is there a child, be it a zombie? The kernel knows at once; to look through all processes of
    a machine takes longer than a short job. Who has no child has nothing below."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap(keep: set[int]) -> None:
    """Collect children that have ended, except ``keep``."""
    for pid in _own_zombies():
        if pid not in keep:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _own_zombies() -> list[int]:
    found = []
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
            pids = [int(word) for word in f.read().split()]
    except OSError:
        return []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    found.append(pid)
        except OSError:
            continue
    return found
