"""Who is there? Ranks that come to one store say so, and all of them learn whether they fit.

Ranks of a world may meet through one store again and again, each time as a new *meeting*. Two
processes that claim one rank, or that count on worlds of different sizes, are told so at once and
by name (host:pid), and so is everybody else of that meeting. Uses ``add``, ``set`` and ``get`` of a
store only, so it may be anybody's.

Knows keys and numbers; no transport.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from .. import context
from ..errors import ConfigError, NetworkError, StoreError, WaitTimeout

_LINGER = 0.7  # seconds: as long the host of the store stays for those that are still to be told
_RECENT = 5.0  # seconds: who comes as late to a meeting that has failed is told of it


def meet(store: Any, rank: int, size: int, timeout: float) -> str:
    """Wait until ranks 0 .. size-1 have come; the prefix of the keys of this meeting.

    Raises ``ConfigError`` on all ranks when two of them clash, ``WaitTimeout`` with the missing
    ranks when some stay away.
    """
    return _Meeting(store, rank, size, timeout).hold()


def refuse(store: Any, rank: int, size: int, problem: str) -> None:
    """Tell those who wait in ``meet``, or come soon, that a rank cannot take part, and why."""
    meeting = _Meeting(store, rank, size, 1.0)
    meeting.number = store.add("meetings", 0)
    meeting.end(f"{problem} (process {meeting.me})")


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
            self._be_late(self.number - 1)
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
            told = {"problem": problem, "at": time.time()}
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
            ) from error
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
            told = self._add("told", 1)
            deadline = context.now() + _LINGER
            while self.rank == 0 and told < max(self.size, self._add("come", 0)):
                if context.now() > deadline:
                    break
                context.sleep(0.01)
                told = self._add("told", 0)
        except StoreError:
            pass  # its host has gone; what there was to say is known here
        raise ConfigError(f"init_process_group: {problem}")

    def _be_late(self, last: int) -> None:
        """Who was still missing when the last meeting failed is told, too."""
        here = f"meeting/{last}/rank/{self.rank}"
        if last < 0 or self.store.add(here, 0):
            return
        told = json.loads(bytes(self._get("verdict", last)))
        if told["problem"] and abs(time.time() - told["at"]) < _RECENT:
            self.store.add(here, 1)
            raise ConfigError(f"init_process_group: {told['problem']}")

    def _tidy(self) -> None:
        """Rank 0 removes the keys of the meeting before the last one, where the store can."""
        old = self.number - 2
        if self.rank or old < 0:
            return
        names = ["come", "first", "here", "ended", "verdict", "told"]
        names += [f"{kind}/{r}" for kind in ("rank", "who", "came") for r in range(self.size)]
        try:
            for name in names:
                self.store.delete_key(self._key(name, old))
        except (NotImplementedError, AttributeError):  # a program's own store need not
            return


def _has_ended(who: str) -> bool:
    """Whether a process ("host:pid") of this host is there no more."""
    host, _, pid = who.rpartition(":")
    return host == socket.gethostname() and not os.path.exists(f"/proc/{pid}")
