"""Beginning a pass: what it goes back over, found by looking and asking; and what others ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import context as waiting
from ...context import thread
from ..calls import kinds
from ..calls.agent import Agent
from .contexts import Contexts, DistAutogradContext
from .nodes import RecvRpcBackward
from .packets import KEEP, RECORD
from .participant import Part, plan_of
from .plan import Plan
from .rider import within
from .walk import received_below


def run_pass(
    agent: Agent,
    contexts: Contexts,
    context: DistAutogradContext,
    roots: list[tuple[Any, Any]],
    flags: int,
    tensors: bool,
) -> None:
    """A pass from ``roots`` (nodes, each with its gradient), to its end. ``tensors``: gradients are
    Tensors, not arrays."""
    plan = _plan(agent, contexts, context, [node for node, _ in roots])
    part = Part(agent, context, contexts.next_pass(), agent.me.id, flags)
    part.tensors = tensors
    part.roots = roots
    context.parts[part.number] = part
    part.start(plan)
    part.drive()


def go_on(
    agent: Agent, contexts: Contexts, recv: RecvRpcBackward, g: object, tensors: bool
) -> None:
    """An ordinary backward pass has come to ``recv`` with the gradients ``g``: when it is through,
    let a pass of the context go on from there. (Gradients of this worker's leaves go to ``.grad``,
    those of others to the context.)"""
    walk = thread.walking
    left = walk.__dict__.get("left")
    if left is None:
        left = walk.left = {}
        walk.callbacks.append(lambda: _run_left(agent, contexts, left, walk.keep, tensors))
    left.setdefault(recv.context, []).extend(recv.places(g))


def _run_left(agent: Agent, contexts: Contexts, left: dict, keep: bool, tensors: bool) -> None:
    flags = KEEP * keep | RECORD * (tensors and thread.grad_enabled)
    for number, roots in left.items():
        run_pass(agent, contexts, contexts.find(number), roots, flags, tensors)


def _plan(
    agent: Agent, contexts: Contexts, context: DistAutogradContext, nodes: Sequence[Any]
) -> bytes:
    """The messages that a pass from ``nodes`` goes back over."""
    seen: set = set()
    found = received_below(nodes, seen)
    if not found:
        return b""
    plan = Plan(contexts.worker, context.known)
    plan.reached(node.message for node in found)
    explore(plan, context, seen)
    while plan.ask:
        questions = plan.questions()
        with within(None):
            asked = [
                agent.call(
                    worker, kinds.PREPARE, (context.number, them), waiting.DEFAULT_TIMEOUT,
                    f"the graph of context {context.number}",
                )
                for worker, them in questions.items()
            ]  # fmt: skip
        for future in asked:
            plan.answered(*future.wait())
        explore(plan, context, seen)
    return plan_of(list(plan.found))


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
