"""The ranks of a group meet at each call: headers are compared before data moves.

Each call begins with a small message from every rank to those that ``rounds`` names: its
fingerprint (``header``), and in groups of one round what it has to give, where that is small. Who
has not come is known by name. Where headers differ, all tell all what they have called lately, and
the error is the same on all ranks.

Knows MPI, headers and bytes; no verbs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....errors import CollectiveMismatch
from ...calls.header import SIZE, Call, difference, list_calls, mismatch_text, name_ranks
from .notices import CALL, Edge, Wait
from .rounds import RADIX, rounds
from .station import Need, Station

# Of data in a header's message, by ranks of the group, and together for all peers of a rank.
SMALL_BYTES, _SMALL_TOGETHER = 128 << 10, 448 << 10
# Tags: those of headers are the numbers of rounds; MPI promises 32767 of them.
TEXTS_AT, DATA_AT, MESSAGES_AT, ENVELOPES = 1024, 2048, 12288, 40
_NUM_TEXTS, _NUM_DATA = 1024, 8192
_REMEMBERED = 32  # calls
_MAX_KEPT = 64  # sends that are kept for sizes of data

Steps = Generator[Need, None, Any]


class Requests:
    """A ``Need``: MPI requests of a transfer between ranks that have all come.

    Most transfers move only while both sides look, so this looks a while before it says no.
    """

    __slots__ = ("_entered", "_group", "_looks", "_testall", "list")

    def __init__(self, group: Group, entered: Entered, requests: list, looks: int = 1) -> None:
        self.list, self._group, self._entered, self._looks = requests, group, entered, looks
        self._testall = group.MPI.Request.Testall

    def __call__(self) -> bool:
        for _ in range(self._looks):  # noqa: SIM110  (speed)
            if self._testall(self.list):
                return True
        return False

    def what(self) -> str:
        return f"{self._group.here(self._entered)}; all have arrived, and data still moves"

    def waits(self) -> Wait | None:
        return None


class Group:
    """A communicator with the ranks of a group: what its calls and messages share.

    ``key`` names this group and no other one of the job; ``ranks``: of the members in the world."""

    def __init__(self, station: Station, comm: Any, key: str, name: str) -> None:
        self.station, self.MPI, self.comm = station, station.MPI, comm
        self.key, self.name = key, name
        self.rank, self.size = comm.rank, comm.size
        theirs, world = comm.group, station.world.group
        self.ranks: list[int] = self.MPI.Group.Translate_ranks(theirs, None, world)
        self.seq = 0

    def here(self, entered: Entered) -> str:
        """The call and its place, for messages."""
        return f"{entered.call.text} (operation {entered.seq} of group {self.name})"


class Entered(NamedTuple):
    """A call that this rank has made, and its number in the group."""

    call: Call
    seq: int

    @property
    def print_(self) -> bytes:
        """Its fingerprint."""
        return self.seq.to_bytes(8, "little") + self.call.tail

    @property
    def texts(self) -> int:
        """The tag of what ranks tell each other of it."""
        return TEXTS_AT + self.seq % _NUM_TEXTS

    def data(self, phase: int) -> int:
        """The tag of its data in one of two phases."""
        return DATA_AT + (2 * self.seq + phase) % _NUM_DATA


class Arrived:
    """A ``Need``: the headers of one round have come."""

    __slots__ = ("_entered", "_group", "_last", "_members", "_requests", "_testall")

    def __init__(
        self, group: Group, requests: list, members: Sequence[int], entered: Entered
    ) -> None:
        self._group, self._requests, self._members = group, requests, members
        self._testall = group.MPI.Request.Testall
        self._entered = entered
        self._last = entered.call.op == "close"  # those who have left before need not come

    def __call__(self) -> bool:
        if self._testall(self._requests):
            return True
        return self._last and not self.missing()

    def absent(self) -> list[int]:
        """The members that have not come, whether or not they will."""
        pairs = zip(self._members, self._requests, strict=False)
        return [member for member, request in pairs if not request.Get_status()]

    def missing(self) -> list[int]:
        """The ranks in the world that have still to come."""
        ranks = [self._group.ranks[member] for member in self.absent()]
        if not (self._last and ranks):
            return ranks
        call, seq = self._entered
        return _still_here(self._group, ranks, seq - 1, call.text)

    def what(self) -> str:
        late = self.missing()
        have = "has" if len(late) == 1 else "have"
        who = f"{name_ranks(late)} {have} not arrived" if late else "all have arrived"
        return f"{self._group.here(self._entered)}; {who}"

    def waits(self) -> Wait | None:
        key, seq = self._group.key, self._entered.seq
        return Wait(tuple(Edge(rank, CALL, key, seq) for rank in self.missing()))


def _still_here(group: Group, ranks: Sequence[int], seq: int, mine: str) -> list[int]:
    """Those of ``ranks`` that have not left. Raises ``CollectiveMismatch`` where one has left after
    another number of calls than ``seq``."""
    left = {rank: group.station.board.left_at(group.key, rank) for rank in ranks}
    calls = {
        rank: f"nothing more: it has left the group after {at} operations"
        for rank, at in left.items()
        if at is not None and at != seq
    }
    if calls:
        calls[group.station.rank] = mine
        where = f"group {group.name}"
        raise CollectiveMismatch(mismatch_text(where, seq + 1, "number of calls", calls))
    return [rank for rank, at in left.items() if at is None]


def small_bytes(size: int) -> int:
    """How much data comes with a header in a group of ``size`` ranks that meet in one round."""
    return min(SMALL_BYTES, _SMALL_TOGETHER // max(1, size - 1))


class Arrivals:
    """The meetings of one group, in order. ``small``: bytes of data that a header may bring."""

    def __init__(self, group: Group, radix: int = RADIX) -> None:
        self.group = group
        self.rounds = rounds(group.rank, group.size, radix)
        self.flat = group.size <= radix  # one round: data may come with headers
        self.small = small_bytes(group.size) if self.flat else 0
        room = SIZE + (self.small or 1)
        comm, byte = group.comm, group.MPI.BYTE
        self.heard = [[np.zeros(room, np.uint8) for _ in each.of] for each in self.rounds]
        self._recvs = [
            [comm.Recv_init([b, byte], src, tag) for b, src in zip(into, each.of, strict=True)]
            for tag, (each, into) in enumerate(zip(self.rounds, self.heard, strict=True))
        ]
        self.views = [b.data[:SIZE] for b in (self.heard[0] if self.heard else ())]
        self.mine = np.zeros(room, np.uint8)
        self.mine_view = self.mine.data
        self._kept: dict[int, list] = {}  # bytes of data -> receives and sends, to start together
        self._remembered: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._startall = group.MPI.Prequest.Startall
        self._testall = group.MPI.Request.Testall

    # -- at once ------------------------------------------------------------------------------

    def begin(self, call: Call, payload: np.ndarray | None = None) -> tuple[list, bytes]:
        """In a group of one round with nothing in flight: post the header (and data) and the
        receives. (the requests, the fingerprint)"""
        group = self.group
        group.seq = seq = group.seq + 1
        self._remembered.append((seq, call.text))
        print_ = seq.to_bytes(8, "little") + call.tail
        view = self.mine_view
        view[:SIZE] = print_
        nbytes = 0
        if payload is not None:
            nbytes = payload.nbytes
            self.mine[SIZE : SIZE + nbytes] = payload
        requests = self._kept.get(nbytes)
        if requests is None:
            requests = self._keep(nbytes)
        if requests:
            self._startall(requests)
        return requests, print_

    def _keep(self, nbytes: int) -> list:
        if not self.rounds:
            return []
        if len(self._kept) >= _MAX_KEPT:
            for old in self._kept.values():
                for request in old[len(self._recvs[0]) :]:
                    request.Free()
            self._kept.clear()
        comm, byte = self.group.comm, self.group.MPI.BYTE
        sends = [
            comm.Send_init([self.mine, SIZE + nbytes, byte], to, 0) for to in self.rounds[0].to
        ]
        self._kept[nbytes] = requests = [*self._recvs[0], *sends]
        return requests

    def arrived(self, requests: list, entered: Entered) -> Arrived:
        """The need that ``begin``'s requests have come."""
        of = self.rounds[0].of if self.rounds else ()
        return Arrived(self.group, requests, of, entered)

    def same(self, print_: bytes) -> bool:
        """Do all headers of the one round equal ``print_``?"""
        for view in self.views:  # noqa: SIM110  (speed)
            if view != print_:
                return False
        return True

    def compare_counts(self) -> None:
        """Raise ``CollectiveMismatch`` where a member has left after another number of calls."""
        group = self.group
        others = [rank for rank in group.ranks if rank != group.station.rank]
        _still_here(group, others, group.seq, "the end of its program")

    # -- in steps -----------------------------------------------------------------------------

    def post(self, call: Call, payload: np.ndarray | None = None) -> Posted:
        """Tell those of the first round that this rank has come; the rest is in ``meet``."""
        self.group.seq += 1
        entered = Entered(call, self.group.seq)
        self._remembered.append((entered.seq, call.text))
        data = bytearray(entered.print_)
        if not self.flat:
            data += b"\1"
        elif payload is not None:
            data += payload.tobytes()
        return Posted(self, entered, data, self.remembered())

    def send(self, data: object, number: int) -> list:
        """Start sending a header in round ``number``."""
        comm, byte = self.group.comm, self.group.MPI.BYTE
        return [comm.Isend([data, byte], to, number) for to in self.rounds[number].to]

    def start(self, number: int) -> list:
        """Start receiving those of round ``number``."""
        self._startall(self._recvs[number])
        return self._recvs[number]

    def cancel(self) -> None:
        """Give up receives from ranks that will not come, and give back what was prepared."""
        requests = [r for each in self._recvs for r in each]
        for request in requests:
            if not request.Get_status():
                request.Cancel()
        self._testall(requests)

    def remembered(self) -> list[tuple[int, str]]:
        """The latest calls and their numbers."""
        return list(self._remembered)


class Posted:
    """One call whose header was sent."""

    __slots__ = ("_arrivals", "_data", "_history", "_sends", "entered")

    def __init__(self, arrivals: Arrivals, entered: Entered, data: Any, history: list) -> None:
        self._arrivals, self.entered = arrivals, entered
        self._data, self._history = data, history
        self._sends = arrivals.send(data, 0) if arrivals.rounds else []

    def meet(self) -> Steps:
        """Compare headers with all ranks. Raises ``CollectiveMismatch`` on all alike."""
        arrivals, print_, same = self._arrivals, self.entered.print_, True
        gone: list[int] = []
        size = len(print_)
        for number, each in enumerate(arrivals.rounds):
            if number:
                told = bytearray(print_ + bytes([same]))
                self._data, self._sends = told, arrivals.send(told, number)
            requests = [*arrivals.start(number), *self._sends]
            arrived = Arrived(arrivals.group, requests, each.of, self.entered)
            yield arrived
            gone = arrived.absent() if self.entered.call.op == "close" else []
            for member, message in zip(each.of, arrivals.heard[number], strict=True):
                if member in gone:
                    continue
                data = message[: size + 1].tobytes()
                same = same and data[:size] == print_
                same = same and (arrivals.flat or data[size] == 1)
        if not same:
            yield from differing(arrivals.group, self.entered, self._history, without=gone)


class _Texts:
    """A ``Need``: what all members have called lately."""

    def __init__(self, group: Group, entered: Entered, others: list[int]) -> None:
        self.heard: dict[int, bytes] = {}
        self._group, self._entered, self._others = group, entered, others

    def __call__(self) -> bool:
        group, MPI = self._group, self._group.MPI
        for member in self._others:
            if member in self.heard:
                continue
            status = MPI.Status()
            message = group.comm.Improbe(member, self._entered.texts, status)
            if message is not None:
                data = bytearray(status.Get_count(MPI.BYTE))
                message.Recv([data, MPI.BYTE])
                self.heard[member] = bytes(data)
        return len(self.heard) == len(self._others)

    def what(self) -> str:
        return f"{self._group.here(self._entered)}; what the others have called"

    def waits(self) -> Wait | None:
        return None


def differing(
    group: Group,
    entered: Entered,
    history: list,
    field: str = "",
    detail: str = "",
    without: Sequence[int] = (),
) -> Steps:
    """All tell all what they have called, but members who are gone (``without``). Raises
    ``CollectiveMismatch`` where that does not fit, or where it does, but ``field`` does not: then
    with ``detail``."""
    byte, seq = group.MPI.BYTE, entered.seq
    told = json.dumps([entered.print_.hex(), history]).encode()
    others = [r for r in range(group.size) if r != group.rank and r not in without]
    sends = [group.comm.Isend([told, byte], r, entered.texts) for r in others]
    texts = _Texts(group, entered, others)
    yield texts
    yield Requests(group, entered, sends)
    said: dict[int, Any] = {r: json.loads(data) for r, data in texts.heard.items()}
    said[group.rank] = json.loads(told)
    field = difference([bytes.fromhex(each[0]) for each in said.values()]) or field
    if not field:
        return
    past = {group.ranks[r]: dict(each[1]) for r, each in said.items()}
    calls = {rank: each.get(seq, "nothing yet") for rank, each in past.items()}
    text = mismatch_text(f"group {group.name}", seq, field, calls)
    raise CollectiveMismatch("\n".join(filter(None, [text, detail, _first_apart(past, seq)])))


def _first_apart(past: dict[int, dict[int, str]], seq: int) -> str:
    """The first operation on record that ranks called alike, but from different lines. That is
    legal, and it is what a skipped or repeated call looks like."""
    for number in range(seq - _REMEMBERED + 1, seq):
        if not all(number in each for each in past.values()):
            continue
        calls = {rank: each[number] for rank, each in past.items()}
        if len({text.rpartition(" at ")[2] for text in calls.values()}) > 1:
            head = f"Before that, operation {number} came from different lines:"
            return "\n".join([head, *list_calls(calls)])
    return ""
