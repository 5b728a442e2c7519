"""What follows from who comes, fails and goes: by examples, and by made-up histories of many."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest

from disttrain_launcher.plan.membership import (
    ECHO,
    ENDED,
    FAILED,
    FINISHED,
    GATHERING,
    LEAVING,
    LOST_QUORUM,
    REFUSED,
    RUNNING,
    TIMED_OUT,
    Document,
    Node,
    Observer,
    Settings,
    conflict,
)


def node(name: str, state: str = "ready", ran: int = 0, **more) -> Node:
    return Node(f"{name}:1", more.pop("count", 2), state=state, ran=ran, **more)


def two(state: str = "running", ran: int = 1) -> dict[str, Node]:
    return {name: node(name, state, ran) for name in "ab"}


def formed(fewest=2, most=2, restarts=0) -> tuple[Observer, Document]:
    """A generation of a and b."""
    eye = Observer(Settings(fewest, most, restarts))
    document = eye.look(0.0, None, two("ready", 0))
    if document is None:  # more could come
        document = eye.look(31.0, None, two("ready", 0))
    assert (document.phase, document.number, document.members) == (RUNNING, 1, ("a", "b"))
    return eye, document


def failed(name: str, rank: int, echo: bool = False, at: float = 1.0) -> Node:
    report = {"rank": rank, "cause": "ValueError: no", "code": 3, "echo": echo, "at": at}
    return node(name, FAILED, 1, report=report)


def test_a_fixed_number_of_nodes_begins_when_all_have_come():
    eye = Observer(Settings(2, 2))
    assert eye.look(0.0, None, {"a": node("a")}) is None
    document = eye.look(0.1, None, {"b": node("b", count=1), "a": node("a")})
    assert [n["count"] for n in document.nodes] == [2, 1]
    assert Document.decode(document.encode()) == document


def test_a_range_of_nodes_begins_after_the_last_call():
    eye, nodes = Observer(Settings(1, 3, last_call=5.0)), {"a": node("a")}
    assert eye.look(10.0, None, nodes) is None
    assert eye.look(14.9, None, nodes | {"b": node("b")}) is None
    assert eye.look(15.0, None, nodes | {"b": node("b")}).members == ("a", "b")
    assert eye.look(12.0, None, two() | {"c": node("c")}) is None, "ranks still run"


def test_the_last_call_begins_anew_where_a_node_has_gone_again():
    eye, one = Observer(Settings(2, 3, last_call=5.0)), {"a": node("a")}
    eye.look(0.0, None, two("ready", 0))
    eye.look(4.0, None, one)
    assert eye.look(6.0, None, two("ready", 0)) is None
    assert eye.look(11.0, None, two("ready", 0)).number == 1


def test_order_is_given_or_kept_or_that_of_names():
    eye = Observer(Settings(3, 3))
    named = {"x": node("h10"), "y": node("h9"), "z": node("h1", order=1)}
    assert eye.look(0, None, named).members == ("z", "y", "x")
    first = named | {"x": node("h10", order=0)}
    assert eye.look(0, None, first).members == ("x", "z", "y")
    ranked = {i: dataclasses.replace(n, rank=r) for (i, n), r in zip(named.items(), (1, 2, 0))}
    assert eye.look(0, None, ranked).members == ("z", "x", "y")
    again = Document(3, phase=GATHERING, members=("y", "x"))
    assert eye.look(0, again, named).members == ("y", "x", "z")


def test_who_does_not_come_ends_the_job_for_all():
    eye = Observer(Settings(2, 4, join_timeout=7.0))
    assert eye.look(0.0, None, {"a": node("a")}) is None
    document = eye.look(7.0, None, {"a": node("a")})
    assert (document.phase, document.result["code"]) == (ENDED, TIMED_OUT)
    assert "1 of 2 nodes have come in 7 s (a:1)" in document.why
    assert eye.look(99.0, document, {}) is None


def test_a_node_that_does_not_stop_its_ranks_ends_the_job():
    eye, document = formed(1, 2)
    document = eye.look(1.0, document, two() | {"b": node("b", LEAVING, 1)})
    stuck = {"a": node("a", "running", 1)}
    assert document.phase == GATHERING and eye.look(2.0, document, stuck) is None
    assert eye.look(601.0, document, stuck) is None
    ended = eye.look(602.0, document, stuck)
    assert ended.result["code"] == TIMED_OUT and "a:1 has not stopped its ranks" in ended.why


def test_a_rank_that_fails_uses_a_restart_and_the_next_one_ends_the_job():
    eye, document = formed(restarts=1)
    nodes = two() | {"b": failed("b", 3)}
    document = eye.look(1.0, document, nodes)
    assert (document.phase, document.restart_count) == (GATHERING, 1)
    assert document.why == "rank 3 on node b:1 failed (ValueError: no); restart 1 of 1"
    assert eye.look(1.1, document, nodes) is None, "a still has ranks of before"
    document = eye.look(1.2, document, nodes | {"a": node("a", "ready", 1)})
    assert (document.phase, document.number) == (RUNNING, 2)
    late = {"a": node("a", "running", 2), "b": failed("b", 3)}
    assert eye.look(1.3, document, late) is None, "that was the generation before"
    again = {"a": node("a", "running", 2), "b": dataclasses.replace(failed("b", 3), ran=2)}
    document = eye.look(2.0, document, again)
    assert (document.phase, document.result["code"], document.result["node"]) == (ENDED, 3, "b:1")


def test_what_fails_at_once_again_and_again_waits_before_it_begins():
    eye, document = formed(restarts=9)
    waits, now = [], 0.0
    for used, ran in enumerate([0.2, 0.3, 0.2, 60.0], 1):
        bad = dataclasses.replace(failed("b", 3), ran=document.number)
        bad.report.update(seconds=ran, operations=0)
        alive = {"a": node("a", "ready", document.number), "b": bad}
        document = eye.look(now, document, alive)
        assert (document.phase, document.restart_count) == (GATHERING, used)
        waits.append(document.wait)
        assert eye.look(now, document, alive) is None or not document.wait
        assert not document.wait or eye.look(now + 0.9 * document.wait, document, alive) is None
        now += document.wait
        document = eye.look(now, document, alive)
        assert (document.phase, document.wait) == (RUNNING, 0.0)
    assert waits == [0.0, 1.0, 2.0, 0.0]
    assert document.vain == 0


def test_all_nodes_save_before_the_one_that_was_asked_to_end_has_left():
    eye, document = formed(1, 2)
    saves = {"cause": "was asked to end (SIGTERM)", "code": 143, "saves": True}
    nodes = two() | {"b": node("b", "running", 1, report=saves)}
    assert eye.look(1.0, document, nodes) is None
    nodes["a"] = failed("a", 0)
    assert eye.look(9.0, document, nodes) is None, "what its ranks end with is no failure"
    nodes["b"] = node("b", LEAVING, 1, report=saves)
    follows = eye.look(9.1, document, nodes | {"a": node("a", "running", 1)})
    assert (follows.phase, follows.saving, follows.restart_count) == (GATHERING, True, 0)
    follows = eye.look(9.1, document, nodes)
    assert follows.why == "node b:1 was asked to end (SIGTERM); the job goes on with 1 nodes"
    follows = eye.look(9.2, follows, nodes)
    assert (follows.phase, follows.members, follows.saving) == (RUNNING, ("a",), False)
    host = node("b", LEAVING, 1, order=0, report=saves)
    ended = eye.look(9.1, document, nodes | {"b": host})
    assert (ended.phase, ended.result["code"], ended.saving) == (ENDED, 143, True)
    lost = eye.look(9.3, document, {"a": two()["a"]})
    assert lost.why.startswith("node b:1 is lost") and not lost.saving


def test_an_echo_waits_for_who_can_say_what_happened():
    eye, document = formed(restarts=1)
    echo = two() | {"a": failed("a", 0, echo=True, at=0.5)}
    assert eye.look(1.0, document, echo) is None
    assert eye.look(1.5, document, echo | {"b": failed("b", 3)}).why.startswith("rank 3 on node b")
    lost = eye.look(1.6, document, {"a": echo["a"]})
    assert lost.phase == GATHERING and "waiting for nodes" in lost.why
    both = {"a": echo["a"], "b": failed("b", 2, echo=True)}
    assert eye.look(1.7, document, both).restart_count == 1
    assert eye.look(2.0, document, echo) is None
    late = eye.look(2.0 + eye.settings.ttl + ECHO + 0.1, document, echo)
    assert late.why.startswith("rank 0 on node a")


def test_a_lost_node_uses_no_restart_where_enough_are_left():
    eye, document = formed(1, 2)
    document = eye.look(1.0, document, {"a": node("a", "running", 1)})
    assert (document.phase, document.restart_count) == (GATHERING, 0)
    assert document.why == "node b:1 is lost; the job goes on with 1 nodes"
    document = eye.look(1.1, document, {"a": node("a", "ready", 1)})
    assert (document.number, document.members) == (2, ("a",))


def test_too_few_nodes_end_a_job_without_restarts():
    eye, document = formed()
    ended = eye.look(1.0, document, {"a": node("a", "running", 1)})
    assert (ended.phase, ended.result["code"]) == (ENDED, LOST_QUORUM)
    assert ended.why == "node b:1 is lost; 1 of at least 2 nodes (--nnodes) are left"
    asked = node("b", LEAVING, 1, report={"cause": "was asked to end (SIGTERM)", "code": 143})
    ended = eye.look(1.0, document, {"a": node("a", "running", 1), "b": asked})
    assert ended.result["code"] == 143 and "b:1 was asked to end" in ended.why


def test_who_comes_after_all_have_gone_begins_anew():
    """All were killed and start again, while the leases of before still hold."""
    eye, document = formed(2, 2, restarts=1)
    anew = eye.look(1.0, document, {"c": node("c")})
    assert (anew.phase, anew.number, anew.begins) == (GATHERING, 1, True)
    formed_again = eye.look(1.1, anew, {"c": node("c"), "d": node("d")})
    assert (formed_again.number, formed_again.members) == (2, ("c", "d"))


def test_all_generations_of_a_job_have_one_name_and_no_other_job_has_it():
    eye, first = formed(2, 3)
    assert first.job == "a"  # a node's id, which holds random letters
    again = eye.look(1.0, first, {**two(), "c": node("c")})
    second = eye.look(2.0, again, {**two("ready", 1), "c": node("c")})
    assert (second.number, second.job) == (2, "a")
    anew = eye.look(3.0, second, {"d": node("d")})  # a spare one, when all others are lost
    assert anew.begins and anew.job == "a"
    assert Document.decode(anew.encode()).job == "a"


def test_a_node_that_comes_begins_a_generation_unless_there_is_no_room():
    eye, document = formed(1, 3)
    more = two() | {"c": node("c")}
    joined = eye.look(1.0, document, more)
    assert (joined.phase, joined.why) == (GATHERING, "node c:1 joins")
    full, document = formed(1, 2)
    assert full.look(1.0, document, more) is None
    ending = two() | {"a": node("a", FINISHED, 1), "c": node("c")}
    assert eye.look(1.0, document, ending) is None, "a job that ends takes nobody"


def test_all_ranks_finish():
    eye, document = formed()
    assert eye.look(1.0, document, two() | {"a": node("a", FINISHED, 1)}) is None
    ended = eye.look(1.0, document, two(FINISHED))
    assert (ended.phase, ended.result["code"]) == (ENDED, 0)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ({"terms": {"version": "1"}}, {"terms": {"version": "2"}}, "differ in version: 1 and 2"),
        ({"terms": {"program": "x"}}, {}, "differ in program: x and nothing"),
        ({"rank": 1}, {"rank": 1}, "both have --node-rank 1"),
        ({"rank": 1}, {"rank": 0}, ""),
        ({}, {}, ""),
    ],
)
def test_nodes_that_cannot_be_one_job(one, other, text):
    nodes = {"a": node("a", **one), "b": node("b", **other)}
    said = conflict(nodes)
    assert (text in said and "node a:1 and node b:1" in said) if text else not said
    document = Observer(Settings(2, 2)).look(0.0, None, nodes)
    assert document.phase == (ENDED if text else RUNNING)
    assert not text or document.result["code"] == REFUSED


class World:
    """A registry and nodes that follow the rules, on one clock; things happen to them."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        few = self.chance.randint(1, 2)
        self.settings = Settings(few, few + self.chance.randint(0, 2), 2, 20.0, 1.0)
        self.document: Document | None = None
        self.nodes: dict[str, Node] = {}
        self.eyes: dict[str, Observer] = {}
        self.stepping: dict[str, int] = {}  # node -> generation whose ranks run there
        self.count = 0
        self.numbers: list[int] = []

    def come(self) -> None:
        name, self.count = f"n{self.count}", self.count + 1
        self.nodes[name] = node(name)
        self.eyes[name] = Observer(self.settings)

    def go(self, name: str) -> None:
        """Its ranks are gone before its lease ends."""
        self.stepping.pop(name, None)
        del self.nodes[name], self.eyes[name]

    def turn(self, name: str) -> None:
        """One look of a node, with what an agent does of it. Any pause may lie between two."""
        d, me = self.document, self.nodes[name]
        follows = self.eyes[name].look(self.now, d, self.nodes)
        if follows is not None:
            assert follows != d
            self.document = follows
            return
        if d is None:
            return
        if me.state == "running" and (d.phase != RUNNING or d.number != me.ran):
            self.stepping.pop(name, None)
            self.nodes[name] = dataclasses.replace(me, state="ready")
        elif d.phase == RUNNING and name in d.members and me.ran < d.number:
            if me.state != "running":
                self.nodes[name] = dataclasses.replace(me, state="running", ran=d.number)
        if d.phase == RUNNING and me.state == "running" and me.ran == d.number:
            self.stepping[name] = d.number  # the document was read again after it had said so

    def end_ranks(self, name: str, well: bool) -> None:
        report = {} if well else {"rank": 0, "cause": "x", "code": 1, "at": self.now}
        state = FINISHED if well else FAILED
        self.nodes[name] = dataclasses.replace(self.nodes[name], state=state, report=report)
        del self.stepping[name]

    def happen(self, chaos: float) -> None:
        self.now += self.chance.random() * 0.3
        if self.nodes:
            self.turn(self.chance.choice(list(self.nodes)))
        assert len(set(self.stepping.values())) <= 1, "two generations at once"
        if self.document is not None and self.document.phase == RUNNING:
            self.numbers.append(self.document.number)
        if self.chance.random() < chaos:
            what = self.chance.random()
            if what < 0.3 and len(self.nodes) < 5:
                self.come()
            elif what < 0.6 and self.nodes:
                self.go(self.chance.choice(list(self.nodes)))
            elif self.stepping:
                self.end_ranks(self.chance.choice(list(self.stepping)), what > 0.7)


@pytest.mark.parametrize("seeds", [range(150), range(150, 300)])
def test_whatever_happens_one_generation_steps_and_the_job_ends(seeds):
    ends = []
    for seed in seeds:
        world = World(seed)
        for _ in range(world.settings.max_nodes):
            world.come()
        for _ in range(200):
            world.happen(0.1)
        for _ in range(2000):
            if world.document is not None and world.document.phase == ENDED:
                break
            world.happen(0.0)
            if not world.nodes:
                break
            for name in list(world.stepping):
                if world.chance.random() < 0.05:
                    world.end_ranks(name, True)
        assert not world.nodes or world.document.phase == ENDED, (seed, world.document)
        assert world.numbers == sorted(world.numbers)
        ends.append(world.document and world.document.result.get("code"))
    assert {0, 1, TIMED_OUT} <= set(ends), "the histories are of many kinds"


def test_fields_of_another_version_are_passed_over():
    """So that what differs is told, and nobody ends in a traceback."""
    theirs = {**dataclasses.asdict(node("a")), "terms": {"version": "9.0"}, "colour": "blue"}
    mine = dataclasses.replace(node("b"), terms={"version": "1.0"})
    told = Node.decode(json.dumps(theirs).encode())
    assert told.terms == {"version": "9.0"} and "version" in conflict({"a": told, "b": mine})
    later = {**dataclasses.asdict(Document(number=3, members=("a",))), "mood": 1}
    assert Document.decode(json.dumps(later).encode()) == Document(number=3, members=("a",))


def lost_one(settings: Settings, **nodes: Node) -> Document | None:
    """What follows where b of a generation of a and b is lost, and these are there."""
    eye, document = formed()
    eye.settings = settings
    return eye.look(9.0, document, {"a": node("a", "running", 1), **nodes})


def test_a_node_that_waits_takes_the_place_of_a_lost_one():
    d = lost_one(Settings(2, 2), c=node("c", count=3), d=node("d"))
    assert d.phase == GATHERING and d.losses == 1
    assert d.why == "node b:1 is lost; node d:1 takes its place (node 1)"
    eye = Observer(Settings(2, 2))
    nodes = {"a": node("a", ran=1), "c": node("c", count=3), "d": node("d")}
    again = eye.look(9.0, d, nodes)
    assert again.members == ("a", "d")  # which has as many ranks
    nodes["a"] = dataclasses.replace(nodes["a"], name="z:1")
    assert Observer(Settings(2, 3)).look(9.0, d, nodes).members == ("a", "d", "c")


def test_the_first_place_is_taken_as_any_other():
    eye, document = formed()
    d = eye.look(9.0, document, {"b": node("b", "running", 1), "z": node("z")})
    d = eye.look(9.1, d, {"b": node("b", ran=1), "z": node("z")})
    assert d.members == ("z", "b") and d.number == 2


def test_a_spare_that_is_to_come_is_waited_for_so_often_as_there_are():
    alone = lost_one(Settings(2, 2, spares=1))
    assert alone.phase == GATHERING and "waiting for a spare (--spares): 1 of 2" in alone.why
    eye, document = formed()
    eye.settings = Settings(2, 2, spares=1)
    later = dataclasses.replace(document, losses=1)
    d = eye.look(9.0, later, {"a": node("a", "running", 1)})
    assert d.phase == ENDED and d.result["code"] == LOST_QUORUM


def test_with_enough_ranks_a_generation_goes_on_without_a_node():
    d = lost_one(Settings(2, 2, min_ranks=2))
    assert (d.phase, d.number, d.without, d.losses) == (RUNNING, 1, ("b",), 1)
    assert "the others go on without it (--min-ranks 2)" in d.why
    assert Document.decode(d.encode()) == d
    eye = Observer(Settings(2, 2, min_ranks=2))
    assert eye.look(9.0, d, {"a": node("a", "running", 1)}) is None
    ended = eye.look(9.1, d, {"a": node("a", FINISHED, 1)})
    assert ended.phase == ENDED and ended.result["code"] == 0
    few = {"a": node("a", "running", 1, stands={"lost": 1})}
    eye, document = formed()
    eye.settings = Settings(2, 2, min_ranks=2)
    assert eye.look(9.0, document, few).phase == ENDED


def test_a_node_that_is_about_to_leave_is_waited_for():
    going = node("b", "running", 1, report={"cause": "was asked to end (SIGTERM)", "leaving": True})
    assert lost_one(Settings(2, 2, min_ranks=2), b=going) is None
    gone = dataclasses.replace(going, state=LEAVING)
    d = lost_one(Settings(2, 2, min_ranks=2), b=gone)
    assert d.without == ("b",) and "was asked to end" in d.why


def test_a_node_that_waits_and_a_restart_that_is_left_go_before_going_on_with_fewer():
    assert lost_one(Settings(2, 2, min_ranks=2), c=node("c")).phase == GATHERING
    replaces = Settings(1, 2, restarts=1, min_ranks=2, replaces=True)
    assert lost_one(replaces).phase == GATHERING
    assert lost_one(dataclasses.replace(replaces, restarts=0)).without == ("b",)


def test_nobody_joins_and_nothing_is_timed_while_a_rank_is_in_the_debugger():
    eye, document = formed(1, 3)
    looked = node("a", "running", 1, stands={"debugged": "rank 0 is in the debugger"})
    assert eye.look(1.0, document, two() | {"a": looked, "c": node("c")}) is None
    after = eye.look(9.0, document, two() | {"b": failed("b", 1), "a": looked})
    assert after.phase == ENDED, "others' failures are known at once"
    gathering = dataclasses.replace(document, phase=GATHERING)
    for now in (10.0, 2000.0):
        assert eye.look(now, gathering, {"a": looked, "b": node("b", "ready", 1)}) is None
    left = {"a": node("a", "running", 1), "b": node("b", "ready", 1)}
    assert eye.look(2001.0, gathering, left) is None
    assert eye.look(2602.0, gathering, left).result["code"] == TIMED_OUT
