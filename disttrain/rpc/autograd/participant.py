"""One worker's part in one backward pass.

A part has a walk over this worker's graph. Gradients come in packets, from any thread; whoever
brings some runs the walk, unless another thread is at it. When the walk is idle, what it made for
others goes out: as the answer to a packet that waits for one, else in a packet of its own. The part
is done when every message of its own that the pass goes back over has had its gradients.

    thread that called backward, or handles a packet      ``drive``: run, ask the last worker that
                                                          there is something for, go on with its
                                                          answer; else wait
    all others                                            ``receive``, which never waits

So a pass over a call and its answer takes one message each way. The worker that called ``backward``
knows from the plan whose parts it waits for; every worker says once when its own is done.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import Any

from ... import context as waiting
from ...core.backward.sink import accumulate, store_grad
from ...core.node import AccumulateGrad
from ...core.tensor import Tensor, wrap
from ...errors import AutogradError, CommError
from ...futures import Future
from ..calls import kinds
from ..calls.agent import Agent
from ..calls.locks import one_at_a_time
from .contexts import ANSWER, WORKER_SHIFT, DistAutogradContext, Gradient
from .nodes import RecvRpcBackward, SendRpcBackward
from .packets import FAST, KEEP, RECORD, Answer, Failure, Packet, failure_of, to_raise
from .rider import within
from .walk import FedWalk

_IN_HOOKS = (ANSWER - 1,)  # the path of calls that hooks make
_LENDING = "rpc.autograd.lending"
_TO_WITHDRAW = 10.0  # seconds, for workers to answer that they have heard of a failure


class Part:
    """``number``: of the pass. ``origin``: the worker that called ``backward``."""

    def __init__(
        self, agent: Agent, context: DistAutogradContext, number: int, origin: int, flags: int
    ) -> None:
        self.agent, self.context, self.number, self.origin = agent, context, number, origin
        self.flags = flags
        self.me = agent.me.id
        self.tensors = bool(flags & RECORD)  # gradients go through the walk as Tensors
        self.roots: list[tuple[Any, Any]] = []  # nodes and their gradients
        self.plan: bytes | None = None
        self.others: set[int] = set()  # workers in the plan that are not done
        self.told: set[int] = set()  # workers that have the plan from here
        self.walk: FedWalk | None = None
        self.expected: dict[int, SendRpcBackward] = {}
        self.inbox: list[tuple[int, Any]] = []
        self.outbox: dict[int, list] = {}
        self.slots: dict[int, list[_Slot]] = {}
        self.fresh: list[Gradient] = []  # to be added to the context's, at the end
        self.replaced: dict[Tensor, Tensor] = {}  # to take the place of the context's
        self.running = self.begun = self.done = self.over = False
        self.failure: Failure | None = None
        self.cause: BaseException | None = None
        self.settled = threading.Event()
        self.lock = threading.Lock()

    # --- what comes in --------------------------------------------------------------------------

    def start(self, plan: bytes) -> None:
        """Learn which messages the pass goes back over."""
        with self.lock:
            if self.plan is None:
                self.others = {m >> WORKER_SHIFT for m in _numbers(plan)} - {self.me}
                self.plan = plan

    def receive(self, peer: int, packet: Packet | Answer) -> None:
        """Take what ``peer`` says, without running anything."""
        with self.lock:
            self.inbox += packet.items
            if packet.done:
                self.others.discard(peer)
        self._settle()
        if packet.failure is not None:
            self.give_up(packet.failure, None)

    # --- running --------------------------------------------------------------------------------

    def advance(self, driver: _Slot | bool | None = None) -> tuple[int, Packet] | None:
        """Run what can be run. For a ``driver``: the packet to wait for the answer of."""
        with self.lock:
            if self.running or self.over or self.plan is None:
                return None
            self.running = True
        last = None
        try:
            while True:
                with self.lock:
                    items, self.inbox = self.inbox, []
                    if self.over or (self.begun and not items):
                        self.running = False
                        break
                if last is not None:  # something came meanwhile: no time to wait for an answer
                    self._tell(*last)
                self._step(items)
                last = self._send(driver)
                self._settle()
        except BaseException as error:
            self.fail(error)
            with self.lock:
                self.running = False
            if not isinstance(error, Exception):
                raise
        if self.failure is not None:
            self._abandon()
            return None
        return last

    def _step(self, items: list[tuple[int, Any]]) -> None:
        if not self.begun:
            self._begin()
        walk = self.walk
        if walk is None:  # nothing is expected any more
            assert not items
            return
        for message, gradients in items:
            send = self.expected.pop(message, None)
            if send is None:
                raise AutogradError(
                    f"backward: gradients came for message {message}, which this pass does not "
                    "expect: it was changed, or released, since the pass began"
                )
            if gradients is not None and not self.tensors:
                gradients = [None if g is None else _array(g) for g in gradients]
            walk.feed_send(send, gradients)
        with within(self.context, _IN_HOOKS):
            walk.advance()

    def _begin(self) -> None:
        """Count what will come, and feed the roots."""
        context, mine = self.context, {}
        for m in _numbers(self.plan or b""):
            if m >> WORKER_SHIFT == self.me:
                send = context.sends.get(m)
                if send is None:
                    raise AutogradError(
                        f"backward: message {m} is not known in context {context.number}: it left "
                        "this worker in a context that is over"
                    )
                mine[m] = send
        if self.flags & FAST and len(mine) != len(context.sends):
            raise _unused(len(context.sends) - len(mine))
        self.expected = mine
        self.walk = FedWalk(
            [root for root, _ in self.roots],
            list(mine.values()),
            self._sink,
            self._post,
            keep=bool(self.flags & KEEP),
            tensors=self.tensors,
            record=bool(self.flags & RECORD),
        )
        self.walk.home = self
        for root, g in self.roots:
            self.walk.feed(root, g)
        self.roots = []
        self.begun = True

    def _post(self, recv: RecvRpcBackward, gradients: tuple | None) -> None:
        if gradients is not None and not self.tensors:
            gradients = tuple([None if g is None else wrap(g) for g in gradients])
        if recv.peer == self.me:
            with self.lock:
                self.inbox.append((recv.message, gradients))
            return
        self.outbox.setdefault(recv.peer, []).append((recv.message, gradients))
        if self.walk is not None and self.walk.busy:  # let the others begin
            for peer in list(self.outbox):
                self._tell(peer, self._packet(peer))

    def _sink(self, acc: AccumulateGrad, g: Any, own: bool) -> None:
        leaf = acc.leaf
        if leaf is None or leaf._node is None:
            return
        if acc.store is not None:  # it asks for the walk's home
            accumulate(acc, g, own)
        elif acc.accumulate_hooks:
            self._through_grad(acc, leaf, g, own)
        else:
            fresh = Gradient(leaf)
            store_grad(fresh, g, own)
            self.fresh.append(fresh)

    def _through_grad(self, acc: AccumulateGrad, leaf: Tensor, g: Any, own: bool) -> None:
        """Let hooks that look at ``.grad`` find the context's gradient there."""
        with one_at_a_time(_LENDING, "hooks of a leaf, in another context"):
            before, leaf._grad = leaf._grad, self.get(leaf)
            try:
                accumulate(acc, g, own)
                if leaf._grad is not None:
                    self.put(leaf, leaf._grad)
            finally:
                leaf._grad = before

    def get(self, leaf: Tensor) -> Tensor | None:
        """The gradient of ``leaf`` in the context, with what this pass has put there. It may be
        written to: the context's own stays as it is until the pass ends here."""
        found = self.replaced.get(leaf)
        if found is None:
            found = self.context.get(leaf)
            if found is not None and found._node is None:
                found = found.clone()
        return found

    def put(self, leaf: Tensor, grad: Tensor) -> None:
        """Let ``grad`` be the gradient of ``leaf`` in the context when the pass ends here."""
        self.replaced[leaf] = grad

    # --- the end --------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self.me == self.origin and self.done and not self.others:
            self._close()

    def _close(self) -> None:
        with self.lock:
            if self.over:
                return
            self.over = True
        self.context.parts.pop(self.number, None)
        self._answer_all(Answer())
        self.settled.set()

    def _finish(self) -> None:
        """Everything here has run."""
        assert self.walk is not None
        self.walk.finish()
        self.context.add(self.number, self.fresh, self.replaced, self.tensors)
        self.walk, self.fresh, self.replaced = None, [], {}  # (it knows this part)
        self.done = True

    def fail(self, error: BaseException) -> None:
        """Something raised here: the pass is over, everywhere."""
        self.give_up(failure_of(error, self.me, self.agent.me.name), error)

    def give_up(self, failure: Failure, cause: BaseException | None) -> None:
        with self.lock:
            if self.over:
                return
            self.over = True
            self.failure, self.cause = failure, cause
            running = self.running
        self.context.parts.pop(self.number, None)
        self.context.withdraw(self.number)
        self._answer_all(Answer(failure=failure))
        packet = self._news_of(failure)
        for peer in list(self.others) if self.me == self.origin else [self.origin]:
            try:
                self.agent.tell(peer, kinds.GRADIENTS, packet)
            except CommError:  # it is gone
                pass
        if not running:
            self._abandon()
        self.settled.set()

    def _news_of(self, failure: Failure) -> tuple:
        number = self.context.number
        return tuple(Packet(number, self.number, self.origin, self.flags, failure=failure))

    def _withdraw(self, failure: Failure) -> None:
        """Let no worker keep gradients of this pass, those that were done with it neither."""
        workers = {m >> WORKER_SHIFT for m in _numbers(self.plan or b"")} - {self.me}
        told = []
        news = self._news_of(failure)
        what = "the end of a backward pass that failed"
        for peer in sorted(workers):
            try:
                told.append(self.agent.report(peer, kinds.GRADIENTS, news, _TO_WITHDRAW, what))
            except CommError:  # it is gone
                continue
        for future in told:
            try:
                future.wait()
            except CommError:
                continue

    def _abandon(self) -> None:
        with self.lock:
            walk, self.walk = self.walk, None
        if walk is not None:
            walk.abandon()

    def lost(self, worker: int, error: BaseException) -> None:
        """``worker`` is gone."""
        if worker in self.others or worker == self.origin:
            self.fail(error)

    # --- what goes out --------------------------------------------------------------------------

    def _send(self, driver: _Slot | bool | None) -> tuple[int, Packet] | None:
        """The walk is idle: send what it made. A driver is left one packet, to ask with it."""
        with self.lock:
            more = bool(self.inbox)
        ends = not self.expected and not more and not self.done
        if ends:
            self._finish()
        last = None
        peers = list(self.outbox)
        if ends and self.origin != self.me and self.origin not in peers:
            peers.append(self.origin)
        for peer in peers:
            done = ends and peer == self.origin
            slot = self._slot(peer, driver)
            if slot is not None:
                slot.future.set_result((self.outbox.pop(peer, ()), done))
                continue
            if last is not None:
                self._tell(*last)
            last = peer, self._packet(peer, done)
        answered = driver.__class__ is _Slot and driver.future.done()  # goes out when it returns
        ends_here = self.done and self.me != self.origin
        if last is not None and (driver is None or answered or ends_here):
            self._tell(*last)
            last = None
        if ends and self.me != self.origin:
            with self.lock:
                self.over = True
            self.context.parts.pop(self.number, None)
            self._answer_all(Answer())
            self.settled.set()
        return last

    def _slot(self, peer: int, driver: _Slot | bool | None) -> _Slot | None:
        """A packet of ``peer`` that can be answered now."""
        with self.lock:
            waiting_ = self.slots.get(peer, [])
            for i, slot in enumerate(waiting_):
                if slot is driver or not slot.held:
                    return waiting_.pop(i)
        return None

    def _answer_all(self, answer: Answer) -> None:
        with self.lock:
            slots = [slot for them in self.slots.values() for slot in them]
            self.slots.clear()
        for slot in slots:
            slot.future.set_result(tuple(answer))

    def _packet(self, peer: int, done: bool = False) -> Packet:
        plan = None
        if peer not in self.told:
            self.told.add(peer)
            plan = self.plan
            self.context.workers.add(peer)
        items = self.outbox.pop(peer, ())
        return Packet(self.context.number, self.number, self.origin, self.flags, plan, items, done)

    def _tell(self, peer: int, packet: Packet) -> None:
        if self.flags & RECORD and packet.items:  # gradients have a place in the graph, too
            with within(self.context, _IN_HOOKS):
                self.agent.call(peer, kinds.GRADIENTS, tuple(packet), 0)
        else:
            self.agent.tell(peer, kinds.GRADIENTS, tuple(packet))

    def _ask(self, peer: int, packet: Packet) -> None:
        with within(self.context if self.flags & RECORD else None, _IN_HOOKS):
            answer = self.agent.ask(
                peer, kinds.GRADIENTS, (*packet[:-1], True), waiting.DEFAULT_TIMEOUT
            )
        self.receive(peer, Answer(*answer))

    # --- who waits ------------------------------------------------------------------------------

    def drive(self, slot: _Slot | None = None) -> None:
        """Run until ``slot`` is answered (None: until the pass is over), or nothing can be done
        here for it but wait for others' packets."""
        try:
            last = self.advance(True if slot is None else slot)
            while last is not None:
                self._ask(*last)
                last = self.advance(True if slot is None else slot)
        except Exception as error:
            self.fail(error)
        if slot is not None:
            with self.lock:
                slot.held = False
            return
        waiting.wait_until(self.settled.is_set, self._what, waiting.DEFAULT_TIMEOUT, self._block)
        if self.failure is not None:
            self._withdraw(self.failure)
            if not self.plan and self.cause is not None:  # no other worker had a part in it
                raise self.cause
            raise to_raise(self.failure, self.context.number) from self.cause

    def _block(self, seconds: float) -> None:
        self.settled.wait(seconds)

    def _what(self) -> str:
        who = ", ".join(self.agent.worker(w).name for w in sorted(self.others))
        return f"the backward pass of context {self.context.number} on {who}"


class _Slot:
    """A packet that waits for an answer. ``held``: its handler is still at work, so that an answer
    would not go out yet."""

    __slots__ = ("future", "held")

    def __init__(self) -> None:
        self.future: Future = Future()
        self.held = True


def _numbers(plan: bytes) -> array:
    numbers = array("Q")
    numbers.frombytes(plan)
    return numbers


def plan_of(messages: Sequence[int]) -> bytes:
    return array("Q", sorted(messages)).tobytes()


def _array(g: Any) -> Any:
    return g.array


def _unused(count: int) -> AutogradError:
    return AutogradError(
        f"backward: mode='fast' supposes that the result of every call is used by the roots, and "
        f"{count} messages of this context on this worker lead to none of them; use mode='smart', "
        "which finds out"
    )
