"""What a worker does for the backward passes and contexts of others.

``install(agent)`` before the agent begins to hear: the rider, the handlers, the answer to lost
peers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import context as waiting
from ...errors import CommError, PeerFailed
from ..calls import kinds
from ..calls.agent import Agent
from ..calls.workers import WorkerInfo
from .contexts import WORKER_SHIFT, Contexts, contexts_of
from .packets import Answer, Packet
from .participant import Part, _Slot
from .passes import go_on, look
from .rider import AutogradRider

_BETWEEN = 0.02  # seconds from the end of a context to a message of its own that says so, at most
_IDLE = 20  # so many times nothing had to be said: the thread ends


def install(agent: Agent) -> None:
    """Let ``agent`` carry distributed autograd."""
    contexts = contexts_of(agent)
    contexts.worker_of = agent.workers.by_id.get
    contexts.ask_about = partial(_ask_about, agent)
    contexts.go_on = partial(go_on, agent, contexts)
    agent.riders.append(AutogradRider(contexts, partial(_released, agent, contexts)))
    agent.drains.append(partial(_drain, agent, contexts))
    agent.handle(kinds.GRADIENTS, partial(_on_gradients, agent, contexts))
    agent.handle(kinds.PREPARE, partial(_on_prepare, contexts))
    agent.handle(kinds.RELEASE, partial(_on_release, agent, contexts))
    agent.when_lost.append(partial(_on_lost, agent, contexts))


def _on_gradients(agent: Agent, contexts: Contexts, caller: WorkerInfo, said: tuple) -> Any:
    packet = Packet(*said)
    context = contexts.meet(packet.context, caller.id)
    if context is None or packet.number in context.ended:
        return tuple(Answer())
    with context.lock:
        part = context.parts.get(packet.number)
        if part is None:
            if packet.failure is not None or packet.origin == agent.me.id:
                context.withdraw(packet.number)
                return tuple(Answer())
            part = Part(agent, context, packet.number, packet.origin, packet.flags)
            context.parts[packet.number] = part
    if packet.plan is not None:
        part.start(packet.plan)
    if not packet.asks:
        part.receive(caller.id, packet)
        part.advance()
        return None
    slot = _Slot()
    with part.lock:
        part.slots.setdefault(caller.id, []).append(slot)
    part.receive(caller.id, packet)
    part.drive(slot)
    return slot.future.value() if slot.future.done() else slot.future


def _on_prepare(contexts: Contexts, caller: WorkerInfo, asked: tuple[int, list[int]]) -> Any:
    number, messages = asked
    return look(contexts, contexts.find(number), messages)


# --- the end of contexts --------------------------------------------------------------------------


def release(agent: Agent, contexts: Contexts, number: int, but: int = -1) -> bool:
    """Forget context ``number`` here and on every worker that was called in it (``but`` one, who
    knows). Whether it was here."""
    context = contexts.take(number)
    if context is None:
        return False
    for part in list(context.parts.values()):
        part.fail(CommError(f"backward: context {number} was released while a pass was going on"))
    for worker in list(context.workers):
        if worker != but:
            _owe(agent, contexts, worker, number)
    return True


def _owe(agent: Agent, contexts: Contexts, worker: int, number: int) -> None:
    if contexts.owe(worker, number):
        agent.start_thread(partial(_sweep, agent, contexts), "release of contexts")


def _sweep(agent: Agent, contexts: Contexts) -> None:
    """Tell who was not called since that contexts are over; end when there is nothing to tell."""
    idle = 0
    while not agent.closed:
        waiting.sleep(_BETWEEN)
        idle = 0 if _tell_owed(agent, contexts) else idle + 1
        with contexts.lock:
            if idle >= _IDLE and not contexts.owed:
                contexts.sweeping = False
                return


def _drain(agent: Agent, contexts: Contexts, seconds: float | None) -> None:
    _tell_owed(agent, contexts)


def _tell_owed(agent: Agent, contexts: Contexts) -> bool:
    """Whether there was something to tell."""
    found = list(contexts.owed)
    for worker in found:
        numbers = contexts.take_owed(worker)
        try:
            agent.tell(worker, kinds.RELEASE, numbers)
        except PeerFailed:  # with all it had
            continue
        except CommError:  # again later
            for number in numbers:
                contexts.owe(worker, number)
    return bool(found)


def _released(agent: Agent, contexts: Contexts, number: int, peer: int) -> None:
    release(agent, contexts, number, peer)


def _on_release(agent: Agent, contexts: Contexts, caller: WorkerInfo, what: list | tuple) -> None:
    """A list: contexts that are over. A tuple: contexts that the caller has a part in, of which
    nobody may tell it when they are over."""
    for number in what:
        if what.__class__ is list:
            release(agent, contexts, number, caller.id)
            continue
        context = contexts.by_number.get(number)
        if context is not None:
            context.workers.add(caller.id)
        if context is None or context.released:
            _owe(agent, contexts, caller.id, number)


def _ask_about(agent: Agent, numbers: list[int]) -> None:
    """Ask who began the contexts ``numbers`` to tell this worker when they are over."""
    by_worker: dict[int, list[int]] = {}
    for number in numbers:
        by_worker.setdefault(number >> WORKER_SHIFT, []).append(number)
    for worker, them in by_worker.items():
        if worker != agent.me.id:
            try:
                agent.tell(worker, kinds.RELEASE, tuple(them))
            except CommError:  # it is gone, too, which is told by itself
                continue


def _on_lost(agent: Agent, contexts: Contexts, worker: WorkerInfo, error: BaseException) -> None:
    """Passes that need the worker fail; contexts that it began are over. It may have been the one
    to tell of the end of others."""
    with contexts.lock:
        contexts.lost[worker.id] = worker
    for context in list(contexts.by_number.values()):
        for part in list(context.parts.values()):
            part.lost(worker.id, error)
    contexts.take_owed(worker.id)
    rest = []
    for number in list(contexts.by_number):
        if number >> WORKER_SHIFT == worker.id:
            release(agent, contexts, number, worker.id)
        else:
            rest.append(number)
    _ask_about(agent, rest)
