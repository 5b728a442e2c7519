"""What one rank knows when a group is made from nothing, and how it learns of the others.

``selection.connect`` gives it to the engine it has chosen. Knows a store and who this process is;
no transport.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ... import context
from ...context import DEFAULT_TIMEOUT
from ...errors import ConfigError, PeerFailed
from ..calls.header import name_ranks
from ..job.segment import Segment
from ..job.worker_env import TLS, WorkerEnv
from ..store import Store

LINGER = 10.0  # seconds: as long the host of the store stays for those that are still to be told


def host_id() -> str:
    """Names the host of this rank: a boot of a kernel, a network namespace of it, and a user.
    Ranks of one host can share memory and reach each other's abstract socket names."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip().replace("-", "")
    return f"{boot[:16]}-{os.stat('/proc/self/ns/net').st_ino}-{os.getuid()}"


def check_encryption(wanted: Sequence[bool]) -> None:
    """``wanted``: by each rank. Raises ``ConfigError`` on all of them where they do not agree: a
    rank that asks for it sends nothing to one that does not."""
    if len(set(wanted)) > 1:
        on, off = ([r for r, tls in enumerate(wanted) if tls is asked] for asked in (True, False))
        raise ConfigError(
            f"init_process_group: TLS between hosts is asked for by {name_ranks(on)} and not by "
            f"{name_ranks(off)}; needed is one setting on all: set {TLS}=1 for every process, or "
            "for none"
        )


@dataclass
class Meeting:
    """One rank's end of a meeting of ``size`` ranks.

    ``place``: what the launcher told this process, among it whom it may talk to, and whether that
    is encrypted. ``segment``: the job's, where a launcher (or a simulation) has made one: it has a
    place for each rank of this host, and all of the meeting's ranks where it is that large.
    ``open_store``: makes the store through which the ranks meet, fresh for this meeting; None where
    they have none. ``ranks``: the members' ranks in the world, where they are only some of them.
    ``wanted``: the backend that the program named; ``gloo`` leaves the choice to ``selection``.
    ``at``: tells apart what meets at one time in one process; ranks that meet give the same.
    """

    rank: int
    size: int
    place: WorkerEnv
    timeout: float = DEFAULT_TIMEOUT
    segment: Segment | None = None
    open_store: Callable[[], Store] | None = None
    ranks: Sequence[int] | None = None
    wanted: str = "gloo"
    at: str = ""
    _store: Store | None = None
    _hosts: list[str] | None = None

    @property
    def epoch(self) -> int:
        """How often the job was restarted."""
        return self.place.restart_count if self.segment is None else self.segment.epoch

    def store(self) -> Store:
        """The store through which the ranks meet, opened when it is first asked for."""
        if self._store is None:
            if self.open_store is None:
                raise ConfigError(
                    f"init_process_group: {self.size} ranks cannot meet without a store; set "
                    "MASTER_ADDR and MASTER_PORT on every rank, or give init_method= or store="
                )
            self._store = self.open_store()
        return self._store

    def hosts(self) -> list[str]:
        """The host of every rank (``host_id``). All ranks call it; they ask each other once."""
        if self._hosts is None:
            self._hosts = self._ask_hosts()
        return self._hosts

    def _ask_hosts(self) -> list[str]:
        """Rank 0 reads what each rank says, so that all see one list and the store is asked by each
        of the others only once."""
        if self.on_segment() or self.size == 1:
            return [host_id()] * self.size
        store, name = self.store(), host_id()
        if self.job is not None:  # launchers that share a machine are hosts of their own
            name = f"{name}/{self.job.here.start}"
        store.set(f"host/{self.rank}", name)
        if self.rank == 0:
            said = store.multi_get([f"host/{r}" for r in range(self.size)], self.timeout)
            store.set("hosts", json.dumps([bytes(host).decode() for host in said]))
        return json.loads(bytes(store.get("hosts", self.timeout)))

    def part(self) -> None:
        """After an error to which every rank comes by itself: rank 0, whose process may host the
        store, goes as the last, so that nobody loses the store before knowing what is wrong."""
        if self._store is None:
            return
        with suppress(Exception):  # its host has gone; what is wrong is known here
            parted = self._store.add("parted", 1)
            deadline = context.now() + min(LINGER, self.timeout)
            while self.rank == 0 and parted < self.size and context.now() < deadline:
                context.sleep(0.01)
                parted = self._store.add("parted", 0)

    @contextmanager
    def while_they_come(self) -> Iterator[None]:
        """Waits in it raise ``PeerFailed``, once, where the program of a rank of this host has
        ended: it does not come any more."""
        job = self.job
        if job is None or job.num_ranks != self.size:
            yield
            return
        slots = {rank: job.slot(rank) for rank in job.here if rank != self.rank}
        mine = threading.get_ident()  # other threads of this rank wait for other things

        def look() -> None:
            if threading.get_ident() != mine:
                return
            for rank, slot in slots.items():
                if slot.state == "finished":
                    slots.clear()  # this once
                    why = "its program did not come to this init_process_group()"
                    raise PeerFailed(rank, why, where="init_process_group", ended=True)

        interrupts = context.current().waiter.interrupts
        interrupts.append(look)
        try:
            yield
        finally:
            interrupts.remove(look)

    def on_segment(self) -> bool:
        """Whether all ranks have a place in the job's segment, and see it."""
        job = self.job
        return job is not None and len(job.here) == job.num_ranks

    @property
    def job(self) -> Segment | None:
        """The job's segment, where its ranks are this meeting's: who fails is published there."""
        if self.segment is None or self.ranks is not None or self.size > self.segment.num_ranks:
            return None
        return self.segment

    def taken_over(self) -> Segment | None:
        """The job's segment, where this process was started in the place of a rank that has ended,
        and the others go on: it is to join them."""
        job = self.job
        anew = isinstance(job, Segment) and self.on_segment() and job.slot(self.rank).turn > 0
        return job if anew else None

    def on_one_host(self) -> bool:
        """Whether all ranks are on one host. All ranks call it."""
        return len(set(self.hosts())) == 1
