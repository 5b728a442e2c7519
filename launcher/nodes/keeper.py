"""The keeper: the process beside an agent that has all to do with the network for it.

It renews this node's lease, reads what the nodes of the job share, swaps in what follows, and tells
the agent: which generation to start, when to stop its ranks, how the job has ended. The agent tells
it how its ranks fare. It is forked before anything large is loaded, and knows no ranks.

A network may be slow, so the keeper may wait for it; the agent never waits for the keeper.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import select
import time
from collections.abc import Callable
from typing import TypeVar

from disttrain.errors import LaunchError

from ..node.channel import Channel, Message, Unread
from ..options.rendezvous import ELECTION, Rendezvous
from ..plan import inactivity, membership
from ..plan.entries import Damaged
from ..plan.generation import Generation
from ..plan.membership import (
    ENDED,
    LEAVING,
    LOST_QUORUM,
    READY,
    RUNNING,
    TIMED_OUT,
    WORKING,
    Document,
    Node,
    Nodes,
    Observer,
    Settings,
)
from ..registry import LeaseEnded, Registry, RegistryLost
from .watching import Exchange

T = TypeVar("T")
TICK = 0.1  # seconds between two looks of one that leaves
NOTICE = 3.0  # ... after which people are told what is waited for
DOCUMENT, NODES, REFUSALS = "document", "nodes/", "refused/"
MIN_RANKS, REPLACES = "--min-ranks", "--replace-ranks"
RUN_ID, UNNAMED = "--rdzv-id", "none"  # among a node's terms; its value where nobody names a job


def settings_of(
    r: Rendezvous, restarts: int, min_ranks: int = 0, replaces: bool = False
) -> Settings:
    """What the rules of membership need of it."""
    known = r.ttl + (ELECTION if r.backend == "etcd" else 0.0)
    return Settings(r.min_nodes, r.max_nodes, restarts, r.join_timeout, r.last_call, known,
                    r.spares, min_ranks, replaces)  # fmt: skip


class Keeper:
    """One node's part. ``hosts``: the registry is in this process."""

    def __init__(
        self,
        registry: Registry,
        node: Node,
        r: Rendezvous,
        restarts: int,
        channel: Channel,
        hosts: bool,
        clock: Callable[[], float] = time.monotonic,
        nodes_fd: int = -1,
        boxes_fd: int = -1,
    ) -> None:
        self.exchange = Exchange(registry, channel, nodes_fd, boxes_fd, clock)
        self.entries: dict[str, bytes] = {}  # as they were read last
        self.document: Document | None = None  # ... of them
        self.registry, self.node, self.r, self.channel = registry, node, r, channel
        self.hosts, self.clock = hosts, clock
        self.observer = Observer(settings_of(
            r, restarts, int(node.terms.get(MIN_RANKS, 0)), REPLACES in node.terms,
        ))  # fmt: skip
        self.restarts_used = 0  # when that generation began
        self.id = ""  # among the nodes; "" while it is not one of them
        self.given_up: set[str] = set()  # what it was called before, and may be still
        self.swaps = 0
        self.sent = 0  # the generation that the agent was told to start
        self.stopped = 0  # ... and to stop
        self.ended = False  # the agent knows how the job has ended
        self.first_node = ""  # its name
        self.elsewhere: tuple = ()  # as the agent knows it
        self.still = False  # the job's clock: some rank is in the debugger
        self.told: set[tuple[int, int]] = set()  # (generation, rank) whose failure the agent knows
        self.said: set[str] = set()
        self.dirty = False  # the others have not been told what we are
        self.waits_for_host = False  # which does not answer, and people know
        self.reached = self.renewed = self.idle_since = clock()

    # --- the loop -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the agent has gone."""
        while self.channel.open:
            self.step()
            select.select([self.channel], [], [], self.registry.pause)
        self.leave()

    def step(self) -> None:
        """Take what the agent says, and look once."""
        with contextlib.suppress(Unread):  # what could not be said follows again from a later look
            self._step()

    def _step(self) -> None:
        try:
            for message in self.channel.receive():
                self._hear(message)
            for old in sorted(self.given_up):  # until that was done: its lease may be ours still
                self.registry.delete(NODES + old)
                self.given_up.discard(old)
            if self.dirty and self.id:
                self._put()
            if self.ended:
                self._keep_lease()
                return
            if not self.id and not self._join():
                return
            self._keep_lease()
            self._look()
            if not self.ended:
                self.exchange.step(self.id, self.document, self.entries, self.still)
            self.registry.keep(DOCUMENT)
            self.reached, self.waits_for_host = self.clock(), False
        except LeaseEnded as error:
            self.id = ""  # for the others we were lost; we may come again, as another one
            self._stop(f"this node was lost for the others: {error}", lost=True)
        except RegistryLost as error:
            self._unreached(str(error))
        except Damaged as error:
            if not self.ended:
                self._end(membership.REFUSED, str(error))

    def leave(self) -> None:
        """The agent has gone: so do we. Who has the registry waits until the others have, too."""
        try:
            if self.id and not self.ended:
                if self.node.state != LEAVING:  # it was killed, and could not say anything
                    report = {"cause": "is lost: its dtrun was killed"}
                    self.node = dataclasses.replace(self.node, state=LEAVING, report=report)
                self._put()
                deadline = self.clock() + self.r.ttl
                while self.clock() < deadline and not self._is_known_to_leave():
                    time.sleep(TICK / 2)
            if self.id:
                self.exchange.give_box(self.id, self.document)
                self.registry.delete(NODES + self.id)
            deadline = self.clock() + (self.r.close_timeout if self.hosts else self.r.ttl)
            while self._is_first() and self.clock() < deadline and self._see()[2]:
                time.sleep(TICK / 2)
            if self._is_first() and self.exchange.boxes_fd >= 0:
                self.exchange.gather(self.document)
        except LaunchError:  # it ends by itself
            self.exchange.keep_box(self.id, self.document)
        self.registry.close()

    def _is_first(self) -> bool:
        """Does this node end last, and gather what the others have?"""
        d = self.document
        first = d is not None and d.phase == ENDED and d.members[:1] == (self.id,)
        return self.hosts or (first and self.exchange.has_box)

    # --- the registry ---------------------------------------------------------------------------

    def _nodes(self, entries: dict[str, bytes]) -> dict[str, Node]:
        return {
            key.removeprefix(NODES): self._decoded(Node.decode, key, value)
            for key, value in entries.items()
            if key.startswith(NODES)
        }

    def _decoded(self, decode: Callable[[bytes], T], key: str, value: bytes) -> T:
        try:
            return decode(value)
        except Damaged as error:
            raise Damaged(
                f"{self.registry.where}: the entry {self.registry.name(key)!r} is damaged: "
                f"{error}. See who else writes there; remove it when no node of this job runs, or "
                f"give the job another name ({RUN_ID}, now {self.r.run_id})"
            ) from None

    def _see(self) -> tuple[bytes | None, Document | None, dict[str, Node]]:
        self.entries = entries = self.registry.read().entries
        for key, text in entries.items():
            if key.startswith(REFUSALS) and self.id not in key:
                self._say(text.decode(errors="replace"))
        raw = entries.get(DOCUMENT)
        document = None if raw is None else self._decoded(Document.decode, DOCUMENT, raw)
        self.document = document
        return raw, document, self._nodes(entries)

    def _put(self, **changes: object) -> None:
        self.node = dataclasses.replace(self.node, **changes)  # type: ignore[arg-type]
        now, self.dirty = self.clock(), True
        self.registry.put_leased(NODES + self.id, self.node.encode())
        self.dirty = False
        self._confirmed(now)

    def _keep_lease(self) -> None:
        now = self.clock()
        if self.id and now - self.renewed >= self.r.interval:
            self.registry.renew()
            self._confirmed(now)

    def _confirmed(self, when: float) -> None:
        """The registry has our lease from a moment after ``when``."""
        self.renewed = when
        with contextlib.suppress(Unread):  # the agent is stopped; its fence is its own
            self.channel.send("alive", at=when)

    def _swap(self, raw: bytes | None, follows: Document) -> None:
        self.swaps += 1
        mark = f"{self.id or self.node.name}#{self.swaps}"
        new = dataclasses.replace(follows, by=mark)
        self.registry.compare_swap(DOCUMENT, raw, new.encode())

    def _unreached(self, trouble: str) -> None:
        """A registry that has gone with its node is lost; one that is silent may come back."""
        if self.ended:
            return
        away = self.clock() - self.reached
        over = self.r.ttl + max(1.0, self.r.ttl / 2)
        if self.r.backend == "etcd" or self.hosts:
            if away > self.r.join_timeout:
                where = self.registry.where
                self._end(LOST_QUORUM, f"no answer in {away:.0f} s from {where}: {trouble}")
        elif away > self.r.join_timeout or (away > over and self.registry.has_gone()):
            text = (
                f"{self._host()} is lost: {trouble}. "
                "Start the job again; one that is to outlive any node needs --rdzv-backend etcd"
            )
            self._end(TIMED_OUT, text)
        elif away > over and not self.waits_for_host:
            self.waits_for_host = True
            text = (
                f"{self._host()} does not answer; this node's ranks are stopped, and it comes back "
                f"when it does, for {self.r.join_timeout:g} s (--rdzv-conf join_timeout=SECONDS)"
            )
            self.channel.send("say", text=text)

    def _host(self) -> str:
        who = self.first_node or f"at {self.r.endpoint}"
        return f"the first node ({who}), which has the job's rendezvous,"

    # --- joining --------------------------------------------------------------------------------

    def _join(self) -> bool:
        """Become one of the nodes; False where that has to wait, or cannot be."""
        if self.node.state == WORKING:
            return False  # ranks of before are being stopped
        raw, document, nodes = self._see()
        anew = document is None or (document.phase == membership.GATHERING and document.begins)
        if document is not None and document.phase == ENDED and document.number >= self.sent > 0:
            self._end(document.result.get("code", 1), document.why, document.result)
            return False  # it was ours, and has ended while we were away
        if document is not None and not nodes and not anew:
            if document.phase == ENDED and not self.registry.outlives_jobs:
                self._end(membership.REFUSED, f"the job at {self.r.endpoint} has ended")
                return False
            self._swap(raw, self._after(document))
            return False
        if document is not None and document.phase == ENDED:
            return False  # its nodes are leaving
        clash = self._refused(document, nodes)
        fresh_id = f"{self.node.name}-{secrets.token_hex(4)}"
        if clash:
            self.registry.put_leased(REFUSALS + fresh_id, f"a node was refused: {clash}".encode())
            self._end(membership.REFUSED, clash)
            return False
        self.id = fresh_id
        self._put(state=READY, report={}, ran=self.sent)
        return True

    def _after(self, document: Document) -> Document:
        """What follows where all have gone: the job goes on where it is this node's, or has a
        registry of its own, whose machine was stopped; else another one begins."""
        if self.registry.outlives_jobs and self.sent < document.number:
            named = document.phase != ENDED and self.node.terms.get(RUN_ID, UNNAMED) != UNNAMED
            job = document.job if named else ""  # all of its nodes were lost: these go on with it
            return Document(number=document.number, base=document.number, job=job)
        why = "no node was heard of for a while; the job goes on with those that come"
        return dataclasses.replace(document, phase=membership.GATHERING, why=why)

    def _refused(self, document: Document | None, nodes: Nodes) -> str:
        """Why this node cannot join a job that others are in. Before the first generation begins,
        what does not fit ends the job instead, for all; but another job is none of this one's."""
        for other in nodes.values():
            mine, theirs = self.node.terms.get(RUN_ID), other.terms.get(RUN_ID)
            if mine != theirs:
                return (
                    f"node {self.node.name} belongs to job {mine}, and node {other.name} at "
                    f"{self.r.endpoint} to job {theirs} ({RUN_ID}); give another endpoint, or the "
                    "same id"
                )
            said = membership.disagreement(other, self.node)
            if said and document is not None and not document.begins:
                return said
        return ""

    # --- following ------------------------------------------------------------------------------

    def _look(self) -> None:
        raw, document, nodes = self._see()
        self.first_node = min(((n.order, n.name) for n in nodes.values()), default=(0, ""))[1]
        follows = self.observer.look(self.clock(), document, nodes)
        if follows is not None:
            self._swap(raw, follows)
            raw, document, nodes = self._see()
        if document is not None:
            self._obey(document, nodes)
        if not self.ended and self.node.state != WORKING:
            self._notice(document, nodes)
        else:
            self.idle_since = self.clock()

    def _notice(self, document: Document | None, nodes: Nodes) -> None:
        """Say what this node waits for, where that takes long and is nothing else."""
        if document is not None and document.phase == RUNNING and self.node.state == READY:
            if self.id and self.id not in document.members:
                looked = any(nodes[i].is_debugged for i in document.members if i in nodes)
                if looked and len(document.members) < self.r.max_nodes:
                    self._say("this node joins when no rank is in the debugger any more")
                    return
                at_work = ", ".join(n["name"] for n in document.nodes)
                self._say(
                    f"this node is a spare: it takes the place of a node that is lost ({at_work} "
                    "are at work)"
                )
            return
        long = self.clock() - self.idle_since > NOTICE and self.node.state == READY
        if long and not (document is not None and document.wait):
            here = ", ".join(sorted(n.name for n in nodes.values()))
            self._say(f"waiting for nodes (--nnodes): {here} are here")

    def _obey(self, d: Document, nodes: Nodes) -> None:
        """Do what the document says of this node."""
        current = d.phase == RUNNING and self.id in d.members and self.id not in d.without
        if d.phase == ENDED:
            self._end(d.result.get("code", 1), d.why, d.result, d.saving)
        elif self.node.state == WORKING and not (current and d.number == self.node.ran):
            if self.sent == self.node.ran:
                self._stop(d.why, d.restart_count > self.restarts_used, d.saving)
            else:  # something came between what we have said and what the agent was told
                self._put(state=READY)
        elif current and d.number > self.sent:
            self._begin(d)
        elif current and d.number == self.node.ran:
            self._pass_on(d, nodes)
            self._tell_of_lost_nodes(d)
            self._tell_standings(d, nodes)

    def _begin(self, d: Document) -> None:
        """Say that we begin, and begin if nothing has changed by then: from that moment on, nobody
        begins another generation before we have said that our ranks have ended."""
        self._put(state=WORKING, ran=d.number, report={}, stands={})
        again = self._see()[1]
        if again is None or (again.phase, again.number) != (RUNNING, d.number):
            self._put(state=READY)
            return
        first = d.nodes[0]
        generation = Generation(
            counts=tuple(n["count"] for n in d.nodes),
            me=d.members.index(self.id),
            number=d.number,
            restart_count=d.restart_count,
            master_addr=first["address"],
            master_port=first["port"],
            nodes=tuple(n["name"] for n in d.nodes),
            roles=tuple(n["role"] for n in d.nodes),
            job=d.job,
        )
        self.channel.send("generation", fields=generation.to_json(), why=d.why)
        self.sent, self.restarts_used = d.number, d.restart_count

    def _stop(
        self, why: str, failed: bool = False, saving: bool = False, lost: bool = False
    ) -> None:
        if self.node.state == WORKING and self.stopped < self.node.ran:
            self.channel.send(
                "stop", number=self.node.ran, why=why, failed=failed, saving=saving, lost=lost
            )
            self.stopped = self.node.ran

    def _pass_on(self, d: Document, nodes: Nodes) -> None:
        """Tell the agent of ranks that have failed elsewhere."""
        for node in (nodes[i] for i in d.members if i in nodes and i != self.id):
            report = node.report
            key = d.number, report.get("rank", -1)
            if (
                node.ran == d.number
                and key[1] >= 0
                and not report.get("echo")
                and key not in self.told
            ):
                cause = f"{report.get('cause', 'failed')} [on node {node.name}]"
                self.channel.send(
                    "failure", number=d.number, rank=key[1], cause=cause,
                    traceback=report.get("traceback", ""),
                )  # fmt: skip
                self.told.add(key)

    def _tell_standings(self, d: Document, nodes: Nodes) -> None:
        """Tell the agent how the ranks of all nodes stand, where that has changed."""
        staying = [i for i in d.members if i not in d.without]
        stand = {
            i: inactivity.Standing(**nodes[i].stands)
            for i in staying
            if i in nodes and nodes[i].ran == d.number and nodes[i].state == WORKING
        }
        self.still = any(s.debugged for s in stand.values())
        move = len(stand) < len(staying) or inactivity.moves(
            s for i, s in stand.items() if i != self.id
        )
        all_known = len(stand) == len(staying)
        debugged = "; ".join(s.debugged for i, s in stand.items() if i != self.id and s.debugged)
        awaited = inactivity.awaited(stand.values()) if all_known else -1
        known = d.number, move, awaited, self._left_elsewhere(d, nodes), debugged
        if known != self.elsewhere:
            self.channel.send(
                "elsewhere",
                number=d.number,
                move=move,
                awaited=awaited,
                left=known[3],
                debugged=debugged,
            )
            self.elsewhere = known

    def _left_elsewhere(self, d: Document, nodes: Nodes) -> int:
        """How many ranks of other nodes have not failed."""
        return sum(
            said["count"] - (nodes[i].stands.get("lost", 0) if i in nodes else 0)
            for i, said in zip(d.members, d.nodes, strict=True)
            if i not in d.without and i != self.id
        )

    def _tell_of_lost_nodes(self, d: Document) -> None:
        """The ranks of a node without which the others go on have failed, for certain: it has
        stopped them before its lease ended."""
        first = 0
        for i, said in zip(d.members, d.nodes, strict=True):
            ranks = range(first, first + said["count"])
            first += said["count"]
            for rank in ranks if i in d.without else ():
                if (d.number, rank) not in self.told:
                    cause = f"its node {said['name']} is lost"
                    self._say(d.why)
                    self.channel.send(
                        "failure", number=d.number, rank=rank, cause=cause, traceback="", said=True
                    )
                    self.told.add((d.number, rank))

    def _end(self, code: int, why: str, result: dict | None = None, saving: bool = False) -> None:
        self.channel.send("end", code=code, why=why, result=result or {}, saving=saving)
        self.ended = True

    def _say(self, text: str) -> None:
        if text not in self.said:
            self.channel.send("say", text=text)
            self.said.add(text)

    def _is_known_to_leave(self) -> bool:
        """Has somebody drawn the conclusion?"""
        _, d, _ = self._see()
        return d is None or d.phase != RUNNING or self.id not in d.members

    # --- the agent ------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """``state``: how its ranks fare; it comes with a report where that is of interest.
        ``standing``: how they stand, beside those of other nodes."""
        if self.exchange.hear(message):
            return
        if message["kind"] == "standing":
            if message["number"] == self.node.ran and message["stands"] != self.node.stands:
                self.node = dataclasses.replace(self.node, stands=message["stands"])
                self.dirty = True
            return
        report, old = message["report"], self.id
        self.node = dataclasses.replace(self.node, state=message["state"], report=report)
        self.dirty = True
        if report.get("fenced") and old:  # as if it had been lost, though nobody may have seen it
            self.id = ""
            self.given_up.add(old)
