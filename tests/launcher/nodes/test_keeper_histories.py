"""Keepers and the agents' ends of their channels, through made-up histories.

Nodes come, are killed, cut off and stopped, ranks fail, and every call of the registry may lie
before or after anything that others do. Time is made up, too; the registry is a dictionary with
leases.
"""

from __future__ import annotations

import random

import pytest

from disttrain_launcher.node import orders
from disttrain_launcher.node.channel import Channel, pair
from disttrain_launcher.node.orders import Orders
from disttrain_launcher.nodes.keeper import DOCUMENT, Keeper
from disttrain_launcher.options.rendezvous import Rendezvous
from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.membership import (
    ENDED,
    FAILED,
    FINISHED,
    READY,
    WORKING,
    Document,
    Node,
)
from disttrain_launcher.registry import LeaseEnded, Registry, RegistryLost, Snapshot

TERM_GRACE = 0.5  # seconds that ranks may take to end when they are asked to
PAUSES = (0.3, 1.0, 1.9, 2.5, 4.0)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(orders, "say", lambda text: None)


class World:
    """What happens to all, on one clock."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now, self.depth, self.calm = random.Random(seed), 100.0, 0, False
        few = self.chance.randint(1, 3)
        self.most, self.restarts = few + self.chance.randint(0, 2), self.chance.choice([0, 1, 2, 5])
        self.rendezvous = Rendezvous(
            "etcd", "a", "a", 1, "job", few, self.most, join_timeout=30.0, last_call=1.0
        )
        self.entries: dict[str, bytes] = {}
        self.leases: dict[str, float] = {}
        self.nodes: dict[str, Played] = {}
        self.came, self.changes = 0, 0

    def come(self) -> None:
        name = f"n{self.came}"
        self.came += 1
        self.nodes[name] = Played(self, name)

    def turn(self, wait: float) -> None:
        """Time passes, and a node does something; inside of that, others may."""
        self.now += self.chance.random() * wait
        if self.nodes and self.depth < 4:
            self.depth += 1
            self.chance.choice(list(self.nodes.values())).act()
            self.depth -= 1
        self.check()

    def check(self) -> None:
        """Agents are in time where they are not stopped themselves; one generation steps."""
        for node in self.nodes.values():
            if node.stopped <= self.now and node.generation is not None:
                node.agent()
        steps = {n.generation.number for n in self.nodes.values() if n.steps}
        assert len(steps) <= 1, steps

    def happen(self) -> None:
        what, names = self.chance.random(), list(self.nodes)
        if what < 0.3 and len(names) < 6:
            self.come()
        elif names:
            node = self.nodes[self.chance.choice(names)]
            until = self.now + self.chance.choice(PAUSES)
            if what < 0.45:
                self.nodes.pop(node.name).close()
            elif what < 0.65:
                node.cut = until
            else:
                node.keeper_stopped = until
                node.stopped = until if what > 0.8 else node.stopped


class Leased(Registry):
    """One node's way to the dictionary."""

    ttl, patience, outlives_jobs, where = 2.0, 0.5, True, "memory"

    def __init__(self, world: World, node: Played) -> None:
        self.world, self.node, self.keys = world, node, set()

    def _moment(self) -> None:
        """Before and after every change."""
        world = self.world
        if not world.calm and world.chance.random() < 0.3:
            world.turn(0.2)
        if world.now < self.node.cut:
            raise RegistryLost("cut off")
        for key in [k for k, until in world.leases.items() if until <= world.now]:
            del world.leases[key], world.entries[key]
        world.changes += 1

    def put_leased(self, key: str, value: bytes) -> None:
        self._moment()
        self.world.entries[key] = value
        self.world.leases[key] = self.world.now + self.ttl
        self.keys.add(key)
        self._moment()

    def renew(self) -> None:
        self._moment()
        held = self.keys & self.world.leases.keys()
        self.world.leases.update(dict.fromkeys(held, self.world.now + self.ttl))
        if held != self.keys:
            self.keys.clear()
            raise LeaseEnded("ended")
        self._moment()

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        self._moment()
        same = self.world.entries.get(key) == expected
        if same:
            self.world.entries[key] = new
        self._moment()
        return same

    def read(self) -> Snapshot:
        self._moment()
        found = Snapshot(self.world.changes, dict(self.world.entries))
        self._moment()
        return found

    def delete(self, key: str) -> None:
        self._moment()
        self.world.entries.pop(key, None)
        self.world.leases.pop(key, None)
        self.keys.discard(key)

    def close(self) -> None:
        """Nothing to let go of."""


class Played:
    """A node: its keeper, and an agent that plays its ranks."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.ends = world, name, pair()
        self.cut = self.keeper_stopped = self.stopped = 0.0  # until when
        self.generation: Generation | None = None  # whose ranks are there
        self.plan, self.due, self.ending = "", 0.0, ""
        self.in_step = self.code = None
        r = world.rendezvous
        registry, channel = Leased(world, self), Channel(self.ends[0])
        node = Node(name, 1)
        self.keeper = Keeper(registry, node, r, world.restarts, channel, False, lambda: world.now)
        self.orders = Orders(Channel(self.ends[1]), r.fence, name)

    @property
    def steps(self) -> bool:
        return self.generation is not None and self.stopped <= self.world.now

    def close(self) -> None:
        for end in self.ends:
            end.close()

    def act(self) -> None:
        if self.keeper_stopped <= self.world.now and not self.in_step:
            self.in_step = True
            self.keeper.step()
            self.in_step = False
        if self.stopped <= self.world.now and self.name in self.world.nodes:
            self.agent()

    def agent(self) -> None:
        now, chance, o = self.world.now, self.world.chance, self.orders
        o.take()
        if self.generation is None:
            self._begin()
            return
        if o.lapses(now):
            self.ending, self.due = READY, now
        elif o.is_over and self.ending != READY:
            self.ending, self.due = READY, now + TERM_GRACE * chance.random()
        elif not self.ending and now >= self.due:
            self.ending = self.plan
            if self.plan == FAILED:
                self.due = now + 0.3 * chance.random()
                o.report(WORKING, {"rank": 0, "cause": "x", "traceback": ""})
        if self.ending and now >= self.due:
            self.generation = None
            told = {"fenced": True} if self.ending == READY and o.fenced else {}
            if self.ending == FAILED:
                told = {"rank": 0, "cause": "x", "code": 3, "echo": chance.random() < 0.3}
            o.report(self.ending, told)

    def _begin(self) -> None:
        world, chance = self.world, self.world.chance
        self.generation, self.ending = self.orders.begin(world.now), ""
        if self.generation is not None:
            fails = not world.calm and chance.random() < 0.15
            self.plan = FAILED if fails else FINISHED
            self.due = world.now + (5.0 if world.calm else chance.random() * 15)
        elif self.orders.end is not None:
            self.code = self.orders.end["code"]


def play(seed: int) -> World:
    world = World(seed)
    for _ in range(world.chance.randint(1, world.most)):
        world.come()
    for _ in range(400):
        world.turn(0.1)
        if world.chance.random() < 0.04:
            world.happen()
    world.calm, until = True, world.now + 200
    while any(node.code is None for node in world.nodes.values()):
        world.now += 0.02
        for node in list(world.nodes.values()):
            node.act()
            if node.code is not None:  # its dtrun ends, and takes its leave
                world.nodes.pop(node.name).close()
                for key in node.keeper.registry.keys:
                    world.entries.pop(key, None)
                    world.leases.pop(key, None)
        world.check()
        assert world.now < until, f"{seed}: the job does not end: {world.entries}"
    for node in world.nodes.values():
        node.close()
    return world


@pytest.mark.parametrize("seeds", [range(12), range(12, 24)])
def test_one_generation_steps_and_every_job_ends(seeds):
    ended = []
    for seed in seeds:
        world = play(seed)
        if DOCUMENT in world.entries:
            document = Document.decode(world.entries[DOCUMENT])
            assert document.restart_count <= world.restarts
            assert document.phase == ENDED or not world.nodes
            ended.append((document.result.get("code"), document.restart_count))
    assert (0, 0) in ended and len({count for _, count in ended}) > 1


@pytest.fixture
def channel():
    """The keeper's end, and the orders of an agent."""
    ours, its = pair()
    yield Channel(its), Orders(Channel(ours), 1.75, "a")
    ours.close()
    its.close()


def begun(keeper: Channel, o: Orders) -> None:
    keeper.send("alive", at=10.0)
    keeper.send("generation", fields=Generation((1,)).to_json(), why="")
    o.take()


def test_a_generation_that_is_over_before_it_has_begun_is_reported(channel):
    keeper, o = channel
    begun(keeper, o)
    keeper.send("stop", number=1, why="", failed=False, saving=False)
    o.take()
    assert o.begin(10.0) is None
    assert [(m["state"], m["report"]) for m in keeper.receive()] == [(READY, {})]


def test_a_generation_does_not_begin_without_a_lease(channel):
    keeper, o = channel
    begun(keeper, o)
    assert o.begin(11.8) is None
    assert [(m["state"], m["report"]) for m in keeper.receive()] == [(READY, {"fenced": True})]


def test_a_lease_that_is_not_confirmed_ends_also_ranks_that_are_being_stopped(channel):
    keeper, o = channel
    begun(keeper, o)
    assert o.begin(10.0) is not None
    keeper.send("stop", number=1, why="", failed=True, saving=True)
    o.take()
    assert o.is_over and not o.lapses(11.7) and 0 < min(o.waits(11.7)) < 0.1
    assert o.lapses(11.76)
    assert not o.lapses(11.77) and not o.waits(11.77), "once is enough"


def test_what_the_keeper_has_said_meanwhile_counts_for_an_agent_that_was_stopped(channel):
    keeper, o = channel
    begun(keeper, o)
    assert o.begin(10.0) is not None
    keeper.send("alive", at=14.0)
    assert not o.lapses(15.0)
    assert o.lapses(15.8)


def test_the_end_of_the_job_needs_no_lease(channel):
    keeper, o = channel
    begun(keeper, o)
    assert o.begin(10.0) is not None
    keeper.send("end", code=0, why="", result={"code": 0}, saving=False)
    o.take()
    assert o.is_over and not o.lapses(20.0)
