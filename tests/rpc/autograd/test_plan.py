"""Which messages a backward pass goes back over, and what says so on the wire: pure data."""

from __future__ import annotations

import random

import pytest

from disttrain.rpc.autograd.header import MOST_NUMBERS, NO_GRAD, Header, pack, unpack
from disttrain.rpc.autograd.plan import SENDER, Plan, closure


def message(sender: int, n: int) -> int:
    return sender << SENDER | n


def whole(graph: dict[int, list[int]], roots: list[int]) -> set[int]:
    found, stack = set(), list(roots)
    while stack:
        m = stack.pop()
        if m not in found:
            found.add(m)
            stack += graph[m]
    return found


def drive(plan: Plan, graph: dict[int, list[int]], knows: list[dict[int, list[int]]]) -> int:
    """Answer all that ``plan`` asks; the number of questions."""
    questions = 0
    while plan.own or plan.ask:
        while plan.own:
            plan.reached(graph[plan.own.pop()])
        for worker, them in plan.questions().items():
            questions += 1
            there = Plan(worker, knows[worker])
            there.reached(them)
            while there.own:
                there.reached(graph[there.own.pop()])
            rest = [m for some in there.questions().values() for m in some]
            plan.answered(there.found.difference(rest), rest)
    return questions


def test_a_plan_finds_what_the_roots_lead_to_and_nothing_else() -> None:
    for seed in range(300):
        assert_found(seed)


def assert_found(seed: int) -> None:
    rng = random.Random(seed)
    workers = rng.randint(2, 4)
    graph: dict[int, list[int]] = {}
    to: dict[int, int] = {}
    knows: list[dict[int, list[int]]] = [{} for _ in range(workers)]
    for n in range(1, rng.randint(2, 25)):
        sender, receiver = rng.randrange(workers), rng.randrange(workers)
        m = message(sender, n)
        received = [x for x in graph if to[x] == sender]
        graph[m] = rng.sample(received, rng.randint(0, min(3, len(received))))
        to[m] = receiver
        if rng.random() < 0.6:  # the receiver was told
            knows[receiver][m] = graph[m]
            knows[receiver].update(closure(graph[m], knows[sender].get, receiver, MOST_NUMBERS))
    me = rng.randrange(workers)
    mine = [m for m in graph if to[m] == me]
    roots = rng.sample(mine, rng.randint(0, len(mine)))
    plan = Plan(me, knows[me])
    plan.reached(roots)
    drive(plan, graph, knows)
    assert plan.found == whole(graph, roots)
    assert plan.workers() == {m >> SENDER for m in plan.found}


def test_nothing_is_asked_where_everything_was_told() -> None:
    request, back = message(0, 1), message(1, 1)
    inner, inner_back = message(1, 2), message(2, 1)
    graph = {request: [], inner: [request], inner_back: [inner], back: [inner_back, request]}
    known = {back: graph[back], **closure(graph[back], graph.get, 0, 100)}
    plan = Plan(0, known)
    plan.reached([back])
    assert plan.own == [request] and not plan.ask and plan.found == set(graph)
    less = Plan(0, {back: graph[back], inner_back: [inner]})
    less.reached([back])
    assert less.questions() == {1: [inner]}


def test_what_is_told_beside_has_a_limit() -> None:
    known = {message(2, n): tuple(message(2, n - i) for i in (1, 2)) for n in range(1, 100)}
    told = closure([message(2, 99)], known.get, 0, 40)
    assert len(told) == 10
    assert closure([message(0, 1)], {message(0, 1): (5,)}.get, 0, 40) == {}


@pytest.mark.parametrize(
    "header",
    [
        Header(1),
        Header((65535 << 48) + 5, message(3, 9), 0, (1, 2, 4294967295), (0, 7), (1, 2, 3)),
        Header(2, 3, NO_GRAD, (1,), (), None, {}, (8, 9)),
        Header(2, 3, 0, (), (0,), (), {4: (), 5: (6, 7)}),
        Header(2, 3, NO_GRAD, (9,) * 64, tuple(range(300)), tuple(range(500)), {1: (2,)}, (3,)),
    ],
)
def test_a_header_is_read_as_it_was_written(header: Header) -> None:
    assert unpack(pack(header)) == header
