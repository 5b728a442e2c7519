"""Groups whose workers come and go: who is in is a list in the store, changed under a lock, and
every member is told before the change is complete.

A worker that joins can be called, and calls all others, when ``init_rpc`` returns. One that leaves
ends what it has under way first, and is not known to anybody any more when ``shutdown`` returns.
Members that have died are dropped from the list by the next one who changes it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import context
from ..comm.job.worker_env import read_worker_env
from ..comm.store import PrefixStore, Store
from ..errors import PeerFailed, StoreError, WaitTimeout, WorkerError
from .calls import kinds
from .calls.agent import Agent
from .calls.gathering import answer_all, end_calls
from .calls.workers import WorkerInfo, check_unique
from .constants import MEETING_SECONDS
from .device_maps import check_maps
from .joining import add_worker, begin, check_encryption, described, give_up, open_store
from .options import RpcBackendOptions
from .rref_part import part_of

SLOT = "membership"  # of an agent


class Membership:
    """One worker's place in such a group."""

    def __init__(self, store: Store, agent: Agent, told: dict[str, Any]) -> None:
        self.store, self.agent, self.told = store, agent, told
        self.group = PrefixStore("rpc/members", store)
        agent.handle(kinds.MEMBER, self._change)

    def join(self) -> None:
        """Become a member."""
        agent = self.agent
        with self._lock():
            members = [of for of in self._members() if not self._has_died(of)]
            check_unique([WorkerInfo(of["name"], of["id"]) for of in (*members, self.told)])
            everybody = [*members, self.told]
            check_encryption(everybody)
            check_maps(
                {of["name"]: of["maps"] for of in everybody},
                {of["name"]: of["devices"] for of in everybody},
                whole=False,
            )
            for of in everybody:
                add_worker(agent, of)
            agent.serve()
            alive = [of for of in members if self._tell(of, True)]
            for of in members:
                if of not in alive:
                    agent.workers.remove(WorkerInfo(of["name"], of["id"]))
            self.group.set("list", json.dumps([*alive, self.told]))

    def leave(self, timeout: float) -> None:
        """Be no member any more. The store may be gone already, with the worker that hosts it;
        the members are told all the same."""
        end_calls(self.agent, timeout)
        try:
            with self._lock():
                alive = [
                    of
                    for of in self._members()
                    if of["id"] != self.agent.me.id and self._tell(of, False)
                ]
                self.group.set("list", json.dumps(alive))
        except StoreError:
            for worker in list(self.agent.workers.by_id.values()):
                if worker != self.agent.me:
                    self._tell({"name": worker.name, "id": worker.id}, False)
        answer_all(self.agent, timeout)
        end_calls(self.agent, timeout)

    def close(self) -> None:
        self.store.close()

    def _members(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.group.compare_set("list", "", "[]"))
        return found

    def _has_died(self, of: dict[str, Any]) -> bool:
        """Has a member that this worker wants the name or the number of ended without leaving?"""
        if of["name"] != self.told["name"] and of["id"] != self.told["id"]:
            return False
        try:
            self.agent.endpoint.connect(of["id"], of["address"])
        except PeerFailed:
            return True
        finally:
            self.agent.endpoint.disconnect(of["id"])
        return False

    def _tell(self, of: dict[str, Any], joins: bool) -> bool:
        """Tell a member that this worker joins or leaves; False where it is gone."""
        try:
            self.agent.ask(of["id"], kinds.MEMBER, (joins, self.told), 0.0, "the list of members")
        except (PeerFailed, WorkerError):
            return False
        return True

    def _change(self, caller: WorkerInfo | None, said: tuple[bool, dict[str, Any]]) -> None:
        joins, of = said
        if joins:
            add_worker(self.agent, of)
            return
        worker = WorkerInfo(of["name"], of["id"])
        self.agent.workers.remove(worker)
        gone = PeerFailed(worker.id, f"worker {worker.name!r} has left the group", ended=True)
        for tell in list(self.agent.when_lost):
            tell(worker, gone)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One member changes the list at a time."""
        mine = f"{self.agent.me.name}/{self.agent.me.id}"
        holder = ""

        def mine_now() -> bool:
            nonlocal holder
            holder = self.group.compare_set("lock", "", mine).decode()
            return holder == mine

        while not mine_now():
            try:
                context.wait_until(
                    mine_now, lambda: f"worker {holder} to have joined or left", MEETING_SECONDS
                )
            except WaitTimeout:
                raise WaitTimeout(
                    f"init_rpc or shutdown of {mine}: worker {holder} has been joining or leaving "
                    f"for {MEETING_SECONDS:g} s; if it died meanwhile, the group must start anew"
                ) from None
        try:
            yield
        finally:
            self.group.set("lock", "")


def come(name: str, rank: int, options: RpcBackendOptions) -> Agent:
    """Join the group whose size nobody knows; returns when all its members know this worker."""
    me = WorkerInfo(name, rank)
    place = dataclasses.replace(read_worker_env(None, rank, rank + 1), world_size=-1)
    store = open_store(options.init_method, place)
    try:
        agent = begin(PrefixStore("rpc/members", store), me, options)
        try:
            membership = Membership(store, agent, described(agent, options))
            agent.slots[SLOT] = membership
            part_of(agent).met(me, anew=True)
            membership.join()
        except BaseException:
            give_up(agent)
            raise
    except BaseException:
        store.close()
        raise
    return agent
