"""The communicators of a group: one on each device that its arrays lie on, and one for each pair of
ranks that sent each other messages outside batches. Made when they are first needed; all ranks that
they are of come then. Knows how ranks agree, and the binding; no verb."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....backends.device.array import Located
from ....errors import CommError
from ...calls.header import Call, hash64, name_ranks
from ...calls.transport import Transport
from ...meeting.meeting import host_id
from .communicator import Communicator

_ID = 128
_HOST = "NCCL_HOSTID"
log = logging.getLogger(__name__)


class Connections:
    """Of the transport ``of``. ``bound``: the group was bound to its devices when it was made, so
    that messages need no communicators of their own."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self._groups: dict[int, Communicator] = {}
        self._pairs: dict[tuple[int, int], Communicator] = {}
        self._adopted: dict[Any, Any] = of.cpu.adopted or {}
        self.bound = bool(self._adopted)

    @property
    def met(self) -> bool:
        """Whether the ranks have met on some device."""
        return bool(self._groups)

    def all(self) -> list[Communicator]:
        return [*self._groups.values(), *self._pairs.values()]

    def trouble(self) -> CommError | None:
        """What NCCL itself has found."""
        for each in self.all():
            problem = each.trouble()
            if problem is not None:
                return problem
        return None

    # -- made ---------------------------------------------------------------------------------

    def bind(self, index: int) -> None:
        """Connect all ranks on their devices now."""
        self.bound = True
        self.group(index, None)

    def group(self, index: int, call: Call | None) -> Communicator:
        """That of all ranks on this rank's device ``index``."""
        found = self._groups.get(index)
        if found is None:
            self._check_not_captured(call)
            found = self._groups[index] = self._adopt(index) or self._connect_all(index)
        return found

    def pair(self, index: int, peer: int, call: Call) -> Communicator:
        """That of this rank and ``peer``."""
        found = self._pairs.get((index, peer))
        if found is None:
            self._check_not_captured(call)
            of, low, high = self.of, *sorted((self.of.rank, peer))
            mine = self._row(index, of.rank == low)
            given = of.agreement.trade(mine, peer)
            unique_id = (mine if of.rank == low else given)[:_ID].tobytes()
            apart = bool((mine[_ID:] == given[_ID:]).all())  # on two hosts, for NCCL
            places = {low: 0, high: 1}
            found = self._connect(
                unique_id, places, index, apart, f"{of.name}:{low}-{high}",
                "both ranks to connect their devices for their first message (messages that go in "
                "a circle: give them to batch_isend_irecv, or init_process_group device_id=)",
            )  # fmt: skip
            self._pairs[index, peer] = found
        return found

    def _connect_all(self, index: int) -> Communicator:
        of = self.of
        row = self._row(index, of.rank == 0)
        table = row[None] if of.agreement is None else of.agreement.everyones(row)
        shared = _sharing(table[:, _ID:].view(np.uint64)[:, 0].tolist())
        if shared and of.rank == 0:
            log.warning(
                "group %s: %s share devices, so each rank is told to NCCL as a host of its own "
                "(%s): data goes over its network", of.name, name_ranks(shared), _HOST
            )  # fmt: skip
        places = {r: r for r in range(of.size)}
        return self._connect(table[0, :_ID].tobytes(), places, index, bool(shared), of.name)

    def _row(self, index: int, gives: bool) -> np.ndarray:
        """What the ranks that connect tell each other: where they meet, if this one ``gives`` it,
        and on which device they are."""
        row = np.zeros(_ID + 8, np.uint8)
        if gives:
            row[:_ID] = np.frombuffer(self.of.library.new_id(), np.uint8)
        row[_ID:].view(np.uint64)[0] = hash64(_device_name(self.of.platform, index))
        return row

    def _connect(
        self,
        unique_id: bytes,
        places: dict[int, int],
        index: int,
        apart: bool,
        name: str,
        what: str = "all ranks to connect their devices",
    ) -> Communicator:
        of = self.of
        rank, size = places[of.rank], len(places)
        with Located(of.platform, index), _as_own_host(of.rank if apart else None):
            try:
                comm = of.library.connect(unique_id, rank, size)
            except of.library.failures as error:
                raise CommError(f"group {name}: NCCL cannot connect: {error}") from error
            made = Communicator(of.library, comm, places, index, name)
            try:
                made.settle(lambda: f"group {name}: {what}", of.timeout)
            except BaseException:
                made.abort()
                raise
        return made

    def _adopt(self, index: int) -> Communicator | None:
        """What the group that this one was split off from has left for it."""
        of = self.of
        comm = self._adopted.pop((of.platform.array_type, index), None)
        if comm is None:
            return None
        places = {r: r for r in range(of.size)}
        made = Communicator(of.library, comm, places, index, of.name)
        made.settle(lambda: f"group {of.name}: all ranks to divide their group", of.timeout)
        return made

    def _check_not_captured(self, call: Call | None) -> None:
        if self.of.platform.capturing():
            raise CommError(
                f"group {self.of.name}: {call.text if call else 'connect'}: devices cannot be "
                "connected while a graph is recorded; call a collective of this group once before"
            )

    # -- divided, ended -----------------------------------------------------------------------

    def divide(self, cpu: Transport | None, members: Sequence[int] | None) -> None:
        """All ranks of a bound group come, and this one will be in the group on ``cpu``, with
        ``members``, or in none."""
        if not self.bound or not self._groups:
            return
        made: dict[Any, Any] = {}
        for index, comm in self._groups.items():
            color = None if members is None else min(members)
            key = 0 if members is None else list(members).index(self.of.rank)
            with Located(self.of.platform, index):
                child = comm.split(color, key, self.of.timeout)
            if child is not None:
                made[self.of.platform.array_type, index] = child
        if cpu is not None:
            cpu.adopted = made

    def shrunk(self, cpu: Transport, before: Sequence[int]) -> None:
        """The ranks ``before`` go on on ``cpu``: those of them whose communicators are well make
        the new ones out of these, where all can. All of them come."""
        well = bool(self._groups) and self.of.error is None
        everyones = np.empty(cpu.size, np.int64)
        mine = np.array([well], np.int64)
        cpu.all_gather(_SHRINK, [everyones[i : i + 1] for i in range(cpu.size)], mine)
        if not everyones.all():
            return
        cpu.adopted = {}
        for index, comm in self._groups.items():
            with Located(self.of.platform, index):
                without = sorted(set(range(self.of.size)) - set(before))
                child = comm.shrink(without, self.of.timeout)
            cpu.adopted[self.of.platform.array_type, index] = child

    def abort(self) -> None:
        for each in self.all():
            each.abort()

    def destroy(self) -> None:
        for each in self.all():
            each.destroy()


_SHRINK = Call("all_gather", shown="shrink devices", site="shrink()", dtype=np.dtype("int64"))


def _device_name(platform: Any, index: int) -> str:
    """The same in all processes of all hosts."""
    known = getattr(platform.properties(index), "uuid", None)
    return f"{host_id()}/{index if known is None else known}"


def _sharing(devices: list[int]) -> list[int]:
    """The ranks that have a device together with others."""
    return [r for r, device in enumerate(devices) if devices.count(device) > 1]


@contextlib.contextmanager
def _as_own_host(rank: int | None) -> Iterator[None]:
    """NCCL, which reads it while it connects, refuses two ranks of one host on one device."""
    before = os.environ.get(_HOST)
    if rank is None or before is not None:
        yield
        return
    os.environ[_HOST] = f"{host_id()}-{rank}"
    try:
        yield
    finally:
        del os.environ[_HOST]
