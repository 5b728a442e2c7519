"""Send and receive between two ranks of a group, matched by (source, tag) in order.

A message begins with an envelope, which has its fingerprint, its tag (of 32 bits, more than MPI
promises), its text, and the data where that is small; larger data follows as a message of its own,
from array to array. Envelopes are compared before data moves: one that does not fit is refused,
by an envelope back, and its data dropped.

Knows MPI, headers and bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ....errors import CollectiveMismatch
from ...calls.header import SIZE, TEXT_BYTES, Call, difference, mismatch_text, told_text
from ...calls.work import Work
from .arrival import ENVELOPES, MESSAGES_AT, Group
from .notices import MAIL, TAKE, Edge, Wait

INLINE_BYTES = 4096
_NUM_TAGS = 16384
_KEY = struct.Struct("<QQQ")  # tag, bytes, kind
_TEXT_AT = SIZE + _KEY.size
_INLINE_AT = _TEXT_AT + 2 + TEXT_BYTES
_MESSAGE, _REFUSAL = 0, 1


class _Message(Work):
    """A send or a receive in flight; also the ``Need`` of whoever waits for it."""

    __slots__ = ("box", "call", "data", "number", "peer", "requests", "timeout")

    def __init__(self, box: Mailbox, call: Call, array: np.ndarray, peer: int | None) -> None:
        super().__init__()
        self.box, self.call, self.peer = box, call, peer
        self.data = array.view(np.uint8)
        self.requests: list[Any] = []
        self.number = 0  # among those of its pair; 0 while it is not known
        self.timeout = 0.0

    def _poll(self) -> None:
        self.box.group.station.progress()

    def _block(self, timeout: float | None) -> None:
        self.box.group.station.wait(self, self.timeout if timeout is None else timeout)

    def __call__(self) -> bool:
        return self._done

    def what(self) -> str:
        who = "any" if self.peer is None else self.box.group.ranks[self.peer]
        return f"{self.call.text}; rank {who} has not come"

    def waits(self) -> Wait | None:
        raise NotImplementedError


class _Send(_Message):
    __slots__ = ()

    def waits(self) -> Wait | None:
        assert self.peer is not None
        group = self.box.group
        return Wait((Edge(group.ranks[self.peer], TAKE, group.key, self.number),))


class _Recv(_Message):
    __slots__ = ("tag",)

    tag: int

    def waits(self) -> Wait | None:
        if self.number:
            return None
        box, group = self.box, self.box.group
        sources = range(group.size) if self.peer is None else (self.peer,)
        edges = [
            Edge(group.ranks[src], MAIL, group.key, box.seen[src])
            for src in sources
            if src != group.rank or self.peer == src
        ]
        return Wait(tuple(edges), any=True)


class Mailbox:
    """All messages of one rank in one group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.sent, self.seen = [0] * group.size, [0] * group.size
        self._letters: list[tuple[int, int, bytearray]] = []  # (source, tag, envelope), unclaimed
        self._recvs: list[_Recv] = []
        self._sends: list[_Send] = []
        self._leaving: list[tuple[Any, Any]] = []  # requests, and the memory that they read
        self._refused: dict[int, str] = {}

    @property
    def busy(self) -> bool:
        """Is anything on its way that MPI has the memory of?"""
        self._sweep()
        return bool(self._recvs or self._sends or self._leaving)

    # -- sending ------------------------------------------------------------------------------

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int, timeout: float) -> Work:
        """Start sending ``array`` to member ``dst``."""
        message = _Send(self, call, array, dst)
        message.timeout = timeout
        with self.group.station.lock:
            self._sweep()
            self._open()
            if dst in self._refused:
                raise CollectiveMismatch(self._refused.pop(dst))
            self.sent[dst] += 1
            message.number = self.sent[dst]
            nbytes = message.data.nbytes
            small = nbytes <= INLINE_BYTES or dst == self.group.rank
            envelope = bytearray(_INLINE_AT)
            envelope[:SIZE] = message.number.to_bytes(8, "little") + call.tail
            _KEY.pack_into(envelope, SIZE, tag, nbytes, _MESSAGE)
            envelope[_TEXT_AT : _TEXT_AT + len(call.told)] = call.told
            if small:
                envelope += message.data.tobytes()
            self._post(dst, tag, envelope)
            if small:
                message._end()
            else:
                message.requests.append(self._isend(message.data, dst, _data_tag(message.number)))
                self._sends.append(message)
                self._go_on()
        return message

    def _post(self, dst: int, tag: int, envelope: bytearray) -> None:
        if dst == self.group.rank:
            self.seen[dst] += 1
            self._letters.append((dst, tag, envelope))
            self._match()
        else:
            self._leaving.append((self._isend(envelope, dst, ENVELOPES), envelope))

    def _isend(self, data: bytearray | np.ndarray, dst: int, tag: int) -> Any:
        return self.group.comm.Isend([data, self.group.MPI.BYTE], dst, tag)

    def _sweep(self) -> None:
        if self._leaving:
            self._leaving = [item for item in self._leaving if not item[0].Test()]

    # -- receiving ----------------------------------------------------------------------------

    def recv(
        self, call: Call, array: np.ndarray, src: int | None, tag: int, timeout: float
    ) -> Work:
        """Start receiving from member ``src`` (None: any); the result is the source."""
        message = _Recv(self, call, array, src)
        message.timeout, message.tag = timeout, tag
        with self.group.station.lock:
            self._recvs.append(message)
            self._go_on()
        return message

    def _go_on(self) -> None:
        pending = self.group.station.pending
        if self not in pending:
            pending.append(self)
        self.advance()

    def advance(self) -> None:
        """Go on with everything as far as possible. Never blocks."""
        self._sweep()
        self._open()
        self._match()
        for sent in [s for s in self._sends if s.requests[0].Test()]:
            self._sends.remove(sent)
            assert sent.peer is not None
            refused = self._refused.pop(sent.peer, None)
            sent._end(None, None if refused is None else CollectiveMismatch(refused))
        for got in [r for r in self._recvs if r.requests and r.requests[0].Test()]:
            self._recvs.remove(got)
            got._end(got.peer)
        pending = self.group.station.pending
        if not (self._recvs or self._sends) and self in pending:
            pending.remove(self)

    def _open(self) -> None:
        """Take in the envelopes that have come."""
        MPI, comm = self.group.MPI, self.group.comm
        status = MPI.Status()
        while True:
            message = comm.Improbe(MPI.ANY_SOURCE, ENVELOPES, status)
            if message is None:
                return
            envelope, src = bytearray(status.Get_count(MPI.BYTE)), status.source
            message.Recv([envelope, MPI.BYTE])
            tag, _, kind = _KEY.unpack_from(envelope, SIZE)
            if kind == _REFUSAL:
                self._refused[src] = envelope[_TEXT_AT:].decode(errors="replace")
            else:
                self.seen[src] += 1
                self._letters.append((src, tag, envelope))

    def _match(self) -> None:
        """Give letters to those who want them, first come, first served."""
        if not self._letters:
            return
        for message in [r for r in self._recvs if not r.number]:
            for letter in self._letters:
                src, tag, envelope = letter
                if tag == message.tag and message.peer in (None, src):
                    self._letters.remove(letter)
                    self._take(message, src, envelope)
                    break

    def _take(self, message: _Recv, src: int, envelope: bytearray) -> None:
        theirs = bytes(envelope[:SIZE])
        number = message.number = int.from_bytes(theirs[:8], "little")
        _, nbytes, _ = _KEY.unpack_from(envelope, SIZE)
        inline = nbytes <= INLINE_BYTES or src == self.group.rank
        field = difference([theirs, theirs[:8] + message.call.tail])
        if field:
            self._refuse(message, src, envelope, field)
            if not inline:
                scratch = np.empty(nbytes, np.uint8)
                self._leaving.append((self._irecv(scratch, src, number), scratch))
            return
        message.peer = src
        if inline:
            message.data[...] = np.frombuffer(envelope, np.uint8, nbytes, _INLINE_AT)
            self._recvs.remove(message)
            message._end(src)
        else:
            message.requests.append(self._irecv(message.data, src, number))

    def _irecv(self, into: np.ndarray, src: int, number: int) -> Any:
        return self.group.comm.Irecv([into, self.group.MPI.BYTE], src, _data_tag(number))

    def _refuse(self, message: _Recv, src: int, envelope: bytearray, field: str) -> None:
        """Both sides get the error."""
        ranks = self.group.ranks
        told = told_text(bytes(envelope[_TEXT_AT:_INLINE_AT]))
        calls = {ranks[src]: told, ranks[self.group.rank]: message.call.text}
        text = mismatch_text("send and recv", message.number, field, calls)
        answer = bytearray(_TEXT_AT) + text.encode()
        _KEY.pack_into(answer, SIZE, 0, 0, _REFUSAL)
        if src == self.group.rank:
            self._refused[src] = text
        else:
            self._leaving.append((self._isend(answer, src, ENVELOPES), answer))
        self._recvs.remove(message)
        message._end(None, CollectiveMismatch(text))


def _data_tag(number: int) -> int:
    return MESSAGES_AT + number % _NUM_TAGS
