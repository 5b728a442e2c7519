"""Random legal programs of workers that call each other: trees that are data, and their values.

    plan = draw(seed)
    dist.simulate(lambda: follow(plan), plan.size, seed)

Every worker evaluates a tree of its own, all at once. A node says where and how a part of it is
evaluated: by a call, a future, a callback, threads. ``value`` says what comes out; ``follow``
compares. ``rpc_references`` adds remote references.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import disttrain as dt
from disttrain import context, rpc
from disttrain.futures import collect_all

Node = tuple

CALLS = ("sync", "async", "then", "collect", "fail", "tensor", "threads", "self")
LEAF, DEPTH = 0.25, 4


@dataclass(frozen=True)
class Plan:
    """``programs``: one tree for each of ``size`` workers."""

    seed: int
    size: int
    programs: tuple[Node, ...]


def draw(seed: int, verbs: tuple[str, ...] = CALLS, sizes=(2, 2, 3, 4)) -> Plan:
    """A plan, the same for the same ``seed``."""
    rng = random.Random(seed)
    size = rng.choice(sizes)
    budget = [rng.choice((3, 6, 12, 20))]
    programs = tuple(("sum", _trees(rng, size, verbs, budget, DEPTH)) for _ in range(size))
    return Plan(seed, size, programs)


def _trees(rng, size, verbs, budget, depth) -> tuple[Node, ...]:
    return tuple(_tree(rng, size, verbs, budget, depth) for _ in range(rng.choice((1, 1, 2, 3))))


def _tree(rng: random.Random, size: int, verbs: Any, budget: list[int], depth: int) -> Node:
    budget[0] -= 1
    number = float(rng.randrange(1, 100))
    if depth == 0 or budget[0] < 0 or rng.random() < LEAF:
        return "number", number
    verb = rng.choice(verbs)
    to, other = rng.randrange(size), rng.randrange(size)
    if verb in ("fail", "tensor", "proxy", "own", "dropped"):  # the last ones: ``rpc_references``
        return verb, to, other, rng.choice((1, 3, 5000)), number
    if verb in ("async", "collect", "threads"):
        return verb, to, _trees(rng, size, verbs, budget, depth - 1), rng.randrange(100)
    if verb == "passed":
        users = tuple(rng.randrange(size) for _ in range(rng.choice((1, 2, 3))))
        return verb, to, users, _tree(rng, size, verbs, budget, depth - 1)
    return verb, to, other, _tree(rng, size, verbs, budget, depth - 1)


# --- what comes out ------------------------------------------------------------------------------


def value(node: Node) -> float:
    """What the evaluation of ``node`` gives, wherever its parts are evaluated."""
    verb = node[0]
    if verb == "number":
        return node[1]
    if verb == "sum":
        return sum(map(value, node[1]))
    if verb == "fail":
        return 1.0
    if verb in ("tensor", "proxy"):
        return {"tensor": 3.0 * node[3], "proxy": 3.0}[verb] * node[4]
    if verb in ("own", "dropped"):
        return node[4]
    if verb in ("async", "collect", "threads"):
        return sum(map(value, node[2]))
    if verb == "passed":
        return value(node[3]) * (len(node[2]) + 1)
    return value(node[3]) * (2.0 if verb == "then" else 1.0)


# --- evaluating ----------------------------------------------------------------------------------


def perform(node: Node) -> float:
    """Evaluate ``node`` on this worker."""
    return PERFORM[node[0]](*node[1:])


def name(worker: int) -> str:
    return f"worker{worker}"


def _number(number: float) -> float:
    return number


def _sum(nodes: tuple[Node, ...]) -> float:
    return sum(map(perform, nodes))


def _sync(to: int, other: int, node: Node) -> float:
    return rpc.rpc_sync(name(to), perform, (node,))


def _self(to: int, other: int, node: Node) -> float:
    """By number, and to itself."""
    return rpc.rpc_sync(rpc.get_worker_info().id, perform, args=(node,), kwargs={})


def _async(to: int, nodes: tuple[Node, ...], order: int) -> float:
    futures = [rpc.rpc_async(name(to), perform, (node,)) for node in nodes]
    random.Random(order).shuffle(futures)
    return sum(future.wait() for future in futures)


def _collect(to: int, nodes: tuple[Node, ...], order: int) -> float:
    futures = [rpc.rpc_async(name(to), perform, (node,)) for node in nodes]
    return sum(future.value() for future in collect_all(futures).wait())


def _then(to: int, other: int, node: Node) -> float:
    """The callback calls, too, and leaves another one."""
    future = rpc.rpc_async(name(to), perform, (node,))
    doubled = future.then(lambda f: rpc.rpc_sync(name(other), _number, (2.0 * f.wait(),)))
    return doubled.then(lambda f: f.value()).wait()


def _fail(to: int, other: int, count: int, number: float) -> float:
    try:
        rpc.rpc_sync(name(to), _forward_failure, (other, number))
    except ZeroDivisionError as error:
        assert name(other) in str(error) and f"asked for {number}" in str(error), error
        return 1.0
    raise AssertionError("it should have failed")


def _forward_failure(to: int, number: float) -> None:
    rpc.rpc_sync(name(to), _raise, (number,))


def _raise(number: float) -> None:
    raise ZeroDivisionError(f"asked for {number}")


def _tensor(to: int, other: int, count: int, number: float) -> float:
    sent = dt.full((count,), number, dtype=dt.float64)
    came = rpc.rpc_sync(name(to), _scaled, (other, [sent], 3.0))
    sent.zero_()
    return float(came["all"][0].sum())


def _scaled(to: int, tensors: list, by: float) -> dict:
    future = rpc.rpc_async(name(to), dt.mul, (tensors[0], by))
    return {"all": (future.wait(),)}


def _threads(to: int, nodes: tuple[Node, ...], order: int) -> float:
    results: list[Any] = []

    def body(node: Node) -> None:
        try:
            results.append(perform(node))
        except BaseException as error:
            results.append(error)

    for node in nodes:
        context.start_thread(lambda node=node: body(node), "caller")
    until(lambda: len(results) == len(nodes), "the threads")
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return sum(results)


PERFORM: dict[str, Callable[..., float]] = {
    "number": _number,
    "sum": _sum,
    "sync": _sync,
    "self": _self,
    "async": _async,
    "collect": _collect,
    "then": _then,
    "fail": _fail,
    "tensor": _tensor,
    "threads": _threads,
}


# --- the workers ---------------------------------------------------------------------------------


def until(ready: Any, what: Any, timeout: float | None = None) -> None:
    context.wait_until(ready, what if callable(what) else lambda: what, timeout, _block)


def _block(seconds: float) -> None:
    """Simulated ranks ask for what they wait for when something has changed."""


def follow(plan: Plan) -> float:
    """A worker's whole life; its sum, which is right."""
    me = context.current().rank
    rpc.init_rpc(name(me))
    result = perform(plan.programs[me])
    assert result == value(plan.programs[me]), (plan.seed, me)
    rpc.shutdown()
    return result
