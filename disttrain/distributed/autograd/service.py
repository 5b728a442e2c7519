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
from .contexts import WORKER_SHIFT, Contexts, DistAutogradContext, contexts_of
from .packets import Answer, Packet
from .part import Part, _Slot
from .plan import Plan
from .rider import AutogradRider
from .walk import received_below

_TRIES = 20  # to tell a worker that a context is over
_BETWEEN = 0.05  # seconds


def install(agent: Agent) -> None:
    """Let ``agent`` carry distributed autograd."""
    contexts = contexts_of(agent)
    agent.riders.append(AutogradRider(contexts))
    agent.handle(kinds.GRADIENTS, partial(_on_gradients, agent, contexts))
    agent.handle(kinds.PREPARE, partial(_on_prepare, contexts))
    agent.handle(kinds.RELEASE, partial(_on_release, agent, contexts))
    agent.when_lost.append(partial(_on_lost, agent, contexts))


def _on_gradients(agent: Agent, contexts: Contexts, caller: WorkerInfo, packet: Packet) -> Any:
    context = contexts.meet(packet.context)
    if context is None or packet.number in context.ended:
        return Answer()
    with context.lock:
        part = context.parts.get(packet.number)
        if part is None:
            if packet.failure is not None or packet.origin == agent.me.id:
                context.ended.add(packet.number)
                return Answer()
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
    return slot.future


def look(
    contexts: Contexts, context: DistAutogradContext, messages: list[int]
) -> tuple[list[int], list[int]]:
    """Where messages of this worker lead: those that were looked through, and those that somebody
    else has to look through."""
    plan = Plan(contexts.worker, context.known)
    plan.reached(messages)
    explore(plan, context, set())
    rest = [m for them in plan.questions().values() for m in them]
    return sorted(plan.found.difference(rest)), rest


def explore(plan: Plan, context: DistAutogradContext, seen: set) -> None:
    """Tell ``plan`` where this worker's own messages lead."""
    while plan.own:
        sends = [context.sends.get(m) for m in plan.own]
        plan.own.clear()
        found = received_below([send for send in sends if send is not None], seen)
        plan.reached(node.message for node in found or ())


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
    for worker in context.workers:
        if worker != but:
            _tell(agent, worker, number)
    return True


def _tell(agent: Agent, worker: int, number: int) -> None:
    try:
        agent.tell(worker, kinds.RELEASE, number)
    except PeerFailed:  # with all it had
        return
    except CommError:
        agent.start_thread(partial(_tell_again, agent, worker, number), "release of a context")


def _tell_again(agent: Agent, worker: int, number: int) -> None:
    for _ in range(_TRIES):
        if agent.closed:
            return
        waiting.sleep(_BETWEEN)
        try:
            agent.tell(worker, kinds.RELEASE, number)
            return
        except PeerFailed:
            return
        except CommError:
            continue


def _on_release(agent: Agent, contexts: Contexts, caller: WorkerInfo, number: int) -> None:
    release(agent, contexts, number, caller.id)


def _on_lost(agent: Agent, contexts: Contexts, worker: WorkerInfo, error: BaseException) -> None:
    """Passes that need the worker fail; contexts that it began are over."""
    for number, context in list(contexts.by_number.items()):
        for part in list(context.parts.values()):
            part.lost(worker.id, error)
        if number >> WORKER_SHIFT == worker.id:
            release(agent, contexts, number, worker.id)
