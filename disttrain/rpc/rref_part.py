"""One worker's part in the RRef protocol: performs ``rref_protocol`` over the worker's agent.

Requests to make a value and to fetch one, batches between workers, and the forks that travel with
calls. Programs hold handles: ``UserHandle`` for what another worker owns, ``OwnerHandle`` for what
this one does; ``rref.RRef`` is around one of them.

The lock is held while the protocol takes an event, never while something is sent, made or freed.
A handle may end anywhere, on any thread, inside the garbage collector: it only notes its end, on a
deque, and rings a bell whose ``put`` may interrupt itself. Who comes next takes the notes; a thread
of its own comes soon. That nobody waits for (that an RRef is gone) travels with other news.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from .. import context
from ..comm.transports.sim.scheduler import SimWaiter
from ..errors import CommError, PeerFailed, RRefError, WaitTimeout
from ..futures import Future
from .calls import kinds
from .calls.agent import Agent
from .calls.current import current_agent
from .calls.functions import run_function
from .calls.kept_errors import again
from .calls.workers import WorkerInfo
from .rref_handles import Handle, OwnerHandle, UserHandle, Value, show
from .rref_protocol import BROKEN, PENDING, Batch, GloballyUniqueId, Name, Protocol, User

T = TypeVar("T")

SLOT = "rpc.rrefs"  # of an agent
_FORK = struct.Struct("<6q")  # a name and a fork of it
_ASK_AGAIN = 30.0  # seconds after which a batch that is not answered is sent again
_FOR_EVER = float("inf")
_DRAIN_SECONDS = 100.0
_AFTER_FAILURE = 0.05
_TICK = 12  # ids of workers that come and go begin with the time in about 4 microseconds
_SOON = 0.02  # seconds that news nobody waits for are late


class Part:
    """What one worker keeps for RRefs, from ``init_rpc`` to ``shutdown``."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.me = agent, agent.me
        self.protocol = Protocol(agent.me.id, Value)
        self._notes: deque = deque()  # users dropped, (then, future) of answers
        self._bell: SimpleQueue = SimpleQueue()  # True: come at once; False: soon
        self._rung = self._draining = self._drained = False
        self._lock = threading.Lock()
        self._own: dict[Name, Value] = {}  # asked of this worker by itself, not begun yet
        self._again: list[tuple[int, Batch]] = []
        self._losses: dict[int, BaseException] = {}
        self._watched = False
        agent.handle(kinds.REMOTE, self._make)
        agent.handle(kinds.FETCH, self._fetch)
        agent.handle(kinds.RREFS, self._hear)
        agent.when_lost.append(self._lose)
        agent.at_close.append(self._close)
        for kind in (OwnerHandle, UserHandle):
            agent.packer.kinds.add(kind)
        agent.carrier = self

    # --- what programs do --------------------------------------------------------------------

    def own(self, value: object) -> OwnerHandle:
        """A handle of a value of this worker's program."""
        made = Value()
        made.put(value)
        return OwnerHandle(self, self._do(self.protocol.new_name), made)

    def create(
        self, to: WorkerInfo | int | str, fn: Callable, args: tuple, kwargs: dict, timeout: float
    ) -> Handle:
        """Have worker ``to`` run ``fn`` and keep what it returns."""
        owner = self.agent.worker(to)
        if owner.id == self.me.id:
            return self._create_here(fn, args, kwargs, timeout)
        self._watch()
        user = self._do(lambda: self.protocol.create(owner.id))
        asked = (tuple(user.name), tuple(user.fork), fn, args, kwargs)
        try:
            future = self.agent.call(owner, kinds.REMOTE, asked, timeout, fn)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
            self._do(lambda: self.protocol.never_created(user, why))
            self._do(lambda: self.protocol.drop(user))
            raise
        future.at_once(partial(self._later, partial(self._created, user), False))
        return UserHandle(self, user, owner, future)

    def _create_here(self, fn: Callable, args: tuple, kwargs: dict, timeout: float) -> OwnerHandle:
        self._watch()
        name = self._do(self.protocol.new_name)
        value = self._own[name] = Value()
        asked = (tuple(name), None, fn, args, kwargs)
        try:
            future = self.agent.call(self.me, kinds.REMOTE, asked, timeout, fn)
        except BaseException:
            del self._own[name]
            raise
        future.at_once(partial(self._later, partial(self._created_here, name, value), True))
        return OwnerHandle(self, name, value, future)

    def fetch(self, handle: UserHandle, timeout: float) -> Any:
        """A copy of the value, which another worker owns."""
        self.check(handle, "Cannot call to_here() on it after deletion.")
        name = tuple(handle.user.name)
        return self.agent.ask(handle.owner, kinds.FETCH, name, timeout, "RRef.to_here")

    def check(self, handle: UserHandle, deleted: str) -> None:
        """Raise where ``handle`` cannot be used any more; ``deleted``: told if it was dropped."""
        user, creation = handle.user, handle.creation
        if user.dropped or self.agent.closed:
            raise RRefError(f"{show(user)} has been deleted. {deleted}")
        error = creation._error if creation is not None else None
        if isinstance(error, WaitTimeout):
            raise RRefError(
                "RRef creation via rpc.remote() timed out, and it is possible that the RRef on "
                f"the owner node does not exist. ({error})"
            )
        if error is not None:
            raise again(error)
        if user.state != BROKEN:
            return
        loss = self._losses.get(user.name.owner)
        if isinstance(loss, PeerFailed):
            raise loss.again(f"the owner of {show(user)}")
        raise RRefError(f"{show(user)} cannot be used: {user.why}")

    def info(self) -> dict[str, str]:
        """Counts, for debugging, under PyTorch's names."""
        self.take()
        with self._lock:
            forks = sum(len(e.holders) for e in self.protocol.entries.values())
            pending = sum(u.state == PENDING for u in self.protocol.users.values())
            owned = len(self.protocol.entries)
        return {
            "num_owner_rrefs": str(owned),
            "num_pending_futures": str(len(self.agent.in_flight)),
            "num_pending_users": str(pending),
            "num_forks": str(forks),
        }

    def leaks(self) -> list[Name]:
        """What others still have forks of."""
        self.take()
        return list(self.protocol.entries)

    # --- forks that travel with calls: what the agent asks of its carrier -----------------------

    def leaving(self, peer: int, handles: list[Handle]) -> bytes:
        """Forks of ``handles`` for worker ``peer``."""
        for handle in handles:
            if isinstance(handle, UserHandle):
                self.check(handle, "Cannot call fork an UserRRef after deletion.")
        return self._do(lambda: b"".join([self._fork(peer, handle) for handle in handles]))

    def _fork(self, peer: int, handle: Handle) -> bytes:
        if isinstance(handle, UserHandle):
            name, fork = handle.user.name, self.protocol.fork(handle.user, peer)
        else:
            name = handle.name
            fork = self.protocol.share(name, handle.value, peer)
        return _FORK.pack(*name, *fork)

    def unsent(self, data: bytes) -> None:
        """What ``leaving`` made went nowhere."""
        for name, fork in _forks(data):
            self._do(partial(self.protocol.unsent, name, fork))

    def arriving(self, peer: int, data: bytes, answers: bool) -> list[Handle]:
        """Handles of the forks that worker ``peer`` sends."""
        forks = _forks(data)
        with self._lock:
            handles = [self._arrived(peer, *both) for both in forks]
        self._watch()
        if answers:
            self._bell.put(True)  # another thread tells the owners
        else:
            self.take(lazily=True)
        return handles

    def _arrived(self, peer: int, name: Name, fork: GloballyUniqueId) -> Handle:
        if name.owner == self.me.id:
            entry = self.protocol.came_home(name, fork, peer)
            value = entry.value if entry is not None else self._gone()
            return OwnerHandle(self, name, value)
        user = self.protocol.arrived(name, fork, peer)
        owner = self.agent.workers.by_id.get(name.owner)
        return UserHandle(self, user, owner or WorkerInfo(f"worker-{name.owner}", name.owner))

    def ready(self, handles: list[Handle]) -> None:
        """Wait until the owners know of ``handles``, so that a function finds its RRefs alive."""
        for handle in handles:
            if isinstance(handle, UserHandle) and handle.user.state == PENDING:
                self._await(handle.user, handle.owner)

    def _await(self, user: User, owner: WorkerInfo) -> None:
        context.wait_until(
            lambda: user.state != PENDING,
            lambda: f"{owner} to hear of {show(user)}",
            None,
            self._reading(owner.id),
        )

    def _reading(self, peer: int) -> Callable[[float], None]:
        """How to wait for what follows from an answer of ``peer``."""
        read = self.agent.endpoint.waiting(peer)
        if isinstance(context.current().waiter, SimWaiter):
            return read

        def block(seconds: float) -> None:
            read(seconds)
            self.take()

        return block

    # --- what other workers ask --------------------------------------------------------------

    def _make(self, caller: WorkerInfo, asked: tuple) -> Any:
        """Run a function, and keep what it returns. What it raises, who fetches the value gets."""
        name, fork, fn, args, kwargs = asked
        value = self._requested(Name(*name), fork, caller)
        if value is None:
            return None
        try:
            result = run_function(fn, args, kwargs)
        except BaseException as error:
            value.put(None, error)
            return None
        if not isinstance(result, Future):
            value.put(result)
            return None
        done: Future = Future()
        result._when_done(lambda: self._made_later(value, result, done))
        return done

    def _requested(self, name: Name, fork: tuple | None, caller: WorkerInfo) -> Value | None:
        if fork is None:
            return self._own.pop(name, None)
        known = GloballyUniqueId(*fork)
        entry = self._do(lambda: self.protocol.requested(name, known, caller.id))
        return entry.value if entry is not None else None

    @staticmethod
    def _made_later(value: Value, result: Future, done: Future) -> None:
        value.put(result._result, result._error)
        done.set_result(None)

    def _fetch(self, caller: WorkerInfo, name: tuple) -> Future:
        entry = self._do(lambda: self.protocol.find(Name(*name)))
        return entry.value if entry is not None else self._gone()

    def _gone(self) -> Value:
        """In place of one that was let go, perhaps since those who kept it are lost."""
        lost = "".join(f"; {error}" for error in list(self._losses.values()))
        why = f"this RRef has no value any more: its owner {self.me} has let go of it{lost}"
        value = Value()
        value.put(None, RRefError(why))
        return value

    def _hear(self, caller: WorkerInfo, batch: tuple) -> tuple:
        return self._do(lambda: self.protocol.deliver(caller.id, _unwire(batch)))

    def met(self, worker: WorkerInfo, anew: bool = False) -> None:
        """``worker`` has joined. It may be this one, in the place of another one (``anew``)."""
        if anew:
            self._do(lambda: self.protocol.begin_at(time.time_ns() >> _TICK))
        self._losses.pop(worker.id, None)
        self._do(lambda: self.protocol.met(worker.id))

    def _lose(self, worker: WorkerInfo, error: BaseException) -> None:
        self._losses[worker.id] = error.again() if isinstance(error, PeerFailed) else error
        self._do(lambda: self.protocol.lost(worker.id))

    # --- the end -----------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> None:
        """Give up all forks of this worker, and wait until their owners know."""
        limit = _DRAIN_SECONDS if timeout is None else timeout

        def what() -> str:
            left = [show(user) for user in list(self.protocol.users.values())[:4]]
            return "the owners to let go of " + (", ".join(left) or "RRefs of this worker")

        self._watch()
        self._draining, self._drained = True, False
        try:
            self.take()
            context.wait_until(lambda: self._drained, what, limit)
        finally:
            self._draining = False

    def _close(self) -> None:
        self._bell.put(True)
        with self._lock:
            users, self.protocol.users = self.protocol.users, {}
            entries, self.protocol.entries = self.protocol.entries, {}
        for user in users.values():
            user.dropped, user.state, user.why = True, BROKEN, "RPC was shut down"
        why = f"the owner of this RRef, {self.me.name!r}, has shut RPC down"
        for entry in entries.values():
            if not entry.value.done():
                entry.value.put(None, RRefError(why))

    # --- performing --------------------------------------------------------------------------

    def note(self, what: User | tuple) -> None:
        """Leave ``what`` for who takes notes next. Neither waits nor locks."""
        self._notes.append(what)
        if not self._rung:
            self._rung = True
            self._bell.put(False)

    def _do(self, event: Callable[[], T]) -> T:
        """Have the protocol take an event, and do what follows from it."""
        with self._lock:
            result = event()
        self.take(lazily=True)
        return result

    def take(self, lazily: bool = False) -> None:
        """Take what was noted, and do what the protocol asks for; ``lazily``: what cannot wait,
        while the rest is done soon."""
        protocol, todo = self.protocol, True
        while todo:
            taken: list[Any] = []  # ends after the lock is free: what it keeps may be anything
            with self._lock:
                again, self._again = ([], self._again) if lazily else (self._again, [])
                self._take_notes(taken)
                batches = protocol.outgoing(lazily and not self._draining) + again
                failed, freed = protocol.failed, protocol.freed
                protocol.failed, protocol.freed = [], []
                if self._draining:
                    self._drained = protocol.idle()
            todo = bool(batches or failed or freed)
            for value, why in failed:
                value.put(None, RRefError(f"this RRef has no value: {why}"))
            for peer, batch in batches:
                self._send(peer, batch)
            del taken, failed, freed
        if lazily and protocol.waits and not self._rung:
            self._rung = True
            self._bell.put(False)

    def _take_notes(self, taken: list[Any]) -> None:
        notes, protocol = self._notes, self.protocol
        while notes:
            note = notes.popleft()
            taken.append(note)
            if isinstance(note, User):
                protocol.drop(note)
            else:
                then, future = note
                then(future)
        if self._draining:
            for user in list(protocol.users.values()):
                protocol.drop(user)

    def _send(self, peer: int, batch: Batch) -> None:
        try:
            future = self.agent.report(peer, kinds.RREFS, batch, _ASK_AGAIN, "RRef bookkeeping")
        except CommError:  # the peer is not there any more, or this worker is not
            if not self.agent.closed:
                self._do(lambda: self.protocol.lost(peer))
            return
        future.at_once(partial(self._later, partial(self._told, peer, batch), True))

    def _later(self, then: Callable[[Future], None], urgent: bool, future: Future) -> None:
        """``then(future)`` when notes are taken next: an answer has come, and who brings it must
        not wait. ``urgent``: somebody may wait for what follows."""
        self.note((then, future))
        if urgent:
            self._bell.put(True)

    def _told(self, peer: int, batch: Batch, future: Future) -> None:
        if future._error is None:
            self.protocol.answered(peer, batch.seq, future._result)
        elif isinstance(future._error, PeerFailed):
            self._losses.setdefault(peer, future._error.again())
            self.protocol.lost(peer)
        elif not self.agent.closed:  # too late, or refused: the same once more, soon
            self._again.append((peer, batch))
            self._bell.put(False)

    def _created(self, user: User, future: Future) -> None:
        error = future._error
        if error is None or isinstance(error, WaitTimeout):
            self.protocol.created(user)
        elif isinstance(error, PeerFailed):
            self._losses.setdefault(user.name.owner, error.again())
            self.protocol.lost(user.name.owner)
        else:
            self.protocol.never_created(user, f"{type(error).__name__}: {error}")

    def _created_here(self, name: Name, value: Value, future: Future) -> None:
        if future._error is not None and self._own.pop(name, None) is not None:
            value.put(None, future._error)

    def _watch(self) -> None:
        """See to it that notes are taken."""
        if self._watched:
            return
        with self._lock:
            if self._watched:
                return
            self._watched = True
        self.agent.start_thread(self._take_until_closed, "rpc rrefs")

    def _take_until_closed(self) -> None:
        bell, agent = self._bell, self.agent
        rung: list[bool] = []

        def block(seconds: float) -> None:
            try:
                rung.append(bell.get(timeout=seconds))
            except Empty:
                return

        def called() -> bool:
            return bool(rung) or agent.closed or not bell.empty()

        while not agent.closed:
            try:
                context.wait_until(called, lambda: "RRefs to end", _FOR_EVER, block)
                while not bell.empty():
                    rung.append(bell.get_nowait())
                if True not in rung:
                    context.sleep(_SOON)
            except PeerFailed:  # some rank has failed, which concerns those who wait for it
                context.sleep(_AFTER_FAILURE)
            rung.clear()
            self._rung = False
            self.take()


def _forks(data: bytes) -> list[tuple[Name, GloballyUniqueId]]:
    both = _FORK.iter_unpack(data)
    return [(Name(*of[:4]), GloballyUniqueId(*of[4:])) for of in both]


def _unwire(batch: tuple) -> Batch:
    return Batch(*batch)


def part_of(agent: Agent) -> Part:
    """The part of the worker whose agent this is."""
    return agent.slot(SLOT, lambda: Part(agent))


def _rref_context_get_debug_info() -> dict[str, str]:
    """Counts of RRefs on this worker, as text."""
    return part_of(current_agent()).info()


def _delete_all_user_and_unforked_owner_rrefs(timeout: float = _DRAIN_SECONDS) -> None:
    """Give up every RRef of this worker to others' values, and wait until the owners know."""
    part_of(current_agent()).drain(timeout)


def _destroy_rref_context(ignore_rref_leak: bool) -> None:
    """Raise where others still have RRefs to values of this worker, unless that is to be
    ignored."""
    part = part_of(current_agent())
    leaks = [] if ignore_rref_leak else part.leaks()
    if leaks:
        raise RRefError(
            f"Leaking RRef {leaks[0].rref_id}: other workers still refer to {len(leaks)} "
            f"value(s) of {part.me}. Let go of all RRefs before shutdown(), or set "
            "rpc.api._ignore_rref_leak"
        )
