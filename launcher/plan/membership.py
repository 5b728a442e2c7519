"""Who takes part in a job of several nodes, and what follows from who comes, fails and goes.

Pure: no I/O, no clock of its own. Every node puts a ``Node`` (what it is, and how far it has come)
into the registry under a lease, and all share one ``Document``. There is no leader: whoever sees
something change asks its ``Observer`` what follows, and swaps that in if the document is still the
one it has looked at; who loses that race reads again. All waits are on the observer's own clock.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .entries import Damaged, fields_of
from .restarts import CAP, Restarts
from .states import FAILED, FINISHED, LEAVING, READY, WORKING

GATHERING, RUNNING, ENDED = "gathering", "running", "ended"
TIMED_OUT, LOST_QUORUM, REFUSED = 75, 76, 2  # exit codes; 75 is EX_TEMPFAIL: try again
_FACTS = {"name", "count", "address", "port", "role"}  # that a document has of each node
ECHO = 1.0  # seconds beyond a lease that an error which only tells of another node's is held back
COMMAND = "the command (--rdzv-conf same_command=0: it may)"  # of the nodes of one role


@dataclass(frozen=True)
class Settings:
    """``restarts``: how often the job may be restarted since ranks have failed. ``last_call``: for
    how long the first generation, once it has enough nodes, waits for more. ``ttl``: within which
    it is known that a node is lost. ``spares``: so many losses are waited out for a node that takes
    the place, though no restart is left. ``min_ranks``: with so many ranks a generation goes on
    without those that are lost (0: it does not), unless it ``replaces`` them, while restarts are
    left."""

    min_nodes: int
    max_nodes: int
    restarts: int = 0
    join_timeout: float = 600.0
    last_call: float = 30.0
    ttl: float = 2.0
    spares: int = 0
    min_ranks: int = 0
    replaces: bool = False


@dataclass(frozen=True)
class Node:
    """What a node says of itself. ``name``: host:pid. ``count``: its ranks. ``address``, ``port``:
    where ranks may meet, if its first one becomes rank 0. ``rank``: its --node-rank, None where the
    order does not matter. ``order``: hosts of the registry come first. ``terms``: what all nodes
    must have alike. ``ran``: the last generation that it has started ranks of; ``state``: what has
    become of them ("running" while there are any), ``report`` of the first that failed. A node
    was asked to end says in ``report`` that it is ``leaving``, or that it ``saves`` before.
    ``stands``: how its ranks do (the fields of a ``Standing``). ``job``: what all generations of
    the job are called, where it is the first node."""

    name: str
    count: int
    address: str = "127.0.0.1"
    port: int = 0
    rank: int | None = None
    order: int = 1
    terms: dict[str, str] = field(default_factory=dict)
    state: str = READY
    ran: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    role: str = "default"
    stands: dict[str, Any] = field(default_factory=dict)
    job: str = ""

    @property
    def leaves(self) -> bool:
        """Is it going, or about to?"""
        return self.state == LEAVING or bool(self.report.get("leaving"))

    @property
    def is_debugged(self) -> bool:
        """Is one of its ranks in the debugger?"""
        return bool(self.stands.get("debugged"))

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Node:
        """Raises ``Damaged``."""
        node = cls(**fields_of(cls, data))
        if node.count < 1 or node.state not in (READY, WORKING, FINISHED, FAILED, LEAVING):
            raise Damaged(f"it has {node.count} ranks in state {node.state!r}")
        return node


@dataclass(frozen=True)
class Document:
    """What the job has agreed on. ``number``: of the last generation that was formed; ``members``:
    the ids of its nodes in order, ``nodes`` what they had said then. ``why``: what the last change
    followed from, for people. ``result``: how the job has ended. ``by``: who has made this, and
    which of its own it is, so that no two are equal. ``base``: the number before the first
    generation, where an earlier job has left its numbers behind. ``vain``: generations that failed
    without progress, one after the other; ``wait``: seconds before the next one begins.
    ``saving``: the ranks of the last one have their time to save. ``job``: what no other job has,
    from the first generation on. ``losses``: how many nodes were lost. ``without``: the members
    without which the generation goes on."""

    number: int = 0
    base: int = 0
    phase: str = GATHERING
    members: tuple[str, ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    restart_count: int = 0
    vain: int = 0
    wait: float = 0.0
    saving: bool = False
    why: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    job: str = ""
    losses: int = 0
    without: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @property
    def begins(self) -> bool:
        """Has no generation been formed yet?"""
        return self.number == self.base

    @classmethod
    def decode(cls, data: bytes) -> Document:
        """Raises ``Damaged``."""
        document = cls(**fields_of(cls, data))
        facts = all(_FACTS <= node.keys() for node in document.nodes)
        if document.phase not in (GATHERING, RUNNING, ENDED):
            raise Damaged(f"its phase is {document.phase!r}")
        known = len(document.members) == len(document.nodes) > 0 or document.phase != RUNNING
        if not known or not facts:
            raise Damaged("it says of its nodes what does not belong to its members")
        if not 0 <= document.base <= document.number or not 0 <= document.wait <= CAP:
            raise Damaged(f"its numbers are {document.number}, {document.base}, {document.wait}")
        return document


Nodes = Mapping[str, Node]


@dataclass
class Observer:
    """One node's eye on the job. ``look`` takes what the registry holds and the observer's time;
    it gives the document that should follow, or None while there is nothing to do."""

    settings: Settings
    _since: dict[tuple[str, int], float] = field(default_factory=dict)
    _asked: set[tuple[str, int]] = field(default_factory=set)

    def look(self, now: float, document: Document | None, nodes: Nodes) -> Document | None:
        """``nodes``: all whose leases hold, by id."""
        self._asked = set()
        document = Document() if document is None else document
        first = [n for n in nodes.values() if n.order == 0 and n.leaves]
        if document.phase == ENDED:
            follows = None
        elif first:
            follows = _host_leaves(document, first[0])
        elif document.phase == GATHERING:
            follows = self._gather(now, document, nodes)
        else:
            follows = self._watch(now, document, nodes)
        self._since = {what: when for what, when in self._since.items() if what in self._asked}
        return follows

    def _for(self, now: float, what: str, number: int) -> float:
        """For how many seconds something has held, that is asked for at every look since."""
        self._asked.add((what, number))
        return now - self._since.setdefault((what, number), now)

    # --- gathering ------------------------------------------------------------------------------

    def _gather(self, now: float, d: Document, nodes: Nodes) -> Document | None:
        s, staying = self.settings, {i: n for i, n in nodes.items() if not n.leaves}
        if any(n.state == WORKING and n.is_debugged for n in nodes.values()):
            return None  # its ranks end once people have looked, and all time counts from then on
        waited = self._for(now, "gathering", d.number)
        clash = conflict(staying) if d.begins else ""
        if clash:
            return _ended(d, REFUSED, clash)
        working = ", ".join(n.name for n in nodes.values() if n.state == WORKING)
        if working:  # its ranks are about to be stopped; never two generations at once
            text = (f"node {working} has not stopped its ranks in {s.join_timeout:g} s; "
                    "is its dtrun stopped?")  # fmt: skip
            return None if waited < s.join_timeout else _ended(d, TIMED_OUT, text)
        if waited < d.wait:
            return None
        if len(staying) >= s.min_nodes:
            enough = self._for(now, "enough", d.number)
            if len(staying) >= s.max_nodes or not d.begins or enough >= s.last_call:
                return _formed(d, staying, s.max_nodes)
        elif waited >= s.join_timeout:
            there = ", ".join(n.name for n in staying.values()) or "none"
            text = (f"{len(staying)} of {s.min_nodes} nodes have come in {s.join_timeout:g} s "
                    f"({there}); start the others, or wait longer "
                    "(--rdzv-conf join_timeout=SECONDS)")  # fmt: skip
            return _ended(d, TIMED_OUT, text)
        return None

    # --- running --------------------------------------------------------------------------------

    def _watch(self, now: float, d: Document, nodes: Nodes) -> Document | None:
        staying = [i for i in d.members if i not in d.without]
        here = {i: nodes[i] for i in staying if i in nodes and not nodes[i].leaves}
        saving = [nodes[i] for i in d.members if i in nodes and nodes[i].report.get("saves")]
        if any(not n.leaves for n in saving):
            return None  # the ranks of all nodes save, and it leaves when its own have ended
        if saving:
            return dataclasses.replace(self._lost(d, nodes, here), saving=True)
        at_work = {i: n for i, n in here.items() if n.ran == d.number}
        reports = [n for n in at_work.values() if n.state == FAILED]
        own = [n for n in reports if not n.report.get("echo")]
        if own:
            return self._failed(d, min(own, key=lambda n: n.report.get("at", 0)))
        if len(here) < len(staying):
            if self._may_do_without(d, nodes, here):
                return self._without(d, nodes, here)
            return self._lost(d, nodes, here)
        if all(n.state == FINISHED for n in at_work.values()) and len(at_work) == len(here):
            return _ended(d, 0, "all ranks have finished")
        if reports:  # they only tell of others, who may say so themselves, or be lost
            ended = [n for n in at_work.values() if n.state in (FAILED, FINISHED)]
            held = self._for(now, "echo", d.number)
            if len(ended) == len(here) or held > self.settings.ttl + ECHO:
                return self._failed(d, reports[0])
            return None
        fresh = [
            i
            for i, n in nodes.items()
            if i not in d.members and n.state != WORKING and not n.leaves
        ]
        busy = all(n.state == WORKING for n in at_work.values())
        busy = busy and not any(n.is_debugged for n in at_work.values())
        if fresh and busy and len(d.members) < self.settings.max_nodes:
            names = ", ".join(nodes[i].name for i in fresh)
            return _gathering(d, f"node {names} joins")
        return None

    def _failed(self, d: Document, node: Node) -> Document:
        """Ranks of ``node`` have failed of themselves."""
        r, s = node.report, self.settings
        what = f"rank {r.get('rank', '?')} on node {node.name} failed ({r.get('cause', '?')})"
        left = Restarts(s.restarts, d.restart_count, d.vain)
        wait = left.another(r.get("seconds", 0.0), r.get("operations", 0))
        if wait is not None:
            new = _gathering(d, f"{what}; {left.told(wait)}")
            return dataclasses.replace(new, restart_count=left.used, vain=left.vain, wait=wait)
        return _ended(d, int(r.get("code", 1)), what, node.name, r)

    def _may_do_without(self, d: Document, nodes: Nodes, here: Nodes) -> bool:
        """Are enough ranks left, and does no node wait to take the places of the others?"""
        left = sum(n.count - n.stands.get("lost", 0) for n in here.values() if n.ran == d.number)
        waits = any(i not in d.members and not n.leaves for i, n in nodes.items())
        if self.settings.replaces and d.restart_count < self.settings.restarts:
            return False
        return 0 < self.settings.min_ranks <= left and not waits

    def _without(self, d: Document, nodes: Nodes, here: Nodes) -> Document | None:
        """The same generation without the nodes that have gone; None while their ranks still run,
        which are about to end."""
        gone = [i for i in d.members if i not in here and i not in d.without]
        gone = [i for i in gone if i not in nodes or nodes[i].state == LEAVING]
        if not gone:
            return None
        names = dict(zip(d.members, (n["name"] for n in d.nodes), strict=True))
        what = "; ".join(
            f"node {names[i]} {nodes[i].report.get('cause', 'leaves') if i in nodes else 'is lost'}"
            for i in gone
        )
        why = f"{what}; the others go on without it (--min-ranks {self.settings.min_ranks})"
        losses = d.losses + len(gone)
        return dataclasses.replace(d, without=(*d.without, *gone), losses=losses, why=why)

    def _lost(self, d: Document, nodes: Nodes, here: Nodes) -> Document:
        """Members have gone: their leases have ended, or they leave."""
        s, names = self.settings, dict(zip(d.members, (n["name"] for n in d.nodes), strict=True))
        gone = [i for i in d.members if i not in here and i not in d.without]
        asked = [nodes[i] for i in gone if i in nodes and "code" in nodes[i].report]
        what = "; ".join(
            f"node {names[i]} {nodes[i].report.get('cause', 'leaves') if i in nodes else 'is lost'}"
            for i in gone
        )
        d = dataclasses.replace(d, losses=d.losses + len(gone))
        left = sum(not n.leaves for n in nodes.values())
        if left >= s.min_nodes:
            return _gathering(d, f"{what}; {self._goes_on(d, nodes, gone, left)}")
        if not here and not asked and any(n.ran >= d.number for n in nodes.values()):
            return _gathering(d, f"{what}; the job goes on with those that are back")
        if not here and not asked:  # who has come since has lost nobody
            why = f"{what}; the job begins anew"
            return Document(number=d.number, base=d.number, why=why, job=d.job)
        if not asked and d.restart_count < s.restarts:
            return _gathering(d, f"{what}; waiting for nodes: {left} of {s.min_nodes} are here")
        if not asked and d.losses <= s.spares:
            return _gathering(d, f"{what}; waiting for a spare (--spares): {left} of "
                                 f"{s.min_nodes} nodes are here")  # fmt: skip
        code = asked[0].report.get("code", LOST_QUORUM) if asked else LOST_QUORUM
        need = f"{left} of at least {s.min_nodes} nodes (--nnodes) are left"
        return _ended(d, int(code), f"{what}; {need}")

    def _goes_on(self, d: Document, nodes: Nodes, gone: list[str], left: int) -> str:
        """With whom, for people."""
        waits = [i for i, n in nodes.items() if i not in d.members and not n.leaves]
        if not waits:
            return f"the job goes on with {min(left, self.settings.max_nodes)} nodes"
        members = _placed(d, {i: n for i, n in nodes.items() if not n.leaves})
        taken = [(i, d.members.index(i)) for i in gone if d.members.index(i) < len(members)]
        pairs = [(nodes[members[at]].name, at) for _, at in taken if members[at] in waits]
        told = ", ".join(f"node {name} takes its place (node {at})" for name, at in pairs)
        return told or f"the job goes on with {min(left, self.settings.max_nodes)} nodes"


def conflict(nodes: Nodes) -> str:
    """Why these nodes cannot make up one job; empty where they can."""
    known = sorted(nodes.values(), key=lambda n: (n.order, n.name))
    for at, one in enumerate(known):
        for other in known[:at]:
            said = disagreement(other, one)
            if said:
                return said
    return ""


def disagreement(one: Node, other: Node) -> str:
    """What two nodes must have alike, and have not (or the other way)."""
    pair = f"node {one.name} and node {other.name}"
    for what in sorted(one.terms.keys() | other.terms.keys()):
        here, there = (n.terms.get(what, "nothing") for n in (one, other))
        if here != there and (what != COMMAND or one.role == other.role):
            return f"{pair} differ in {what}: {here} and {there}; start all nodes of a job alike"
    if one.rank is not None and one.rank == other.rank:
        return f"{pair} both have --node-rank {one.rank}; each node needs one of its own"
    return ""


def _gathering(d: Document, why: str) -> Document:
    return dataclasses.replace(d, phase=GATHERING, why=why)


def _ended(
    d: Document, code: int, why: str, node: str = "", report: Mapping[str, Any] | None = None
) -> Document:
    result = {"code": code, "node": node, "report": dict(report or {})}
    return dataclasses.replace(d, phase=ENDED, why=why, result=result)


def _host_leaves(d: Document, node: Node) -> Document:
    r = node.report
    what = f"node {node.name}, which has the job's rendezvous, {r.get('cause', 'leaves')}"
    ended = _ended(d, int(r.get("code", TIMED_OUT)), what)
    return dataclasses.replace(ended, saving=bool(r.get("saves")))


def _formed(d: Document, nodes: Nodes, most: int) -> Document:
    """The next generation."""
    members = tuple(_placed(d, nodes)[:most])
    facts = [nodes[i] for i in members]
    number = 1 + max(d.number, *(n.ran for n in facts))  # the registry may be younger than a node
    said = tuple(
        {"name": n.name, "count": n.count, "address": n.address, "port": n.port, "role": n.role}
        for n in facts
    )
    return dataclasses.replace(
        d, number=number, phase=RUNNING, members=members, nodes=said, wait=0.0, saving=False,
        without=(),
        job=d.job or facts[0].job or members[0],
    )  # fmt: skip


def _placed(d: Document, nodes: Nodes) -> list[str]:
    """The nodes in order. Who was there keeps its place, and so its ranks their numbers; who was
    not takes one that is free, best of a node with as many ranks, or comes behind them. Numbers
    that were given (--node-rank) go before all that."""

    def rank(node: str) -> tuple:
        n = nodes[node]
        return (n.rank is None, n.rank or 0), n.order, _natural(n.name), node

    new = sorted((i for i in nodes if i not in d.members), key=rank)
    if d.members and all(n.rank is not None for n in nodes.values()):
        return sorted(nodes, key=rank)
    found: list[str] = []
    for place, member in enumerate(d.members):
        count = d.nodes[place]["count"] if place < len(d.nodes) else 0
        alike = [i for i in new if nodes[i].count == count]
        takes = member if member in nodes else next(iter(alike or new), "")
        if takes in new:
            new.remove(takes)
        found += [takes] if takes else []
    return found + new


def _natural(name: str) -> list[tuple[int, int, str]]:
    """node10 comes behind node9."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]
