"""How ranks that are to meet come to have links between their hosts (see ``selection``).

Each rank listens on one address until all others have called: on the one from which packets to the
meeting's store leave, or on loopback where the store is on this host for this user only. Every link
begins with the proof of the job's token (``links``); what lies in the store is no secret.

The ranks of a host share memory. Where all are on one host and the program wants this transport all
the same, each rank is a host of its own.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from .... import context
from ....errors import ConfigError, PeerFailed
from ...calls.header import name_ranks
from ...meeting.meeting import Meeting, check_encryption
from ...sockets.handshake import Identity, Refused
from ...sockets.link import Link
from ...sockets.listener import Listener, call_on
from ...sockets.pace import LEAST_PATIENCE
from ...sockets.proof import address_towards, shared_token
from ..shm.bootstrap import share_segment
from ..shm.engine import connect_alone
from .net import Net
from .pipe import Pipe
from .plans import Layout, layout_of
from .transport import world

DEVICES = ("cpu",)
_KINDS = _FRAMES, _PULSE = b"frames", b"pulse"
_LOOPBACK = "127.0.0.1"


def missing() -> str | None:
    """Every machine that this project runs on has sockets."""
    return None


def connect(meeting: Meeting) -> Any:
    """Once all ranks are linked with all ranks of other hosts."""
    if meeting.size == 1:
        return connect_alone(meeting.timeout)
    names = meeting.hosts()
    if len(set(names)) == 1:
        names = [f"{name}/{rank}" for rank, name in enumerate(names)]
    layout = layout_of(names)
    store, rank, size = meeting.store(), meeting.rank, meeting.size
    mates = layout.hosts[layout.host_of[rank]]
    prefix = f"tcp/{layout.host_of[rank]}"
    segment = share_segment(store, rank, size, meeting.timeout, prefix, mates)
    net = Net(segment, rank, layout.host_of, meeting.place.tls)
    net.job = meeting.job
    try:
        _link(meeting, net, layout, segment.arena_bytes)
    except BaseException:
        net.abandon()
        segment.close()
        raise
    return world(segment, net, layout, meeting.epoch, meeting.timeout)


def _link(meeting: Meeting, net: Net, layout: Layout, arena_bytes: int) -> None:
    """Call everybody of another host with a smaller number, and hear all others."""
    store, me = meeting.store(), meeting.rank
    token = shared_token(store, "tcp")
    where = store.meeting_host
    far = [r for r in range(meeting.size) if layout.host_of[r] != layout.host_of[me]]
    identity = Identity(me, token, "ranks", tls=net.sealed)
    guests = _Guests(set(far))
    host = _LOOPBACK if where is None else address_towards(where)
    listener = Listener(identity, host, guests.admit, guests.take, seconds=LEAST_PATIENCE)
    try:
        told = {
            "host": listener.host,
            "port": listener.port,
            "arena": arena_bytes,
            "tls": net.sealed,
        }
        store.set(f"tcp/at/{me}", json.dumps(told))
        found = store.multi_get([f"tcp/at/{r}" for r in range(meeting.size)], meeting.timeout)
        places = [json.loads(bytes(said)) for said in found]
        check_encryption([place.get("tls", False) for place in places])
        _check_alike([place["arena"] for place in places])
        for rank in [r for r in far if r < me]:
            link, pulse = (
                _call(identity, rank, places[rank], what, meeting.timeout) for what in _KINDS
            )
            net.add(Pipe(rank, link, pulse, net))
        guests.wait_for([r for r in far if r > me], meeting.timeout)
    finally:
        listener.close()
    for rank in [r for r in far if r > me]:
        link, pulse = (guests.links[rank, what] for what in _KINDS)
        net.add(Pipe(rank, link, pulse, net))


def _call(me: Identity, rank: int, place: dict, what: bytes, timeout: float) -> Link:
    try:
        return call_on(me, rank, place["host"], place["port"], what, timeout=timeout)[0]
    except Refused as error:
        raise PeerFailed(rank, str(error), where="init_process_group") from None


def _check_alike(arenas: list[int]) -> None:
    if len(set(arenas)) > 1:
        odd = [r for r, size in enumerate(arenas) if size == min(arenas)]
        raise ConfigError(
            f"tcp: {name_ranks(odd)} can map less memory ({min(arenas) >> 20} MiB a rank) than the "
            f"others ({max(arenas) >> 20} MiB); needed is one limit on all hosts (ulimit -v)"
        )


class _Guests:
    """Who has called. Filled by the listener's thread."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self.links: dict[tuple[int, bytes], Link] = {}
        self._came = threading.Event()

    def admit(self, number: int, said: bytes) -> bytes:
        if number not in self._wanted or said not in _KINDS:
            raise Refused(f"rank {number} is not expected here")
        return b""

    def take(self, link: Link) -> None:
        """Who calls once more has lost the link of before."""
        before = self.links.pop((link.number, link.said), None)
        if before is not None:
            before.close()
        self.links[link.number, link.said] = link
        self._came.set()

    def wait_for(self, ranks: list[int], timeout: float) -> None:
        def all_came() -> bool:
            return all((r, what) in self.links for r in ranks for what in _KINDS)

        def what() -> str:
            absent = [r for r in ranks if any((r, kind) not in self.links for kind in _KINDS)]
            return f"init_process_group: {name_ranks(absent)} to call"

        def block(seconds: float) -> None:
            self._came.wait(seconds)
            self._came.clear()

        context.wait_until(all_came, what, timeout, block)
