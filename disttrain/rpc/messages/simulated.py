"""Messages between simulated ranks: queues inside the process, in an order drawn from the seed.

A message arrives when the scheduler draws it, among everything else that could happen: requests of
one peer in the order in which they were sent, answers in any. A request is handled by a task of its
own; an answer is read by a task that waits for one of that peer, or by a new one. Nothing is shared
between sender and receiver: all is copied.

``network().faults`` says what goes wrong; on a simulated cluster, its links say how long a message
takes, and its faults strike here, too. No message arrives twice and none is lost while its
connection lasts, as on a stream; so a lost message is a broken connection, and told to both sides.

Knows the scheduler and workers by number; not what a message means.
"""

from __future__ import annotations

import hmac
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ... import context
from ...comm.transports.sim.fabric import Fabric
from ...comm.transports.sim.fabric import fabric as simulated_cluster
from ...comm.transports.sim.faults import RPC
from ...comm.transports.sim.scheduler import Killed, Scheduler, SimWaiter
from ...errors import CommError, Deadlock, PeerFailed
from .contract.endpoint import Block, ByPeer, OnLost, OnMessage, is_closed, no_address
from .contract.message import Limits, Message, check_arrays

SILENCE = 2.0  # seconds after which a peer that nothing is heard of counts as lost
_SLOT = "messaging"  # of the scheduler
_HUNG_UP = "it has closed its connection: it has ended, or left"
_BROKEN = "the connection broke"
_SILENT = f"nothing was heard of it for {SILENCE:g} s"

_log = logging.getLogger("disttrain.messaging")


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and when.

    ``late``: the share of messages that take time, up to ``delay`` virtual seconds (all others
    arrive before the clock moves). ``kill``: worker -> n: its rank is killed at the n-th message
    (from 1) that it sends or receives. ``breaks``: (worker, worker) -> n: the connection between
    them breaks at their n-th message, which is lost. ``cut_off``: these workers and the others hear
    nothing of each other from ``cut_at`` on.
    """

    late: float = 0.0
    delay: float = 0.01
    kill: Mapping[int, int] = field(default_factory=dict)
    breaks: Mapping[tuple[int, int], int] = field(default_factory=dict)
    cut_off: Collection[int] = ()
    cut_at: float = 0.0

    def separate(self, one: int, other: int, now: float) -> bool:
        """Are these two workers on different sides of a cut?"""
        return (one in self.cut_off) != (other in self.cut_off) and now >= self.cut_at


class Network:
    """All endpoints of a simulation, by address."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.faults = Faults()
        self.endpoints: dict[str, SimulatedEndpoint] = {}
        self.messages: dict[int, int] = {}  # by worker: how many it has sent and received
        self._between: dict[frozenset[int], int] = {}
        self._made = 0
        self.cluster: Fabric | None = simulated_cluster()
        scheduler.when_ended.append(self._ended)

    def new_address(self) -> str:
        self._made += 1
        return f"sim:{self._made}"

    def ask_for(self, faults: Faults) -> None:
        """Ask for ``faults``, from now on."""
        self.faults = faults
        if faults.cut_off:
            self.scheduler.later(max(0.0, faults.cut_at - self.scheduler.clock), self._separate)

    def counts(self, worker: int) -> bool:
        """``worker`` sends or receives a message. Is it killed for that?"""
        self.messages[worker] = number = self.messages.get(worker, 0) + 1
        return self.faults.kill.get(worker) == number

    def breaks(self, one: int, other: int) -> bool:
        """The two are about to exchange a message. Does their connection break at it?"""
        pair = frozenset((one, other))
        self._between[pair] = number = self._between.get(pair, 0) + 1
        at = self.faults.breaks
        return number in (at.get((one, other)), at.get((other, one)))

    def travels(self, src: int, dst: int, message: Message, late: float) -> float:
        """How long a message takes between two ranks of a simulated cluster, which comes so late;
        no longer elsewhere."""
        if self.cluster is None:
            return late
        nbytes = memoryview(message.payload).nbytes + len(message.head)
        nbytes += sum(array.nbytes for array in message.arrays)
        return self.cluster.carry(src, dst, nbytes, late)

    def delay(self) -> float:
        """How long the next message takes."""
        draw, faults = self.scheduler.random, self.faults
        return draw.uniform(0.0, faults.delay) if draw.random() < faults.late else 0.0

    def _separate(self) -> None:
        for endpoint in list(self.endpoints.values()):
            endpoint._fall_silent()

    def _ended(self, rank: int) -> None:
        for endpoint in list(self.endpoints.values()):
            if endpoint.place.rank == rank:
                endpoint._shut()


def network() -> Network:
    """The network of the simulation that the calling thread belongs to."""
    scheduler = _scheduler()
    found = scheduler.slots.get(_SLOT)
    if found is None:
        found = scheduler.slots[_SLOT] = Network(scheduler)
    return found


def _scheduler() -> Scheduler:
    waiter = context.current().waiter
    if not isinstance(waiter, SimWaiter):
        raise CommError("simulated endpoints are for simulated ranks (distributed.simulate)")
    return waiter.scheduler


class _Peer:
    """What an endpoint (``owner``) knows of one peer. ``asks``: the peer's side of the connection
    for the owner's requests and their answers; ``serves``: of that for the peer's requests."""

    __slots__ = (
        "address",
        "answers",
        "asks",
        "coming",
        "ending",
        "lost",
        "number",
        "owner",
        "requests",
        "serves",
    )

    def __init__(self, owner: SimulatedEndpoint, number: int) -> None:
        self.owner, self.number = owner, number
        self.address = ""
        self.asks: _Peer | None = None
        self.serves: _Peer | None = None
        self.lost: PeerFailed | None = None
        self.requests: deque[Message] = deque()  # on their way here
        self.answers: deque[Message] = deque()  # here, and nobody has read them yet
        self.coming = 0  # messages that were sent here and not taken yet
        self.ending: str | None = None  # what the peer is lost by when all of them are

    def ends(self) -> list[_Peer]:
        """The peer's side of what leads to and from it."""
        return [end for end in {self.asks: 0, self.serves: 0} if end is not None]


class _Reader:
    """How a task waits for an answer of one peer: it reads what has come."""

    __slots__ = ("_peer",)

    def __init__(self, peer: _Peer) -> None:
        self._peer = peer

    def pending(self) -> bool:
        return bool(self._peer.answers)

    def __call__(self, seconds: float) -> None:
        self._peer.owner._read(self._peer)


class SimulatedEndpoint(ByPeer):
    """See ``Endpoint``. To be made by a simulated rank."""

    def __init__(self, me: int, token: bytes, limits: Limits | None = None) -> None:
        super().__init__(me, token, limits)
        self.place = context.current()
        self.network = network()
        self.address = self.network.new_address()
        self.network.endpoints[self.address] = self
        self._where = f"worker {me}"
        self._peers: dict[int, _Peer] = {}
        self._waiting: deque[tuple[_Peer, Message]] = deque()  # requests that nobody handles yet
        self._handling = 0
        self._serves = self._closed = False
        self._on_message: OnMessage
        self._on_lost: OnLost

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._serves = True
        self._handle()
        for peer in list(self._peers.values()):
            self._end_if_empty(peer)

    # --- connecting ------------------------------------------------------------------------------

    def _anew(self, number: int) -> _Peer:
        self._peers[number] = anew = _Peer(self, number)
        return anew

    def _peer(self, number: int) -> _Peer:
        if self._closed:
            raise is_closed(self._where)
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = _Peer(self, number)
        return peer

    def _asking(self, peer: _Peer) -> _Peer:
        """The other side of the connection for requests, made where it is missing."""
        if peer.lost is not None:
            raise peer.lost.again()
        if peer.asks is None:
            if not peer.address:
                raise no_address(self._where, peer.number)
            other = self.network.endpoints.get(peer.address)
            if other is None or self._is_cut(peer):
                raise PeerFailed(
                    peer.number, f"nobody answers at {peer.address}", where="connecting"
                )
            if other.me != peer.number or not hmac.compare_digest(self.token, other.token):
                raise PeerFailed(
                    peer.number, f"who answers at {peer.address} is not it", where="connecting"
                )
            peer.asks = other._admit(peer)
        return peer.asks

    def _admit(self, caller: _Peer) -> _Peer:
        """A peer will send requests here."""
        number = caller.owner.me
        peer = self._peers.get(number)
        if peer is None or peer.lost is not None or peer.serves is not None:
            if peer is not None and peer.lost is None:  # it has begun anew
                self._tell_lost(peer, "it has connected anew")
            peer = self._peers[number] = _Peer(self, number)
        peer.serves = caller
        return peer

    # --- sending ---------------------------------------------------------------------------------

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        to = self._peer(peer)
        size = memoryview(message.payload).nbytes
        array_bytes = check_arrays(message.arrays, self._where) if message.arrays else 0
        self.limits.check(len(message.head), size, len(message.arrays), array_bytes, self._where)
        if to.lost is not None:
            raise to.lost.again()
        cluster = self.network.cluster
        late = 0.0 if cluster is None else cluster.call(self.place, RPC).delay
        if message.answers:
            if to.serves is None:
                raise no_address(self._where, peer)
            end = to.serves
        else:
            end = self._asking(to)
        self._post(to, end, _copy(message), late)
        self._let_others_go_on()

    def _post(self, to: _Peer, end: _Peer, message: Message, late: float) -> None:
        net, draw = self.network, self.network.scheduler.random
        late = net.travels(_seat(self), _seat(end.owner), message, late)
        if net.counts(self.me):
            if draw.random() < 0.5:
                end.owner._expect(end, message, late)
            net.scheduler.end_rank(self.place.rank)
            raise Killed("killed")
        if net.breaks(self.me, to.number):
            self._hang_up(to, _BROKEN)
            end.owner._hang_up(end, _BROKEN)
        elif not end.owner._closed:
            end.owner._expect(end, message, late)
        elif draw.random() < 0.5:  # one finds out by sending, or is told later
            raise self._lose(to, _HUNG_UP).again()

    def _let_others_go_on(self) -> None:
        """What follows a send may happen after its answer was sent."""
        scheduler = self.network.scheduler
        if scheduler.running is not None and scheduler.running is context.thread.task:
            context.wait_until(_always, lambda: "its turn", None, _nothing)

    # --- arriving: events of the scheduler -------------------------------------------------------

    def _expect(self, peer: _Peer, message: Message, late: float) -> None:
        """``message`` is on its way here, which takes ``late`` seconds at least."""
        peer.coming += 1
        if message.answers:
            arrive: Callable[[], None] = partial(self._answer_arrives, peer, message)
        else:
            peer.requests.append(message)
            arrive = partial(self._request_arrives, peer)
        self.network.scheduler.later(late + self.network.delay(), arrive)

    def _arrives(self, peer: _Peer) -> bool:
        """A message has come. Is anybody there for it?"""
        net = self.network
        if self._closed or peer.lost is not None or self._is_cut(peer):
            peer.coming -= 1
            return False
        if net.counts(self.me):
            net.scheduler.end_rank(self.place.rank)
            return False
        return True

    def _request_arrives(self, peer: _Peer) -> None:
        message = peer.requests.popleft()
        if self._arrives(peer):
            self._waiting.append((peer, message))
            self._handle()

    def _answer_arrives(self, peer: _Peer, message: Message) -> None:
        if self._arrives(peer):
            peer.answers.append(message)
            self.network.scheduler.later(0.0, partial(self._read_beside, peer))

    def _read_beside(self, peer: _Peer) -> None:
        """No task that waits has read an answer so far."""
        if peer.answers and not self._closed:
            self._start(partial(self._read, peer), "answers")

    def _handle(self) -> None:
        """Begin with the requests that wait, as far as there may be tasks for them."""
        while self._waiting and self._serves and self._handling < self.limits.threads:
            peer, message = self._waiting.popleft()
            self._handling += 1
            self._start(partial(self._serve_one, peer, message), f"request of worker {peer.number}")
            peer.coming -= 1
            self._end_if_empty(peer)

    # --- tasks -----------------------------------------------------------------------------------

    def _serve_one(self, peer: _Peer, message: Message) -> None:
        try:
            self._deliver(peer, message)
        finally:
            self._handling -= 1
            self._handle()

    def _read(self, peer: _Peer) -> None:
        """Take one answer, if there is any."""
        if peer.answers:
            message = peer.answers.popleft()
            self._deliver(peer, message)
            peer.coming -= 1
            self._end_if_empty(peer)

    def _deliver(self, peer: _Peer, message: Message) -> None:
        if self._closed:
            return
        try:
            self._on_message(peer.number, message)
        except Deadlock:
            raise
        except Exception:
            if not self._closed:
                _log.exception("%s: handling %r failed", self._where, message)

    def _start(self, body: Callable[[], None], name: str) -> None:
        with context.attach(self.place):
            context.start_thread(body, name)

    def waiting(self, peer: int, call: int = 0) -> Block:
        to = self._peer(peer)
        if to.asks is None and to.lost is None:
            self._asking(to)
        return _Reader(to)

    # --- the end ---------------------------------------------------------------------------------

    def _hang_up(self, peer: _Peer, cause: str) -> None:
        """``peer`` is lost once all that it had sent was taken. (Across a cut, silence tells.)"""
        if peer.ending is None and not self._is_cut(peer):
            peer.ending = cause
            self.network.scheduler.later(self.network.delay(), partial(self._end_if_empty, peer))

    def _is_cut(self, peer: _Peer) -> bool:
        return self.network.faults.separate(self.me, peer.number, self.network.scheduler.clock)

    def _end_if_empty(self, peer: _Peer) -> None:
        if peer.ending is not None and peer.coming == 0 and self._serves:
            self._tell_lost(peer, peer.ending)

    def _tell_lost(self, peer: _Peer, cause: str) -> None:
        if peer.lost is None and not self._closed:

            def lose() -> None:
                self._lose(peer, cause)

            self._start(lose, f"loss of worker {peer.number}")

    def _lose(self, peer: _Peer, cause: str) -> PeerFailed:
        """Tell whoever waits for it, once."""
        if peer.lost is not None:
            return peer.lost
        peer.lost = lost = PeerFailed(peer.number, cause)
        peer.answers.clear()
        for end in peer.ends():
            end.owner._hang_up(end, _HUNG_UP)
        told = self._peers.get(peer.number) is peer and not self._closed and self._serves
        if told:
            try:
                self._on_lost(peer.number, lost.again())
            except Deadlock:
                raise
            except Exception:
                _log.exception("%s: telling that worker %d is lost", self._where, peer.number)
        return lost

    def _fall_silent(self) -> None:
        """A cut has begun: whoever is on its other side is lost, after a while."""
        scheduler = self.network.scheduler
        for peer in list(self._peers.values()):
            if self._is_cut(peer):
                wait = scheduler.random.uniform(SILENCE / 2, SILENCE)
                scheduler.later(wait, partial(self._tell_lost, peer, _SILENT))

    def disconnect(self, peer: int) -> None:
        gone = self._peers.pop(peer, None)
        if gone is not None:
            gone.lost = gone.lost or PeerFailed(peer, "it was disconnected here")
            gone.answers.clear()
            for end in gone.ends():
                end.owner._hang_up(end, _HUNG_UP)

    def close(self) -> None:
        self._shut()

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        del self.network.endpoints[self.address]
        self._waiting.clear()
        for peer in self._peers.values():
            peer.lost = peer.lost or PeerFailed(peer.number, "the endpoint was closed here")
            peer.answers.clear()
            for end in peer.ends():
                end.owner._hang_up(end, _HUNG_UP)


def _seat(endpoint: SimulatedEndpoint) -> int:
    """The rank that an endpoint belongs to, as the scheduler numbers them."""
    waiter = endpoint.place.waiter
    assert isinstance(waiter, SimWaiter)
    return waiter.rank


def _copy(message: Message) -> Message:
    arrays = [np.array(array, order="C") for array in message.arrays]
    head, payload = bytes(message.head), bytes(message.payload)
    return Message(message.kind, message.call, message.answers, head, payload, arrays)


def _always() -> bool:
    return True


def _nothing(seconds: float) -> None:
    """Others go on in between."""
