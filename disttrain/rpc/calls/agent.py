"""One worker's part in calls: what it asks of others, and what others ask of it.

A request is packed (``packing``), goes out with what riders add (``header``), and its answer
completes a ``CallFuture``. Requests of others go to the handler of their kind, on a thread of the
endpoint. A handler may answer later, by a Future. Whatever a handler raises is raised at the
caller (``failures``).

    agent = current_agent()
    agent.handle(kinds.FETCH, fetch)                   # fetch(caller: WorkerInfo, obj) -> answer
    agent.ask("worker1", kinds.FETCH, 7)               # the answer
    agent.call("worker1", kinds.FETCH, 7).wait()       # the same, in two steps
    agent.tell("worker1", kinds.DELETED, 7)            # nobody answers
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, TypeVar

from ... import context
from ...core.tensor import Tensor, wrap
from ...errors import (
    CommError,
    MessageTooLarge,
    PeerFailed,
    RankGone,
    RemoteError,
    WaitTimeout,
    WorkerError,
)
from ...futures import Future
from ..messages.contract.endpoint import Endpoint
from ..messages.contract.message import Message
from . import kinds
from .answers import INFINITE, CallFuture
from .callbacks import Callbacks
from .deadlines import Deadlines
from .failures import not_initialized, pack_failure, unpack_failure
from .header import CARRIED, Carrier, Rider, carried_in, read_head, write_head
from .packing import Packer, arrays_of
from .report import counts
from .settings import Admission, Settings
from .workers import WorkerInfo, Workers

UNSET_TIMEOUT = -1.0
_STRANGER = "no-member:"
_log = logging.getLogger(__name__)

Handler = Callable[[WorkerInfo, Any], Any]
T = TypeVar("T")


class _Request:
    """A request that is being handled."""

    __slots__ = ("caller", "carried", "kind", "number", "riders")

    def __init__(self, caller: WorkerInfo, kind: int, number: int) -> None:
        self.caller, self.kind, self.number = caller, kind, number
        self.riders: list[tuple[Rider, int, bytes]] = []
        self.carried = b""


class _Local(threading.local):
    depth = 0  # how many calls the running handler is nested in, its own included


class Agent:
    """One worker's calls, from ``init_rpc`` to ``shutdown``.

    ``workers``: who there is. ``reducers``: how objects of a type travel, ``{type: reduce}``.
    ``riders``: what travels with calls (the same ones in the same order on every worker).
    ``carrier``: sees to the objects that messages carry. ``when_lost``: told ``(worker, error)`` of
    every peer that is gone. ``drains``: called with the seconds left when a graceful shutdown
    begins, to end what other parts have under way. ``at_close``: called when this worker leaves.
    ``slots``: what other parts keep with the agent.
    """

    def __init__(self, me: WorkerInfo, endpoint: Endpoint, settings: Settings) -> None:
        self.me, self.endpoint, self.settings = me, endpoint, settings
        self.place = context.current()
        self.workers = Workers(me)
        self.timeout = settings.timeout
        self.packer = Packer(settings.callable_modules, settings.cloudpickle)
        self.reducers = self.packer.reducers
        self.riders: list[Rider] = []
        self.carrier: Carrier | None = None
        self.at_close: list[Callable[[], None]] = []
        self.when_lost: list[Callable[[WorkerInfo, BaseException], None]] = []
        self.drains: list[Callable[[float | None], None]] = []
        self.slots: dict[str, Any] = {}
        self.in_flight: dict[int, CallFuture] = {}
        self.handling: set[_Request] = set()
        self.started = 0  # another number with every request, those of shutdown apart
        self._starts = itertools.count(1)
        self._admission = Admission(me.name, settings)
        self.closed = False
        self._handlers: dict[int, Handler] = {}
        # A peer may still answer a call of the worker that had this name before.
        self._numbers = itertools.count(1 + (context.drawn("calls", secrets.randbits(32)) << 24))
        self._local = _Local()
        self.callbacks = Callbacks(self.start_thread)
        self._deadlines = Deadlines(
            lambda: list(self.in_flight.values()), self.expire, self.start_thread
        )

    # --- asking ------------------------------------------------------------------------------

    def call(
        self,
        to: object,
        kind: int,
        obj: object,
        timeout: float = UNSET_TIMEOUT,
        what: object = None,
    ) -> CallFuture:
        """Ask worker ``to`` (a name, a number or a ``WorkerInfo``) for something of ``kind``.

        ``timeout`` in seconds (0: none; not given: ``Agent.timeout``), at which the future fails
        with ``WaitTimeout``. ``what``: a function or a text that says what was called, for
        messages. Raises at once: ``WorkerError`` where there is no such worker, ``PackError`` where
        ``obj`` cannot be pickled, ``MessageTooLarge``. A peer that is lost fails the future
        (``PeerFailed``), and so does what the handler there raises.
        """
        future, message = self._prepare(to, kind, obj, timeout, what)
        self._send(future, message)
        self._deadlines.note(future.deadline)
        return future

    def ask(
        self,
        to: object,
        kind: int,
        obj: object,
        timeout: float = UNSET_TIMEOUT,
        what: object = None,
    ) -> Any:
        """As ``call(...).wait()``, in less time: this thread unpacks the answer itself."""
        future, message = self._prepare(to, kind, obj, timeout, what)
        future.direct = True
        self._send(future, message)
        try:
            future._await(future.deadline)
        except BaseException:
            if self.in_flight.pop(future.number, None) is None:
                future.direct = False  # it has come just now, and nobody wants it
                self._drop(future)
            raise
        answer = future.answer
        if answer is None:
            return future.value()
        future.answer = None
        return self._open(future, answer)

    def report(self, to: object, kind: int, obj: object, timeout: float, what: str) -> CallFuture:
        """As ``call``, for what this worker does on its own account: riders do not come along, and
        it is nested in nothing."""
        future, message = self._prepare(to, kind, obj, timeout, what, True)
        self._send(future, message)
        self._deadlines.note(future.deadline)
        return future

    def tell(self, to: object, kind: int, obj: object) -> None:
        """Send what nobody answers. Riders do not come along. Raises as ``call``, and
        ``PeerFailed``."""
        worker = self._find(to)
        payload, tensors = self.packer.pack(obj)
        message = Message(kind, 0, False, b"", payload, arrays_of(tensors))
        self.started = next(self._starts)
        self.endpoint.send(worker.id, message)

    def worker(self, to: object) -> WorkerInfo:
        """The worker that is meant by a name, a number or a ``WorkerInfo``."""
        return self.workers.find(to)

    def _find(self, to: object) -> WorkerInfo:
        if self.closed:
            raise not_initialized()
        if to.__class__ is WorkerInfo and self.workers.by_id.get(to.id) is to:
            return to
        return self.workers.find(to)

    def _prepare(
        self, to: object, kind: int, obj: object, timeout: float, what: object, alone: bool = False
    ) -> tuple[CallFuture, Message]:
        worker = self._find(to)
        carried: list[Any] = []
        payload, tensors = self.packer.pack(obj, carried)
        depth, head, carries = self._local.depth, b"", b""
        if (depth or self.riders or carried) and not alone:
            head, tensors, carries = self._leave(worker.id, depth, tensors, carried)
        number = next(self._numbers)
        seconds = self.timeout if timeout == UNSET_TIMEOUT else timeout
        deadline = context.now() + seconds if seconds else INFINITE
        future = CallFuture(self, worker, number, kind if what is None else what, seconds, deadline)
        future.carried = carries
        arrays = arrays_of(tensors) if tensors else ()
        return future, Message(kind, number, False, head, payload, arrays)

    def _leave(
        self, peer: int, depth: int, tensors: list[Tensor], carried: list
    ) -> tuple[bytes, list[Tensor], bytes]:
        """The head of a request, its tensors, and what its carrier says in the head."""
        if depth >= self.settings.max_depth:
            raise CommError(
                f"rpc from {self.me.name}: calls are nested {depth} deep, each made while another "
                f"one is handled; at most {self.settings.max_depth} (max_depth). End the "
                "recursion, or raise the option on every worker"
            )
        said = []
        for place, rider in enumerate(self.riders):
            told_now = rider.leaving(peer, tensors, False)
            if told_now is not None:
                data, tensors = told_now
                said.append((place, data))
        carries = self._carries(peer, carried, said)
        return (write_head(depth, said) if depth or said else b""), tensors, carries

    def _carries(self, peer: int, carried: list, said: list[tuple[int, bytes]]) -> bytes:
        """Have the carrier say what ``carried`` is."""
        if not carried or self.carrier is None:
            return b""
        data = self.carrier.leaving(peer, carried)
        said.append((CARRIED, data))
        return data

    def _send(self, future: CallFuture, message: Message) -> None:
        self.in_flight[future.number] = future
        if message.kind != kinds.GATHER:
            self.started = next(self._starts)
        try:
            self.endpoint.send(future.worker.id, message, True)
        except PeerFailed as error:
            self._unsent(future.carried)
            self._fail(future, error)
        except BaseException:
            self._unsent(future.carried)
            self.in_flight.pop(future.number, None)
            raise

    def _unsent(self, carries: bytes) -> None:
        if carries and self.carrier is not None:
            self.carrier.unsent(carries)

    # --- answering questions of programs --------------------------------------------------

    def get_worker_info(self, worker: object = None) -> WorkerInfo:
        """The worker of that name or number (None: this one)."""
        return self.me if worker is None else self.workers.find(worker)

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers that this one knows, itself too, by their numbers."""
        return [self.workers.by_id[number] for number in sorted(self.workers.by_id)]

    def enable_gil_profiling(self, flag: bool) -> None:
        """Whether ``get_debug_info`` measures how long threads wait for the interpreter."""
        self.slots["gil_profiling"] = bool(flag)

    def get_debug_info(self) -> dict[str, str]:
        """Counts of what this worker has under way, as text."""
        answers_owed = [request.number for request in list(self.handling)]
        profiling = self.slots.get("gil_profiling", False)
        return counts(self.settings.threads, len(self.in_flight), answers_owed, profiling)

    # --- answers -----------------------------------------------------------------------------

    def _answered(self, peer: int, message: Message) -> None:
        """An answer has come. Late ones, and those of somebody else, are dropped."""
        future = self.in_flight.get(message.call)
        known = future is not None and future.worker.id == peer
        if not known or self.in_flight.pop(message.call, None) is None:
            self._arriving(peer, message, True)  # nobody waits for it any more
            return
        assert future is not None
        if future.direct:
            future.answer = message
            future._done = True
            if not future.direct:
                self._drop(future)
            return
        try:
            result = self._open(future, message)
        except BaseException as error:
            future._complete(None, error)
        else:
            future._complete(result, None)

    def _drop(self, future: CallFuture) -> None:
        """Let go of an answer that nobody opens."""
        with future._lock:
            message, future.answer = future.answer, None
        if message is not None:
            self._arriving(future.worker.id, message, True)

    def _arriving(self, peer: int, message: Message, answers: bool) -> list:
        """What a message carries."""
        if not message.head or self.carrier is None:
            return []
        data = carried_in(read_head(message.head, len(self.riders))[1])
        return self.carrier.arriving(peer, data, answers) if data else []

    def _open(self, future: CallFuture, message: Message) -> Any:
        """The result in an answer, or raises its exception."""
        if message.kind != kinds.DONE:
            raise unpack_failure(message.payload, self.packer)
        tensors, carried = [wrap(array) for array in message.arrays], []
        if message.head:
            carried = self._arriving(future.worker.id, message, True)
            for place, data in read_head(message.head, len(self.riders))[1]:
                if place != CARRIED:
                    tensors = self.riders[place].arriving(future.worker.id, data, tensors, True)
        return self.packer.unpack(message.payload, tensors, carried)

    def expire(self, future: CallFuture) -> None:
        """Fail a call whose time is over; its answer is dropped if it still comes."""
        self.endpoint.take(future.worker.id)  # it may have come, and nobody has waited for it
        if self.in_flight.pop(future.number, None) is None:
            return
        future._complete(
            None,
            WaitTimeout(
                f"RPC ran for more than set timeout ({future.seconds * 1000:g} ms) and will now be "
                f"marked with an error: {future.describe()} did not answer within "
                f"{future.seconds:g} s. Give the call a longer timeout=, or all calls by "
                "rpc_backend_options.rpc_timeout (0: no limit)"
            ),
        )

    def _fail(self, future: CallFuture, error: BaseException) -> None:
        """Fail a call whose worker is lost."""
        if self.in_flight.pop(future.number, None) is None:
            return
        if isinstance(error, PeerFailed):
            error = error.again(f"rpc: {future.describe()} will not answer")
        future._complete(None, error)

    # --- being asked -------------------------------------------------------------------------

    def handle(self, kind: int, handler: Handler) -> None:
        """``handler(caller, obj)`` answers requests of ``kind``: with a value or, later, by the
        Future that it returns. It may block, and call others."""
        assert self._handlers.setdefault(kind, handler) is handler, f"kind {kind} has a handler"

    def slot(self, name: str, make: Callable[[], T]) -> T:
        """What another part keeps with the agent under ``name``, made the first time."""
        if name not in self.slots:
            self.slots[name] = make()
        return self.slots[name]

    def serve(self) -> None:
        """Begin to hear."""
        self.endpoint.serve(self._on_message, self._on_lost)

    def _on_message(self, peer: int, message: Message) -> None:
        if message.answers:
            self._answered(peer, message)
        else:
            self._requested(peer, message)

    def _requested(self, peer: int, message: Message) -> None:
        caller = self.workers.by_id.get(peer) or self._stranger(peer)
        request = _Request(caller, message.kind, message.call)
        self.handling.add(request)
        local = self._local
        try:
            if len(self.handling) > self.settings.max_calls or self._admission.watches:
                self._admission.check(request, list(self.handling))
            if not message.head:
                local.depth = 1
                answer = self._run(request, message)
                if not isinstance(answer, Future):
                    self._reply(request, answer)
                    return
            else:
                depth, said = read_head(message.head, len(self.riders))
                request.carried = carried_in(said)
                local.depth = depth + 1
                with self._during(request, said):
                    answer = self._run(request, message)
                    if not isinstance(answer, Future):
                        self._reply(request, answer)
                        return
            answer._when_done(partial(self._reply_later, request, answer))
        except BaseException as error:
            self._refuse(request, error)
        finally:
            local.depth = 0

    def _stranger(self, peer: int) -> WorkerInfo:
        """A worker that knows the job's token, and is no member: yet, or any more."""
        return WorkerInfo(f"{_STRANGER}{peer}", peer)

    def _during(
        self, request: _Request, said: list[tuple[int, bytes]]
    ) -> AbstractContextManager[Any]:
        """Around the handler, and around the packing of its answer."""
        peer = request.caller.id
        request.riders = [(self.riders[place], place, data) for place, data in said]
        if len(said) == 1:
            ((rider, _, data),) = request.riders
            return rider.during(peer, data)
        stack = ExitStack()
        for rider, _, data in request.riders:
            stack.enter_context(rider.during(peer, data))
        return stack

    def _run(self, request: _Request, message: Message) -> Any:
        caller = request.caller
        if caller.id not in self.workers.by_id and message.kind != kinds.MEMBER:
            raise WorkerError(
                f"worker {self.me.name!r} does not know worker {caller.id}: it has left the group, "
                "so it can call nobody"
            )
        carried: list[Any] = []
        if request.carried and self.carrier is not None:
            carried = self.carrier.arriving(caller.id, request.carried, False)
        handler = self._handlers.get(message.kind)
        if handler is None:
            raise CommError(
                f"worker {self.me.name!r} has no handler for requests of kind {message.kind}: its "
                "program has not loaded what handles them, or runs another version"
            )
        tensors = [wrap(array) for array in message.arrays]
        for rider, _, data in request.riders:
            tensors = rider.arriving(request.caller.id, data, tensors, False)
        obj = self.packer.unpack(message.payload, tensors, carried)
        if carried and self.carrier is not None:
            self.carrier.ready(carried)
            del carried
        return handler(caller, obj)

    def _reply_later(self, request: _Request, answer: Future) -> None:
        """The Future that a handler has returned is done."""
        try:
            with self._during(request, [(place, data) for _, place, data in request.riders]):
                self._reply(request, answer.value())
        except BaseException as error:
            self._refuse(request, error)

    def _reply(self, request: _Request, answer: object) -> None:
        if not request.number:
            self.handling.discard(request)
            return
        carried: list[Any] = []
        payload, tensors = self.packer.pack(answer, carried)
        said = []
        for rider, place, _ in request.riders:
            told_now = rider.leaving(request.caller.id, tensors, True)
            if told_now is not None:
                data, tensors = told_now
                said.append((place, data))
        carries = self._carries(request.caller.id, carried, said)
        head = write_head(0, said) if said else b""
        arrays = arrays_of(tensors) if tensors else ()
        try:
            self._answer(request, Message(kinds.DONE, request.number, True, head, payload, arrays))
        except BaseException:
            self._unsent(carries)
            raise

    def _refuse(self, request: _Request, error: BaseException) -> None:
        if isinstance(error, RankGone):
            raise error
        if not request.number:
            _log.error("a message of %s could not be handled", request.caller, exc_info=error)
            self.handling.discard(request)
            return
        payload = pack_failure(self.me, error)
        try:
            self._answer(request, Message(kinds.FAILED, request.number, True, b"", payload))
        except MessageTooLarge as larger:
            text = f"On {self.me}: {type(error).__name__}, whose text is too long to send: {larger}"
            payload = pack_failure(self.me, RemoteError(text))
            self._answer(request, Message(kinds.FAILED, request.number, True, b"", payload))

    def _answer(self, request: _Request, message: Message) -> None:
        try:
            self.endpoint.send(request.caller.id, message)
        except PeerFailed:  # nobody waits for it any more
            pass
        except CommError:
            if not self.closed:
                raise
        self.handling.discard(request)

    # --- threads, peers, the end -------------------------------------------------------------

    def start_thread(self, body: Callable[[], None], name: str) -> None:
        """Run ``body`` beside, on a thread of this worker's rank."""
        with context.attach(self.place):
            context.start_thread(body, name)

    def _on_lost(self, peer: int, error: BaseException) -> None:
        worker = self.workers.by_id.get(peer)
        for future in list(self.in_flight.values()):
            if future.worker.id == peer:
                self._fail(future, error)
        if worker is not None:
            for tell in list(self.when_lost):
                tell(worker, error)

    def close(self) -> None:
        """Leave: calls in flight fail, nothing is heard any more, and nothing is left behind."""
        if self.closed:
            return
        self.closed = True
        self._deadlines.close()
        for leave in self.at_close:
            leave()
        for future in list(self.in_flight.values()):
            self._fail(future, CommError(f"rpc: {future.describe()}: RPC was shut down here"))
        self.callbacks.close()
        self.endpoint.close()
