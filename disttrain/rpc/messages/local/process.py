"""The processes of peers on this host: has one ended, is one stopped? The kernel knows both.

A process that computes, or holds its interpreter's lock for long, is neither. Knows process numbers
and descriptors; no peers.
"""

from __future__ import annotations

import os
import select

_EXITING = 0x4  # PF_EXITING of a task's flags
STOPPED_LOOKS = 3  # so many looks in a row must find a process stopped


class Process:
    """A process of this host. ``fd`` (a pidfd) becomes readable when it has ended; -1 where the
    kernel tells nothing (it is of another pid namespace, or has ended before). ``ended``: that was
    noticed."""

    def __init__(self, pid: int) -> None:
        self.pid, self.fd, self.ended = pid, -1, False
        self._stopped = 0
        if pid:
            try:
                self.fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self.ended = True
            except OSError:
                pass

    def has_ended(self) -> bool:
        """Whether it has ended, or does so now."""
        state, flags = _stat(self.pid)
        return state in "ZX" or bool(flags & _EXITING)

    def is_over(self) -> bool:
        """Whether ``fd`` says that it has ended."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def is_stopped(self) -> bool:
        """Whether it was stopped (SIGSTOP) now and at the last looks. One that a debugger holds is
        not."""
        self._stopped = self._stopped + 1 if _stat(self.pid)[0] == "T" else 0
        return self._stopped >= STOPPED_LOOKS

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _stat(pid: int) -> tuple[str, int]:
    """(state, flags) of a process; "X" where there is none, "?" where one cannot know."""
    if not pid:
        return "?", 0
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "X", 0
    except OSError:
        return "?", 0
    try:
        fields = os.read(fd, 1024).rpartition(b") ")[2].split()
        return fields[0].decode(), int(fields[6])
    except (OSError, IndexError):
        return "X", 0
    finally:
        os.close(fd)
