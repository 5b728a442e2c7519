"""The verbs on raw arrays of devices, by NCCL.

A verb announces what it calls (``agreement``), lets the stream of its communicator wait for the
caller's current one, gives NCCL's calls to it, and records the event at which it ends. The host
waits for nothing of it, as in PyTorch: sync means that the caller's stream waits for the event,
async that ``Work.wait`` makes it. What goes wrong meanwhile (``watch``) ends the communicators, and
is raised by the next wait or verb.

Announcements are compared beside the device's work; a rank whose peers are all there compares them
before it enqueues anything. In a strict group, and with ``DISTTRAIN_NCCL_CHECK=before``, every rank
does, and waits for its peers: then a disagreement leaves the group usable.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from .... import context, settings
from ....backends.device.platform import Platform
from ....errors import CollectiveMismatch, CommError, ConfigError, WaitTimeout
from ...calls.header import Call
from ...calls.reduce_ops import ReduceOp
from ...calls.transport import Swap, Transport
from ...calls.work import Work
from .agreement import Agreement
from .communicator import Communicator
from .connecting import Connections
from .library import Library
from .operations import Moves
from .own import OwnMail
from .watch import watch
from .works import DeviceWork

CHECK = settings.NCCL_CHECK.name
Issue = Callable[[Any, Communicator], None]


class _Batch:
    """Operations that are started together. ``comm``: all of them are its."""

    def __init__(self) -> None:
        self.comm: Communicator | None = None
        self.parts: list[tuple[Moves, DeviceWork]] = []


class NcclTransport(Transport):
    """See ``Transport``. ``cpu``: that of the same ranks for arrays of the host."""

    kind = "nccl"

    def __init__(self, cpu: Transport, platform: Platform) -> None:
        super().__init__(cpu.rank, cpu.size, cpu.name, cpu.timeout, cpu.epoch)
        self.cpu, self.platform = cpu, platform
        self.library = Library(platform)
        self.connections = Connections(self)
        self.error: BaseException | None = None  # what has ended it
        self.told = False  # the program has heard of that
        self._flight: deque[DeviceWork] = deque()
        self._lock = threading.RLock()
        self._agreement: Agreement | None = None
        self._before = _checks_before()
        self._blocking = settings.BLOCKING_WAIT.flag()
        self._batch: _Batch | None = None
        self._tokens: dict[int, Any] = {}
        self._own = OwnMail(self)
        watch().add(self)

    @property
    def leads(self) -> bool:  # type: ignore[override]
        """Where the program named no backend of CPUs, barriers are of devices that have met."""
        group = self.cpu.group()
        alone = group is None or group.backend in ("nccl", "cuda:nccl")
        return alone and self.connections.met

    @property
    def agreement(self) -> Agreement | None:
        """None in a group of one, which agrees with itself."""
        if self._agreement is None and self.size > 1:
            self._agreement = Agreement(self.cpu)
        return self._agreement

    # -- verbs --------------------------------------------------------------------------------

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        index = self.platform.current()
        token = self._tokens.get(index)
        if token is None:
            token = self._tokens[index] = self.platform.upload(np.zeros(1, np.float32), index)
        moves = Moves(self, (token,))
        moves.all_reduce(token, ReduceOp.SUM)
        work = self._start(call, moves, None, blocking=True)
        if async_op:
            return work
        work.wait()
        return None

    def broadcast(
        self, call: Call, array: object, root: int, *, async_op: bool = False
    ) -> Work | None:
        moves = Moves(self, (array,))
        moves.broadcast(array, root)
        return self._run(call, moves, async_op, array)

    def all_reduce(
        self, call: Call, array: object, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        moves = Moves(self, (array,))
        moves.all_reduce(array, op)
        return self._run(call, moves, async_op, array)

    def all_gather(
        self, call: Call, outs: Sequence[Any], array: object, *, async_op: bool = False
    ) -> Work | None:
        moves = Moves(self, (*outs, array))
        moves.all_gather(outs, array)
        return self._run(call, moves, async_op, outs)

    def reduce_scatter(
        self, call: Call, out: object, ins: Sequence[Any], op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        moves = Moves(self, (*ins, out))
        moves.reduce_scatter(out, ins, op)
        return self._run(call, moves, async_op, out)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[Any],
        ins: Sequence[Any],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        moves = Moves(self, (*ins, *outs))
        moves.all_to_all(outs, ins)
        if ragged:
            moves.pairs = [a.nbytes for a in ins], [a.nbytes for a in outs]
        return self._run(call, moves, async_op, outs)

    def send(self, call: Call, array: Any, dst: int, tag: int) -> Work:
        self._usable()
        if dst == self.rank:
            return self._own.send(call, array)
        agreed = self.agreement
        header = None if agreed is None else agreed.announce_send(call, dst, tag)
        moves = Moves(self, (array,))
        moves.send(array, dst)
        return self._give(call, moves, self._pair(call, moves, dst), header, array, alone=True)

    def recv(self, call: Call, array: object, src: int | None, tag: int) -> Work:
        self._usable()
        if src == self.rank or self.size == 1:
            return self._own.recv(call, array)
        agreed = self.agreement
        header = None if agreed is None else agreed.announce_recv(call, src, tag)
        if src is None:  # NCCL has to be told from whom
            src = 0 if header is None else int(header.wait(self.timeout))
        moves = Moves(self, (array,))
        moves.recv(array, src)
        return self._give(call, moves, self._pair(call, moves, src), header, src, alone=True)

    def _pair(self, call: Call, moves: Moves, peer: int) -> Communicator:
        """What moves a message: within a batch, and where the group was bound to its devices, the
        group's own; else one of the two ranks, as in PyTorch."""
        if self._batch is not None or self.connections.bound:
            return self.connections.group(moves.index, call)
        return self.connections.pair(moves.index, peer, call)

    # -- how they run -------------------------------------------------------------------------

    def _usable(self) -> None:
        if self.error is None:
            return
        if not self.told:
            self.told = True
            raise self.error
        raise CommError(
            f"group {self.name}: cannot be used any more on devices, since an operation ended in "
            f"the middle ({type(self.error).__name__}). Make a new group, or restart the job."
        )

    def _run(self, call: Call, moves: Moves, async_op: bool, result: object) -> Work | None:
        work = self._start(call, moves, result, self._blocking)
        if async_op:
            return work
        if self._batch is None:
            work.wait()
        return None

    def _start(self, call: Call, moves: Moves, result: Any, blocking: bool = False) -> DeviceWork:
        self._usable()
        header = self._announce(call, moves)
        comm = self.connections.group(moves.index, call)
        return self._give(call, moves, comm, header, result, blocking)

    def _announce(self, call: Call, moves: Moves) -> Work | None:
        """Tell the others what this rank calls. Raises where all have, and they do not agree."""
        agreed = self.agreement
        if agreed is None:
            return None
        if moves.pairs is None:
            header = agreed.announce(call)
        else:
            header = agreed.announce_pairs(call, *moves.pairs)
        group = self.cpu.group()
        if self._before or (group is not None and group.strict):
            try:
                header.wait(self.timeout)
            except CollectiveMismatch:
                raise  # on all ranks, before anything was enqueued
            except BaseException as error:
                self.fail(error)
                self.told = True
                raise
            return None
        if not header.is_completed():
            return header
        problem = header.exception()
        if problem is not None:
            self.fail(problem)
            self.told = True
            raise problem
        return None

    def _give(
        self,
        call: Call,
        moves: Moves,
        comm: Communicator,
        header: Work | None,
        result: RawArray | int | list | None,
        blocking: bool = False,
        alone: bool = False,
    ) -> DeviceWork:
        """Enqueue ``moves``, now or with the others of a batch. ``alone``: a message."""
        work = DeviceWork(self, call, moves.index, result, blocking)
        work.header, work.alone = header, alone
        if self._batch is not None:
            if self._batch.comm not in (None, comm):
                self.flush()
            self._batch.comm = comm
            self._batch.parts.append((moves, work))
            return work
        self._enqueue(comm, [(moves, work)])
        return work

    def _enqueue(self, comm: Communicator, parts: list[tuple[Moves, DeviceWork]]) -> None:
        platform, side = self.platform, comm.stream
        captured = platform.capturing()
        call = parts[0][1].call
        before = platform.event()
        before.record(platform.current_stream(comm.index))
        side.wait_event(before)
        for moves, _ in parts:
            for array in moves.arrays:
                platform.record_use(array, side)
        with platform.on(side):
            for moves, _ in parts:
                moves.prepare()
            if any(moves.calls for moves, _ in parts):
                with comm.issuing(
                    lambda: f"{call.text}: its peers to connect", self.timeout
                ) as raw:
                    for moves, _ in parts:
                        moves.issue(raw, comm)
            for moves, _ in parts:
                moves.finish()
            after = platform.event()
            after.record(side)
        for _, work in parts:
            work.event = after
            if not captured:
                self._flight.append(work)
        watch().hurry()

    def flush(self) -> None:
        """Start what was collected."""
        batch = self._batch
        if batch is not None and batch.comm is not None:
            parts, batch.parts = batch.parts, []
            comm, batch.comm = batch.comm, None
            self._enqueue(comm, parts)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        if self._batch is not None:
            yield
            return
        self._batch = _Batch()
        try:
            yield
            self.flush()
        finally:
            self._batch = None

    # -- waiting, and what goes wrong ---------------------------------------------------------

    def join(self, event: Any, index: int) -> None:
        """The caller's stream of device ``index`` waits for ``event``."""
        self.platform.current_stream(index).wait_event(event)

    def mark(self, index: int) -> Any:
        """The point after all that the caller's stream was given."""
        event = self.platform.event()
        event.record(self.platform.current_stream(index))
        return event

    def wait_on_host(self, work: DeviceWork, limit: float) -> None:
        """Until the device has done it. Raises ``WaitTimeout``, after which it may be waited for
        again."""

        def ready() -> bool:
            self.look()
            return work.reached()

        try:
            context.wait_until(ready, work.what, limit)
        except WaitTimeout as error:
            raise self._missing(work) or error from None
        except CommError as error:
            self.fail(error)
            raise

    def drain(self) -> None:
        """Until all that is in flight is done. Raises what went wrong with it."""
        for work in tuple(self._flight):
            self.wait_on_host(work, work.limit)
            work.wait()
        self._usable()

    def _missing(self, work: DeviceWork) -> BaseException | None:
        """Who has not come to ``work``, said by who compares the headers; None where all have."""
        header = work.header
        if header is None:
            return None
        try:
            header.wait(1e-3)
        except CommError as error:
            return error
        return None

    def deadline(self) -> float:
        """When the oldest operation has lasted too long."""
        flight = self._flight
        return flight[0].at + flight[0].limit if flight else context.now() + context.DEFAULT_TIMEOUT

    def look(self) -> bool:
        """See what has ended, and how; whether something is still in flight. From any thread; waits
        for nothing."""
        flight = self._flight
        if not flight or not self._lock.acquire(False):
            return bool(flight)
        try:
            problem = self._problem()
            if problem is not None:
                self.fail(problem)
            elif flight and context.now() > flight[0].at + flight[0].limit:
                work = flight[0]
                self.fail(self._missing(work) or _too_long(work))
        finally:
            self._lock.release()
        return bool(flight)

    def _problem(self) -> BaseException | None:
        flight = self._flight
        for work in tuple(flight):
            header = work.header
            if header is None:
                continue
            if not header.is_completed():
                if work.alone:
                    continue
                break  # announcements of collectives end in their order
            if header.exception() is not None:
                return header.exception()
            work.header = None
        problem = self.connections.trouble()
        if problem is not None:
            return problem
        while flight and flight[0].header is None and flight[0].reached():
            flight.popleft()
        return None

    def fail(self, error: BaseException) -> None:
        """End everything: nobody waits any longer for what will not come."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            self.connections.abort()
            while self._flight:
                self._flight.popleft().fail(error)

    def register(self, array: RawArray) -> Callable[[], None]:
        """Let NCCL move ``array`` from where it lies, without buffers of its own, on every rank
        that does the same; for memory that is used again and again (buckets, shards). All ranks
        come, the first time. What is given back takes that back; closing the group does, too."""
        index = self.platform.index_of(array)
        return self.connections.group(index, None).register(self.library.at(array), array.nbytes)

    # -- groups -------------------------------------------------------------------------------

    def bind(self, index: int) -> None:
        """Connect now, on this device. All ranks come."""
        self.connections.bind(index)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> Transport | None:
        """Groups of some ranks are split off from the CPU's transport; see ``divide``."""
        return self.cpu.split(call, members, name, swap)

    def divide(self, cpu: Transport | None, members: Sequence[int] | None, name: str) -> None:
        if self.connections.bound:
            self.drain()  # NCCL divides what is idle
            self.connections.divide(cpu, members)

    def shrunk(self, cpu: Transport, before: Sequence[int]) -> None:
        self.connections.shrunk(cpu, before)

    def close(self, call: Call | None) -> None:
        """In good order what is in flight ends first, and ranks that have called less are found."""
        watch().remove(self)
        agreed, self._agreement = self._agreement, None
        well = call is not None and self.error is None
        try:
            if agreed is not None and (well or self.error is None):
                agreed.close(call if well else None)
            elif agreed is not None:
                with contextlib.suppress(CommError):  # it may be over, too
                    agreed.close(None)
            if well:
                self.drain()
                self.connections.destroy()
        finally:
            self.connections.abort()
            self.error = self.error or CommError(f"group {self.name}: it was closed")
            self.told = True


def _checks_before() -> bool:
    said = settings.NCCL_CHECK.text()
    if said not in ("before", "beside"):
        raise ConfigError(
            f"{CHECK}={said!r} was given; needed is 'beside' (headers are compared while devices "
            "work) or 'before' (every operation waits for the others' headers first)"
        )
    return said == "before"


def _too_long(work: DeviceWork) -> WaitTimeout:
    return WaitTimeout(
        f"waited {work.limit:g} s for {work.what()}, and all ranks have called it; the deadline "
        "passed. Raise timeout= if the devices are only slow."
    )
