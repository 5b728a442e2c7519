"""Who keeps a remote value alive: the protocol between the owner of an RRef and its users.

The value lies with its *owner*. Every worker that may ask for it, a *user*, has a *fork* of the
RRef, and the owner keeps the value while it knows of a fork. (PyTorch's docs/source/rpc/rref.rst
has the same parts and the same guarantees.)

* A user that hands its RRef on makes a fork for the receiver, its *child*, and stays a user until
  the child has told it ACCEPT. A child asks the owner (FORK) before it accepts, so the owner hears
  of the child while it still knows of the parent. What the owner itself hands out needs neither.
* A user tells DELETE once its handle is gone, the owner knows of it, and no child is pending.
* What a program calls is never sent twice. What workers tell each other here is numbered per pair,
  sent again until it is answered, and told once: the owner's answer is its acknowledgement.

Programs' messages overtake each other and these. So an owner may hear of an RRef before it is asked
to make it: it waits for that exactly where it can still come, since creators count what they ask
each owner for (``nth``), and an owner knows which of those it has had.

Pure: events in; out come ``outgoing()`` batches, and what has ``failed`` and what is ``freed``.
Knows no socket, thread, lock, Tensor or function; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

PENDING, CONFIRMED, BROKEN = "pending", "confirmed", "broken"
FORK, ACCEPT, DELETE, VOID = 0, 1, 2, 3
BATCH = 2048  # at most so many items travel together
MANY = 16  # so many wait no longer for others to go with
_LOST = "its owner was lost"


class GloballyUniqueId(NamedTuple):
    """What one worker has numbered: an RRef or a fork of one."""

    created_on: int
    local_id: int

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class Name(NamedTuple):
    """Which RRef: its id, its owner, and the how many-th it is that its creator asked the owner to
    make (-1: the owner made it by itself)."""

    created_on: int
    local_id: int
    owner: int
    nth: int

    @property
    def rref_id(self) -> GloballyUniqueId:
        return GloballyUniqueId(self.created_on, self.local_id)


class Batch(NamedTuple):
    """What one worker tells another: the ``seq``-th of them, and (kind, ...) tuples."""

    seq: int
    items: tuple[tuple, ...]


class User:
    """A fork that this worker has. ``state``: does the owner know of it (or is it BROKEN, and
    ``why``)? ``dropped``: its handle is gone. ``children``: forks made of it, not yet accepted,
    with the workers that they went to."""

    __slots__ = ("children", "dropped", "fork", "name", "parent", "state", "why")

    def __init__(self, name: Name, fork: GloballyUniqueId, parent: int) -> None:
        self.name, self.fork, self.parent = name, fork, parent
        self.state, self.why = PENDING, ""
        self.dropped = False
        self.children: dict[GloballyUniqueId, int] = {}


class Entry:
    """A value that this worker owns and others know of. ``made``: the request to make it has come.
    ``holders``: the forks, with their workers. ``deleted``: forks told gone before that request."""

    __slots__ = ("deleted", "holders", "made", "value")

    def __init__(self, value: Any, made: bool) -> None:
        self.value, self.made = value, made
        self.holders: dict[GloballyUniqueId, int] = {}
        self.deleted: set[GloballyUniqueId] = set()


class Counted:
    """Which of 0, 1, 2 ... have been, kept in as little as those that are late need."""

    __slots__ = ("_beyond", "_below")

    def __init__(self) -> None:
        self._below = 0
        self._beyond: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._below or number in self._beyond

    def add(self, number: int) -> bool:
        """Note it; was it new?"""
        if number in self:
            return False
        self._beyond.add(number)
        while self._below in self._beyond:
            self._beyond.remove(self._below)
            self._below += 1
        return True


class _Link:
    """What is told to one peer, in order, one batch at a time; and what was heard of it last.
    ``urgent``: somebody waits for something in the queue."""

    __slots__ = ("answer", "heard", "in_flight", "queue", "seq", "urgent")

    def __init__(self) -> None:
        self.queue: list[tuple] = []
        self.urgent = False
        self.seq = 0
        self.in_flight: Batch | None = None
        self.heard = 0
        self.answer: tuple = ()


class Protocol:
    """The part of worker ``me``. ``new_value()`` makes what stands for a value that is awaited."""

    def __init__(self, me: int, new_value: Callable[[], Any]) -> None:
        self.me, self._new_value = me, new_value
        self.users: dict[GloballyUniqueId, User] = {}
        self.entries: dict[Name, Entry] = {}
        self.lost_workers: set[int] = set()
        # for the caller to take:
        self.failed: list[tuple[Any, str]] = []  # values that will never be made, and why
        self.freed: list[Any] = []  # values that nobody else needs any more
        self._next_id = 0
        self._asked: dict[int, int] = {}  # how many RRefs each owner was asked to make
        self._had: dict[int, Counted] = {}  # which requests each creator's messages have brought
        self._parents: dict[GloballyUniqueId, User] = {}  # of forks that were not accepted yet
        self._links: dict[int, _Link] = {}
        self._to_send: dict[int, _Link] = {}  # those with something to tell and nothing in flight

    # -- a user's side

    def begin_at(self, first: int) -> None:
        """Number what this worker makes from ``first`` on: one that joins again under the same
        number must not repeat what it has used."""
        self._next_id = first

    def new_id(self) -> GloballyUniqueId:
        self._next_id += 1
        return GloballyUniqueId(self.me, self._next_id - 1)

    def new_name(self) -> Name:
        """Of an RRef that this worker owns and makes."""
        created = self.new_id()
        return Name(created.created_on, created.local_id, self.me, -1)

    def create(self, owner: int) -> User:
        """Ask ``owner`` (another worker) to make a value: a user that waits for its confirmation.
        The request itself is for the caller to send, once."""
        created = self.new_id()
        nth = self._asked.get(owner, 0)
        self._asked[owner] = nth + 1
        user = User(Name(*created, owner, nth), self.new_id(), owner)
        self.users[user.fork] = user
        if owner in self.lost_workers:
            self._settle(user, BROKEN, _LOST)
        return user

    def created(self, user: User) -> None:
        """The owner has answered the request; or it may have come to the owner, and no more is
        known: the protocol goes on alike, a DELETE may overtake the request."""
        if user.state == PENDING:
            self._settle(user, CONFIRMED)

    def never_created(self, user: User, why: str) -> None:
        """The request did not reach the owner, or could not be read there."""
        if user.state == PENDING:
            self._tell(user.name.owner, (VOID, user.name, why))
            self._settle(user, BROKEN, why)

    def fork(self, user: User, to: int) -> GloballyUniqueId:
        """``user`` is handed on to worker ``to``; the message is for the caller to send, once."""
        fork = self.new_id()
        if not {to, user.name.owner} & self.lost_workers:
            user.children[fork] = to
            self._parents[fork] = user
        return fork

    def unsent(self, name: Name, fork: GloballyUniqueId) -> None:
        """The message that was to carry ``fork`` never left."""
        self.accepted(fork)
        entry = self.entries.get(name)
        if entry is not None and entry.holders.pop(fork, None) is not None:
            self._sweep(name, entry)

    def accepted(self, fork: GloballyUniqueId) -> None:
        """The child that got ``fork`` looks after itself now."""
        user = self._parents.pop(fork, None)
        if user is not None:
            del user.children[fork]
            self._release(user)

    def arrived(self, name: Name, fork: GloballyUniqueId, sender: int) -> User:
        """``sender`` has handed this worker a fork of what another one owns."""
        user = self.users[fork] = User(name, fork, sender)
        if name.owner in self.lost_workers:
            self._settle(user, BROKEN, _LOST)
        elif sender == name.owner:
            self._settle(user, CONFIRMED)
        else:
            self._tell(name.owner, (FORK, name, fork))
        return user

    def drop(self, user: User) -> None:
        """Its handle is gone."""
        if not user.dropped:
            user.dropped = True
            self._release(user)

    def idle(self) -> bool:
        """Is there no user here, and nothing to tell?"""
        return not self.users and not any(
            link.queue or link.in_flight for link in self._links.values()
        )

    # -- the owner's side

    def requested(self, name: Name, fork: GloballyUniqueId, creator: int) -> Entry | None:
        """A request to make ``name`` has come; None: it has come before."""
        if not self._had.setdefault(name.created_on, Counted()).add(name.nth):
            return None
        entry = self._entry(name)
        entry.made = True
        if fork in entry.deleted:
            entry.deleted.remove(fork)
        elif creator not in self.lost_workers:
            entry.holders[fork] = creator
        self._sweep(name, entry)
        return entry

    def share(self, name: Name, value: object, to: int) -> GloballyUniqueId:
        """This worker hands ``value``, which it owns, to worker ``to``."""
        fork = self.new_id()
        if to not in self.lost_workers:
            entry = self.entries.get(name)
            if entry is None:
                entry = self.entries[name] = Entry(value, made=True)
            entry.holders[fork] = to
        return fork

    def came_home(self, name: Name, fork: GloballyUniqueId, sender: int) -> Entry | None:
        """``sender`` has handed a fork to the owner, this worker. None: the value is gone."""
        entry = self.find(name)
        if sender != self.me:
            self._tell(sender, (ACCEPT, fork))
        elif entry is not None and entry.holders.pop(fork, None) is not None:
            self._sweep(name, entry)  # shared with itself
        return entry

    def find(self, name: Name) -> Entry | None:
        """What is owned here as ``name``, though the request to make it may yet have to come.
        None: it is gone, or will never come."""
        entry = self.entries.get(name)
        if entry is None and not self._is_over(name):
            entry = self._entry(name)
        return entry

    # -- between workers

    @property
    def waits(self) -> bool:
        """Is there something to be told that has waited for others to go with?"""
        return bool(self._to_send)

    def outgoing(self, lazily: bool = False) -> list[tuple[int, Batch]]:
        """(peer, batch) for each peer that has something to be told and is told nothing now;
        ``lazily``: where it is urgent, or much."""
        batches: list[tuple[int, Batch]] = []
        for peer, link in list(self._to_send.items()) if self._to_send else ():
            if lazily and not link.urgent and len(link.queue) < MANY:
                continue
            del self._to_send[peer]
            items, link.queue = link.queue[:BATCH], link.queue[BATCH:]
            link.seq += 1
            link.in_flight, link.urgent = Batch(link.seq, tuple(items)), bool(link.queue)
            batches.append((peer, link.in_flight))
        return batches

    def deliver(self, peer: int, batch: Batch) -> tuple:
        """What ``peer`` tells; the answer for it: forks whose RRef is gone."""
        if peer in self.lost_workers:
            return ()
        link = self._link(peer)
        if batch.seq < link.heard:
            return ()
        if batch.seq > link.heard:
            link.heard = batch.seq
            link.answer = tuple(item[2] for item in batch.items if self._hear(peer, *item) is False)
        return link.answer

    def answered(self, peer: int, seq: int, gone: tuple) -> None:
        """``peer`` has had the batch of that number."""
        link = self._links.get(peer)
        batch = link.in_flight if link is not None else None
        if link is None or batch is None or batch.seq != seq:
            return  # lost since, or an answer that had been asked for again
        link.in_flight = None
        if link.queue:
            self._to_send[peer] = link
        for item in batch.items:
            if item[0] == FORK:
                self._fork_answered(item[2], item[2] in gone)

    def lost(self, peer: int) -> None:
        """Worker ``peer`` has died, or left: it neither holds nor owns anything any more."""
        if peer in self.lost_workers:
            return
        self.lost_workers.add(peer)
        self._links.pop(peer, None)
        self._to_send.pop(peer, None)
        self._had.pop(peer, None)
        self._asked.pop(peer, None)
        for user in list(self.users.values()):
            whole = user.name.owner == peer
            for fork, child in list(user.children.items()):
                if whole or child == peer:
                    self.accepted(fork)
            if whole:
                self._settle(user, BROKEN, _LOST)
        for name, entry in list(self.entries.items()):
            for fork in [fork for fork, holder in entry.holders.items() if holder == peer]:
                del entry.holders[fork]
            if name.created_on == peer:
                self._never_made(name, entry, "the worker that asked for it was lost")
            self._sweep(name, entry)

    def met(self, peer: int) -> None:
        """A worker has joined as ``peer``, where another one may have been lost."""
        self.lost_workers.discard(peer)

    # -- the rest is for this class alone

    def _link(self, peer: int) -> _Link:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = _Link()
        return link

    def _tell(self, peer: int, item: tuple) -> None:
        if peer == self.me:
            self._hear(peer, *item)
            return
        if peer in self.lost_workers:
            return
        link = self._link(peer)
        link.queue.append(item)
        link.urgent |= item[0] in (FORK, VOID)
        if link.in_flight is None:
            self._to_send[peer] = link

    def _hear(self, peer: int, kind: int, *what: Any) -> bool:
        if kind == FORK:
            name, fork = what
            entry = self.find(name)
            if entry is None:
                return False
            entry.holders[fork] = peer
        elif kind == ACCEPT:
            self.accepted(what[0])
        elif kind == DELETE:
            self._deleted(*what)
        else:
            name, why = what
            self._had.setdefault(name.created_on, Counted()).add(name.nth)
            if name in self.entries:
                self._never_made(name, self.entries[name], why)
        return True

    def _deleted(self, name: Name, fork: GloballyUniqueId) -> None:
        entry = self.find(name)
        if entry is not None:
            if entry.holders.pop(fork, None) is None and not entry.made:
                entry.deleted.add(fork)
            self._sweep(name, entry)

    def _never_made(self, name: Name, entry: Entry, why: str) -> None:
        if not entry.made:
            entry.made = True
            entry.deleted.clear()
            self.failed.append((entry.value, why))
            self._sweep(name, entry)

    def _fork_answered(self, fork: GloballyUniqueId, gone: bool) -> None:
        user = self.users.get(fork)
        if user is None or user.state != PENDING:
            return
        self._tell(user.parent, (ACCEPT, fork))
        self._settle(user, BROKEN if gone else CONFIRMED, "its owner has let go of it" * gone)

    def _settle(self, user: User, state: str, why: str = "") -> None:
        if user.state == BROKEN:
            return
        user.state, user.why = state, why
        self._release(user)

    def _release(self, user: User) -> None:
        """Forget a user that is needed no more, and let the owner forget it."""
        if not user.dropped or user.state == PENDING or user.children:
            return
        if self.users.pop(user.fork, None) is not None and user.state == CONFIRMED:
            self._tell(user.name.owner, (DELETE, user.name, user.fork))

    def _is_over(self, name: Name) -> bool:
        """Has the request to make it been here, or can it not come any more?"""
        if name.nth < 0 or name.created_on in self.lost_workers:
            return True
        return name.nth in self._had.get(name.created_on, ())

    def _entry(self, name: Name) -> Entry:
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries[name] = Entry(self._new_value(), made=False)
        return entry

    def _sweep(self, name: Name, entry: Entry) -> None:
        if entry.made and not entry.holders and self.entries.get(name) is entry:
            del self.entries[name]
            self.freed.append(entry.value)
