"""Remote references for ``rpc_programs``: made, passed on, used through proxies, and dropped.

``REFERENCES`` are the verbs; ``held`` says what a worker still keeps of references.
"""

from __future__ import annotations

from typing import Any

from disttrain import rpc
from disttrain.futures import Future
from disttrain.rpc.calls.current import current_agent
from disttrain.rpc.rref_part import part_of
from support.cases.rpc_programs import PERFORM, Node, _number, name, perform


def _waits(to: int, other: int, node: Node) -> float:
    """The callee answers when a call of its own is answered, and holds no thread meanwhile."""
    return rpc.rpc_sync(name(to), perform_later, (other, node))


@rpc.functions.async_execution
def perform_later(to: int, node: Node) -> Future:
    return rpc.rpc_async(name(to), perform, (node,)).then(lambda f: f.wait())


class Counter:
    """Something that stays where it was made."""

    def __init__(self, start: float) -> None:
        self.total = start

    def add(self, number: float) -> float:
        self.total += number
        return self.total

    @rpc.functions.async_execution
    def add_of(self, to: int, number: float) -> Future:
        future = rpc.rpc_async(name(to), _number, (number,))
        return future.then(lambda f: self.add(f.wait()))


def _remote(to: int, other: int, node: Node) -> float:
    return rpc.remote(name(to), perform, (node,)).to_here()


def _passed(to: int, users: tuple[int, ...], node: Node) -> float:
    """One reference, used by several workers, of which some pass it on."""
    rref = rpc.remote(name(to), perform, (node,))
    futures = [
        rpc.rpc_async(name(user), fetch, (rref, users[i + 1 :][:1])) for i, user in enumerate(users)
    ]
    return rref.to_here() + sum(future.wait() for future in futures)


def fetch(rref: Any, on: tuple[int, ...] = ()) -> float:
    if on:
        return rpc.rpc_sync(name(on[0]), fetch, (rref,))
    return rref.local_value() if rref.is_owner() else rref.to_here()


def _chained(to: int, other: int, node: Node) -> float:
    """A reference to what is made from another reference."""
    first = rpc.remote(name(to), perform, (node,))
    second = rpc.remote(name(other), fetch, (first,))
    del first
    return second.to_here()


def _proxy(to: int, other: int, count: int, number: float) -> float:
    counter = rpc.remote(name(to), Counter, (0.0,))
    counter.rpc_sync().add(number)
    counter.rpc_async().add(number).wait()
    return counter.remote().add_of(other, number).to_here()


def _made_there(to: int, other: int, node: Node) -> float:
    """A reference that somebody else has made, perhaps to what is here."""
    return fetch(rpc.rpc_sync(name(to), make, (other, node)))


def make(owner: int, node: Node) -> Any:
    return rpc.remote(name(owner), perform, (node,))


def _own(to: int, other: int, count: int, number: float) -> float:
    mine = rpc.RRef(number)
    return rpc.rpc_sync(name(to), fetch, (mine, (other,)))


def _dropped(to: int, other: int, count: int, number: float) -> float:
    """References that go before anybody has used them, or their owner has made them."""
    rpc.remote(name(to), _number, (number,))
    kept = rpc.remote(name(to), _number, (number,))
    future = rpc.rpc_async(name(other), fetch, (kept,))
    del kept
    return future.wait()


PERFORM.update(
    waits=_waits,
    remote=_remote,
    passed=_passed,
    chained=_chained,
    proxy=_proxy,
    made_there=_made_there,
    own=_own,
    dropped=_dropped,
)
REFERENCES = ("waits", "remote", "passed", "chained", "proxy", "made_there", "own", "dropped")


def held() -> list[str]:
    """What this worker still keeps of references, whose or for whomever."""
    part = part_of(current_agent())
    part.take()
    users = [f"a fork of {user.name}, {user.state}" for user in part.protocol.users.values()]
    return users + [f"the value of {name}" for name in list(part.protocol.entries)]
