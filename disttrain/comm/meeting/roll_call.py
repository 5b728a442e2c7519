"""Who is there? Ranks that come to one store say so, and all of them learn whether they fit.

Ranks of a world may meet through one store again and again, each time as a new *meeting*. Two
processes that claim one rank, or that count on worlds of different sizes, are told so at once and
by name (host:pid), and so is everybody else of that meeting. Who hosts the store stays until all
have been told, or ``LINGER`` is over. Uses ``add``, ``set`` and ``get`` of a store only, so it may
be anybody's, and compares no clocks of several machines.

Knows keys and numbers; no transport.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from ... import context
from ...errors import ConfigError, NetworkError, PeerFailed, StoreError, WaitTimeout
from .meeting import LINGER, host_id

_LEAST = 1.0  # ... where so many have been, but not all ranks: there may be more processes
_RECENT = 10.0  # seconds: who comes as late to a meeting that has failed on its host is told of it
_GRACE = 30.0  # seconds in which a world that has begun without a rank may come again to meet it


def meet(store: object, rank: int, size: int, timeout: float) -> str:
    """Wait until ranks 0 .. size-1 have come; the prefix of the keys of this meeting.

    Raises ``ConfigError`` on all ranks when two of them clash, ``WaitTimeout`` with the missing
    ranks when some stay away.
    """
    return _Meeting(store, rank, size, timeout).hold()


def refuse(store: Any, rank: int, size: int, problem: str) -> None:
    """Tell those who wait in ``meet``, or come soon, that a rank cannot take part, and why."""
    meeting = _Meeting(store, rank, size, 1.0)
    meeting.number = store.add("meetings", 0)
    if not meeting.has_failed_before():
        meeting.end(f"{problem} (process {meeting.me})")
    meeting.count_told()


class _Meeting:
    """One rank's part in a meeting."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.me = f"{socket.gethostname()}:{os.getpid()}"
        self.number = 0

    def hold(self) -> str:
        first = self._come()
        if first["size"] != self.size:
            other = f"rank {first['rank']} ({first['who']}) of {first['size']}"
            self.end(
                f"ranks that meet here count on worlds of different sizes: {other}, and "
                f"rank {self.rank} ({self.me}) of {self.size}. Give every process the same "
                "world size (WORLD_SIZE), and another job another port or store"
            )
        elif self._add(f"rank/{self.rank}", 1) > 1:
            self._replace(bytes(self._get(f"who/{self.rank}")).decode())
        else:
            self._set(f"who/{self.rank}", self.me)
            self._add(f"came/{self.rank}", 1)
            if self._add("here", 1) == self.size:
                self.end("")
        self._hear(self._verdict())
        self._tidy()
        return f"meeting/{self.number}"

    def _replace(self, other: str) -> None:
        """Another process has come as this rank: take its place if it has ended, else object."""
        if _has_ended(other):
            self._add(f"rank/{self.rank}", -1)
            self._add("come", -1)
            self._set(f"who/{self.rank}", self.me)
            return
        self.end(
            f"two processes claim rank {self.rank} of {self.size}: {other} and {self.me}. Give "
            "every process a rank of its own (RANK), and another job another port or store"
        )

    # -- keys of the meeting ------------------------------------------------------------------

    def _key(self, name: str, number: int | None = None) -> str:
        return f"meeting/{self.number if number is None else number}/{name}"

    def _add(self, name: str, amount: int) -> int:
        return self.store.add(self._key(name), amount)

    def _set(self, name: str, text: str) -> None:
        self.store.set(self._key(name), text)

    def _get(self, name: str, number: int | None = None) -> bytes:
        key = self._key(name, number)
        return self.store.get(key, self.timeout) if self._waits_as_told() else self.store.get(key)

    def _waits_as_told(self) -> bool:
        """Whether ``get`` takes a timeout; a program's own store need not."""
        extended = getattr(self.store, "has_extended_api", None)
        return extended is not None and bool(extended())

    # -- coming and ending --------------------------------------------------------------------

    def _come(self) -> dict:
        """Join the meeting that is open; who came first to it, and what that one expects."""
        while True:
            self.number = self.store.add("meetings", 0)
            self._be_late()
            ticket = self._add("come", 1)
            if ticket == 1:
                told = {"rank": self.rank, "size": self.size, "who": self.me}
                self._set("first", json.dumps(told))
            first = json.loads(bytes(self._get("first")))
            if ticket <= first["size"]:
                return first
            self._await_next()  # it is full: its last rank has only to say so

    def _await_next(self) -> None:
        context.wait_until(
            lambda: self.store.add("meetings", 0) > self.number,
            lambda: f"rank {self.rank} of {self.size}: the end of a meeting that is full",
            self.timeout,
        )

    def end(self, problem: str) -> None:
        """Close the meeting; the first to do it says how it ended."""
        if self._add("ended", 1) == 1:
            told = {"problem": problem, "host": host_id(), "at": time.monotonic()}
            self.store.add("meetings", 1)
            self._set("verdict", json.dumps(told))

    def _verdict(self) -> str:
        try:
            return self._said()
        except WaitTimeout as error:
            me = f"init_process_group: rank {self.rank} of {self.size} ({self.me})"
            waited = f"{me} waited {self.timeout:g} s for"
            try:
                missing = [r for r in range(self.size) if not self._add(f"came/{r}", 0)]
                if not self._withdraw():
                    return self._said()
            except (StoreError, NetworkError) as gone:  # its host waited as long
                raise WaitTimeout(f"{waited} all ranks to come, and then lost the store") from gone
            shown = ", ".join(map(str, missing[:16])) + (", ..." if len(missing) > 16 else "")
            raise WaitTimeout(
                f"{waited} rank{'s' if len(missing) > 1 else ''} {shown} to come. "
                "See why they did not start, or raise timeout= if they need longer"
                + (f". {hint}" if (hint := getattr(self.store, "only_here", "")) else "")
            ) from error
        except PeerFailed:  # it may have come, and have ended since
            if self._add("ended", 0):
                return self._said()
            self._withdraw()
            raise
        except StoreError:
            raise
        except BaseException:
            self._withdraw()
            raise

    def _said(self) -> str:
        return json.loads(bytes(self._get("verdict")))["problem"]

    def _withdraw(self) -> bool:
        """Leave the meeting, so that this rank may come again; False where all have come."""
        if self._add("here", -1) == self.size - 1:
            self._add("here", 1)
            return False
        self._add(f"rank/{self.rank}", -1)
        self._add("come", -1)
        return True

    def _hear(self, problem: str) -> None:
        """Raise what went wrong, if anything; rank 0, which may host the store, as the last."""
        if not problem:
            return
        try:
            self._add(f"rank/{self.rank}", 1)  # it need not be told again
            self.count_told()
            begun = context.now()
            while self.rank == 0 and not self._has_told(context.now() - begun):
                context.sleep(0.01)
        except (StoreError, NetworkError):
            pass  # its host has gone; what there was to say is known here
        raise ConfigError(f"init_process_group: {problem}")

    def count_told(self) -> None:
        """This process has learned how the meeting has ended."""
        self._add("told", 1)
        if 0 <= self.rank < self.size and self._add(f"told/{self.rank}", 1) == 1:
            self._add("ranks told", 1)

    def _has_told(self, seconds: float) -> bool:
        """Need nobody be told any more, so long after the host of the store was?"""
        if self._add("ranks told", 0) >= self.size or seconds > min(LINGER, self.timeout):
            return True
        expected = max(self.size, self._add("come", 0))
        return seconds > _LEAST and self._add("told", 0) >= expected

    # -- after another meeting ----------------------------------------------------------------

    def has_failed_before(self) -> bool:
        """Has the last meeting failed, and nobody come since? Then this is that one."""
        if self.number == 0 or self._add("come", 0):
            return False
        self.number -= 1
        if json.loads(bytes(self._get("verdict")))["problem"]:
            return True
        self.number += 1
        return False

    def _be_late(self) -> None:
        """Who was missing when the last meeting ended is told, where that fits nobody."""
        last = self.number - 1
        if last < 0 or self.store.add(self._key(f"rank/{self.rank}", last), 0):
            return
        told = json.loads(bytes(self._get("verdict", last)))
        if not told["problem"]:
            self._be_left_out(last)
        elif self._is_of_now(told, last):
            self.number = last
            self._hear(told["problem"])

    def _is_of_now(self, told: dict, last: int) -> bool:
        """Whether a failure is of those who meet now, and not of a job before. Where it was on this
        host, its clock says so; else those who have come again do, if they are the same."""
        if told["host"] == host_id():
            return abs(time.monotonic() - told["at"]) < _RECENT
        if not self._add("come", 0):
            return True
        first = json.loads(bytes(self._get("first")))
        if not self.store.add(self._key(f"came/{first['rank']}", last), 0):
            return False
        return first["who"] == bytes(self._get(f"who/{first['rank']}", last)).decode()

    def _be_left_out(self, last: int) -> None:
        """A world has begun without this rank, as its size says; it may come again soon."""
        first = json.loads(bytes(self._get("first", last)))
        if self.rank < first["size"] or self.rank >= self.size:
            return
        deadline = context.now() + min(_GRACE, self.timeout / 2)
        while not self._add("come", 0) and self.store.add("meetings", 0) == self.number:
            if context.now() > deadline:
                raise ConfigError(
                    f"init_process_group: rank {self.rank} ({self.me}) counts on a world of "
                    f"{self.size}, and a world of {first['size']} has begun here without it: "
                    f"rank {first['rank']} ({first['who']}) of {first['size']} came first. Give "
                    "every process the same world size (WORLD_SIZE), and another job another port "
                    "or store"
                )
            context.sleep(0.05)

    def _tidy(self) -> None:
        """Rank 0 removes the keys of the meeting before the last one, where the store can."""
        old = self.number - 2
        if self.rank or old < 0:
            return
        names = ["come", "first", "here", "ended", "verdict", "told", "ranks told"]
        names += [
            f"{kind}/{r}" for kind in ("rank", "who", "came", "told") for r in range(self.size)
        ]
        try:
            for name in names:
                self.store.delete_key(self._key(name, old))
        except (NotImplementedError, AttributeError):  # a program's own store need not
            return


def _has_ended(who: str) -> bool:
    """Whether a process ("host:pid") of this host is there no more."""
    host, _, pid = who.rpartition(":")
    return host == socket.gethostname() and not os.path.exists(f"/proc/{pid}")
