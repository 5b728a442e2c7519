"""The protocol between the owner of an RRef and its users, on a network that delays, reorders,
repeats and loses, and on workers that die."""

import random

import pytest

from disttrain.rpc.rref_protocol import BROKEN, CONFIRMED, PENDING, Counted, Protocol


class Value:
    """Stands for a value: whether it was made, and why it never will be."""

    def __init__(self):
        self.made, self.failed = False, None


class Handle:
    """What a program holds: a user's fork, or (on the owner) the value itself."""

    def __init__(self, name, user=None, value=None):
        self.name, self.user, self.value = name, user, value


class World:
    """Workers, and what is under way between them."""

    def __init__(self, workers, rng):
        self.rng = rng
        self.workers = {i: Protocol(i, Value) for i in range(workers)}
        self.handles = {i: [] for i in range(workers)}
        self.wire = []  # (sender, receiver, kind, what); delivered in any order
        self.died = False  # has one died?
        self.voided = set()  # names that were never made

    def take(self, worker):
        protocol = self.workers[worker]
        for value, why in protocol.failed:
            assert not value.made
            value.failed = why
        protocol.failed.clear()
        protocol.freed.clear()
        for peer, batch in protocol.outgoing():
            self.wire.append((worker, peer, "batch", batch))

    # what programs do

    def remote(self, a, owner):
        if a == owner:
            value = Value()
            value.made = True
            self.handles[a].append(Handle(self.workers[a].new_name(), value=value))
            return
        user = self.workers[a].create(owner)
        self.wire.append((a, owner, "request", user))
        self.handles[a].append(Handle(user.name, user))

    def doubt(self):
        """The answer to a request is awaited no longer."""
        waiting = [(item[0], item[3]) for item in self.wire if item[2] == "request"]
        if waiting:
            creator, user = self.rng.choice(waiting)
            if creator in self.workers:
                self.workers[creator].created(user)
                self.take(creator)

    def hand_on(self, a, b):
        handle = self.rng.choice(self.handles[a])
        if handle.user is None:
            fork = self.workers[a].share(handle.name, handle.value, b)
        else:
            fork = self.workers[a].fork(handle.user, b)
        if self.rng.random() < 0.1:
            self.workers[a].unsent(handle.name, fork)
        else:
            self.wire.append((a, b, "call", (handle.name, fork)))

    def drop(self, a, which=None):
        which = self.rng.randrange(len(self.handles[a])) if which is None else which
        handle = self.handles[a].pop(which)
        if handle.user is not None:
            self.workers[a].drop(handle.user)

    # what the network does

    def deliver(self, which, lossy):
        sender, receiver, kind, what = self.wire.pop(which)
        protocol = self.workers.get(receiver)
        if protocol is None:
            return
        if kind == "request":
            self.make(sender, receiver, what)
        elif kind == "made":
            protocol.created(what)
        elif kind == "call":
            self.arrive(sender, receiver, *what)
        elif kind == "batch":
            if lossy and self.rng.random() < 0.5:  # a copy that is late
                self.wire.append((sender, receiver, kind, what))
            if lossy and self.rng.random() < 0.3:
                return  # this one is lost: its sender will ask again
            answer = protocol.deliver(sender, what)
            self.wire.append((receiver, sender, "answer", (what.seq, answer)))
        elif not (lossy and self.rng.random() < 0.3):
            protocol.answered(sender, *what)
        self.take(receiver)

    def make(self, creator, owner, user):
        unread = self.rng.random() < 0.1 and user.state == PENDING
        if unread and creator in self.workers:  # could not be read by the owner
            self.workers[creator].never_created(user, "no such function")
            self.voided.add(user.name)
            self.take(creator)
            return
        entry = self.workers[owner].requested(user.name, user.fork, creator)
        assert entry is not None
        if entry.value.failed is None:
            entry.value.made = True
        if self.rng.random() < 0.2 and creator in self.workers:  # the answer comes too late
            self.workers[creator].created(user)
            self.take(creator)
        else:
            self.wire.append((owner, creator, "made", user))

    def arrive(self, sender, receiver, name, fork):
        protocol = self.workers[receiver]
        if name.owner == receiver:
            entry = protocol.came_home(name, fork, sender)
            value = entry.value if entry is not None else None
            if value is not None:
                self.handles[receiver].append(Handle(name, value=value))
            else:
                assert self.died or name in self.voided
        else:
            self.handles[receiver].append(Handle(name, protocol.arrived(name, fork, sender)))

    def again(self):
        """Whoever waits for an answer asks once more."""
        for worker, protocol in self.workers.items():
            for peer, link in protocol._links.items():
                if link.in_flight is not None:
                    self.wire.append((worker, peer, "batch", link.in_flight))

    def kill(self, dead):
        self.died = True
        del self.workers[dead]
        del self.handles[dead]
        keep = [  # what had left it may still arrive; what was to come to it does not
            item for item in self.wire if item[1] != dead
        ]
        self.wire = keep
        for worker in list(self.workers):
            self.wire.append((dead, worker, "lost", None))

    def settle(self):
        while self.wire:
            self.step(lossy=False)
        for _ in range(200):
            for worker in self.workers:
                self.take(worker)
            self.again()
            while self.wire:
                self.step(lossy=False)
            if all(p.idle() for p in self.workers.values()):
                return

    def step(self, lossy=True):
        which = self.rng.randrange(len(self.wire))
        if self.wire[which][2] == "lost":
            dead, worker, _, _ = self.wire.pop(which)
            if worker in self.workers:
                self.workers[worker].lost(dead)
                self.take(worker)
        else:
            self.deliver(which, lossy)

    def check_alive(self):
        """While nobody died: what a program has a handle of is where its owner finds it."""
        for handles in self.handles.values():
            for handle in handles:
                if handle.user is None or handle.name in self.voided:
                    continue
                assert handle.user.state != BROKEN
                owner = self.workers[handle.name.owner]
                if handle.user.state == CONFIRMED:
                    assert owner.find(handle.name) is not None


def play(seed, kills):
    rng = random.Random(seed)
    world = World(rng.randint(2, 4), rng)
    for _ in range(rng.randint(10, 120)):
        alive = list(world.workers)
        a, b = rng.choice(alive), rng.choice(alive)
        action = rng.random()
        if kills and len(alive) > 1 and action < 0.02:
            world.kill(a)
            continue
        if action < 0.2:
            world.remote(a, b)
        elif action < 0.4 and world.handles[a]:
            world.hand_on(a, b)
        elif action < 0.55 and world.handles[a]:
            world.drop(a)
        elif action < 0.6:
            world.again()
        elif action < 0.65:
            world.doubt()
        elif world.wire:
            world.step()
        if a in world.workers:
            world.take(a)
        if not kills:
            world.check_alive()
    return world


@pytest.mark.parametrize("kills", [False, True])
def test_what_is_known_of_is_kept_and_nothing_else(kills):
    for seed in range(250):
        world = play(seed, kills)
        world.settle()
        for handles in world.handles.values():
            for handle in handles:
                if handle.user is not None:
                    assert handle.user.state != PENDING, seed
        for worker in list(world.handles):
            while world.handles[worker]:
                world.drop(worker, 0)
            world.take(worker)
        world.settle()
        for worker, protocol in world.workers.items():
            assert protocol.idle(), (seed, worker)
            assert not protocol.users and not protocol._parents, (seed, worker)
            assert not protocol.entries, (seed, worker, protocol.entries)
            assert not protocol._to_send, (seed, worker)
            for had in protocol._had.values():
                assert not had._beyond or kills, (seed, worker)


def two():
    return Protocol(0, Value), Protocol(1, Value)


def exchange(*protocols):
    """Tell each other everything, until there is nothing to tell."""
    by_id = {protocol.me: protocol for protocol in protocols}
    while sum(self_tells(protocol, by_id) for protocol in protocols):
        pass


def self_tells(protocol, by_id):
    batches = protocol.outgoing()
    for peer, batch in batches:
        protocol.answered(peer, batch.seq, by_id[peer].deliver(protocol.me, batch))
    return bool(batches)


def test_the_owner_keeps_a_value_until_its_user_lets_go():
    user, owner = two()
    mine = user.create(1)
    entry = owner.requested(mine.name, mine.fork, 0)
    user.created(mine)
    assert mine.state == CONFIRMED
    exchange(user, owner)
    assert owner.find(mine.name) is entry
    user.drop(mine)
    exchange(user, owner)
    assert not owner.entries and not user.users and owner.freed == [entry.value]
    assert owner.find(mine.name) is None


def test_a_drop_waits_for_the_answer_to_the_request():
    user, owner = two()
    mine = user.create(1)
    user.drop(mine)
    assert user.outgoing() == [] and not user.idle()
    user.created(mine)  # it timed out: nobody knows whether the request has come
    exchange(user, owner)
    assert user.idle() and list(owner.entries) == [mine.name]
    entry = owner.requested(mine.name, mine.fork, 0)  # it comes now, and is made for nobody
    assert owner.freed == [entry.value] and not owner.entries


def test_a_parent_stays_until_its_child_is_known():
    parent, owner, child = Protocol(0, Value), Protocol(1, Value), Protocol(2, Value)
    mine = parent.create(1)
    owner.requested(mine.name, mine.fork, 0)
    parent.created(mine)
    fork = parent.fork(mine, 2)
    parent.drop(mine)
    exchange(parent, owner)
    theirs = child.arrived(mine.name, fork, 0)
    assert theirs.state == PENDING and mine.fork in parent.users and owner.find(mine.name)
    exchange(parent, owner, child)
    assert theirs.state == CONFIRMED and not parent.users
    assert list(owner.entries[mine.name].holders.values()) == [2]


def test_a_child_may_ask_before_the_value_is_asked_for():
    parent, owner, child = Protocol(0, Value), Protocol(1, Value), Protocol(2, Value)
    mine = parent.create(1)
    theirs = child.arrived(mine.name, parent.fork(mine, 2), 0)
    exchange(parent, owner, child)
    early = owner.find(mine.name)
    assert theirs.state == CONFIRMED and not early.made
    assert owner.requested(mine.name, mine.fork, 0) is early and early.made
    assert owner.requested(mine.name, mine.fork, 0) is None  # nobody runs a function twice


def test_a_question_that_comes_after_the_end_waits_for_nothing():
    user, owner = two()
    mine = user.create(1)
    owner.requested(mine.name, mine.fork, 0)
    user.created(mine)
    user.drop(mine)
    exchange(user, owner)
    assert owner.find(mine.name) is None and not owner.entries


def test_what_was_never_asked_for_fails_where_others_wait_for_it():
    parent, owner, child = Protocol(0, Value), Protocol(1, Value), Protocol(2, Value)
    mine = parent.create(1)
    theirs = child.arrived(mine.name, parent.fork(mine, 2), 0)
    exchange(parent, owner, child)
    waiting = owner.find(mine.name).value
    parent.never_created(mine, "cannot be read")
    exchange(parent, owner, child)
    assert mine.state == BROKEN and mine.why == "cannot be read"
    assert owner.failed == [(waiting, "cannot be read")] and theirs.state == CONFIRMED
    child.drop(theirs)
    parent.drop(mine)
    exchange(parent, owner, child)
    assert parent.idle() and child.idle() and not owner.entries


def test_a_lost_owner_breaks_its_users():
    user, _ = two()
    mine, other = user.create(1), user.create(2)
    user.fork(mine, 2)
    user.lost(1)
    assert mine.state == BROKEN and other.state == PENDING and not mine.children
    user.drop(mine)
    assert list(user.users.values()) == [other]
    assert user.arrived(mine.name, other.fork, 2).state == BROKEN


def test_what_a_lost_owner_is_asked_to_make_is_broken_from_the_start():
    user = Protocol(0, object)
    user.lost(1)
    made = user.create(1)
    assert (made.state, made.why) == (BROKEN, "its owner was lost")
    user.drop(made)
    assert user.idle() and not user.users


def test_a_lost_user_lets_go_of_all_that_it_held():
    owner = Protocol(1, Value)
    for creator in (0, 2):
        for _ in range(3):
            mine = Protocol(creator, Value).create(1)
            owner._had.clear()
            owner.requested(
                mine.name._replace(local_id=owner.new_id().local_id), mine.fork, creator
            )
    value = Value()
    owner.share(owner.new_name(), value, 0)
    owner.lost(0)
    assert [list(entry.holders.values()) for entry in owner.entries.values()] == [[2]] * 3
    assert value in owner.freed and len(owner.freed) == 4


def test_a_batch_that_comes_twice_counts_once():
    user, owner = two()
    value = Value()
    name = owner.new_name()
    fork = owner.share(name, value, 0)
    mine = user.arrived(name, fork, 1)
    user.drop(mine)
    [(_, batch)] = user.outgoing()
    assert owner.deliver(0, batch) == owner.deliver(0, batch) == ()
    user.answered(1, batch.seq, ())
    user.answered(1, batch.seq, ())
    again = owner.share(name, value, 0)
    other = user.arrived(name, again, 1)
    assert owner.deliver(0, batch) == ()  # a late copy, of what is over
    assert list(owner.entries[name].holders) == [again] and other.state == CONFIRMED


def test_many_travel_in_few_batches():
    user, owner = two()
    mine = [user.create(1) for _ in range(5000)]
    for one in mine:
        owner.requested(one.name, one.fork, 0)
        user.created(one)
        user.drop(one)
    batches = 0
    while todo := user.outgoing():
        [(_, batch)] = todo
        user.answered(1, batch.seq, owner.deliver(0, batch))
        batches += 1
    assert batches == 3 and not owner.entries and user.idle()
    assert not owner._had[0]._beyond


def test_counted_keeps_only_what_is_late():
    counted = Counted()
    numbers = list(range(1000))
    random.Random(3).shuffle(numbers)
    for number in numbers:
        assert number not in counted and counted.add(number) and not counted.add(number)
    assert not counted._beyond and 999 in counted and 1000 not in counted
