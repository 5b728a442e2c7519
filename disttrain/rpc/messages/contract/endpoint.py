"""What every transport of messages does: the contract, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ....errors import CommError
from .message import Limits, Message

OnMessage = Callable[[int, Message], None]
OnLost = Callable[[int, BaseException], None]
Block = Callable[[float], None]


class Endpoint(ABC):
    """One worker's end of all its connections. Every method may be called from any thread.

    ``me``: the number of this worker (0 to 65535), under which its peers know it. ``token``: the
    secret of all workers; who does not prove to know it is not heard. ``address``: what peers give
    to ``connect``; text of at most 1 KB.

    A worker may be its own peer. A peer that is lost stays lost: sending raises the same error,
    until ``connect`` gives another address for it.
    """

    address: str
    patience = 2.0  # seconds for a handshake, where ``limits`` say none

    def __init__(self, me: int, token: bytes, limits: Limits | None = None) -> None:
        self.me, self.token = me, token
        self.limits = (Limits() if limits is None else limits).within(self.patience)

    @abstractmethod
    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        """Begin to hear. Called once; before it, requests wait, and nothing is lost.

        ``on_message(peer, request)`` runs on a thread of the endpoint, which belongs to the rank of
        the thread that called ``serve``. It may block and call others: there is always a thread for
        the next message (up to ``limits.threads``). ``on_message(peer, answer)`` runs on any
        thread, often one that waits for another answer, so it must be short and must not wait.
        Requests of one peer are taken in the order in which they were sent, each on its own thread;
        nothing is said about answers.

        ``on_lost(peer, error)`` tells once that a peer is gone; ``error`` is a ``PeerFailed`` whose
        cause says how. It comes after all that the peer had sent. A peer that disconnects or closes
        is lost, too. What either of them raises is logged, and goes nowhere else.
        """

    @abstractmethod
    def introduce(self, peer: int, address: str) -> None:
        """Say where ``peer`` is, so that the first ``send`` connects."""

    @abstractmethod
    def connect(self, peer: int, address: str) -> None:
        """``introduce``, and connect now. Does nothing where the connection is there.

        Both sides prove that they know the token before either reads anything else. Raises
        ``PeerFailed`` where nobody answers, or somebody who is not ``peer``.
        """

    @abstractmethod
    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        """Send; returns when the caller may change its arrays and payload again.

        ``awaited``: the caller waits for the answer on ``waiting(peer)``, or calls ``look_out``, so
        that no other thread needs to look out for it yet. Until then the answer may lie unread for
        half a second.

        Requests connect where needed. An answer goes to who sent the request. Raises ``PeerFailed``
        where the peer is lost (its message, if any, may or may not have arrived),
        ``MessageTooLarge`` and ``DTypeError`` with nothing sent, ``CommError`` where ``peer`` was
        never introduced, or the endpoint is closed.
        """

    @abstractmethod
    def waiting(self, peer: int, call: int = 0) -> Block:
        """How a caller waits for an answer of ``peer``: the ``block`` of ``context.wait_until``.

        The waiting thread itself reads what comes, and calls ``on_message`` for it. To be asked for
        before the condition is looked at for the first time, and used by one thread. ``call``: the
        only call that the caller waits for, so that it sleeps while others' answers come. Connects
        where needed, as ``send`` does: somebody else may be about to ask.
        """

    def look_out(self, peer: int) -> None:  # noqa: B027
        """Read the answers of ``peer`` when they come, whoever waits. (Nothing is to be done where
        they always are.)"""

    def take(self, peer: int) -> None:  # noqa: B027
        """Read the answers of ``peer`` that have come and that nobody has read."""

    @abstractmethod
    def disconnect(self, peer: int) -> None:
        """Close what leads to and from ``peer``, after what has been sent. No ``on_lost`` here."""

    @abstractmethod
    def close(self) -> None:
        """Close everything: no thread, descriptor, file or mapping of this endpoint is left, apart
        from memory that received arrays lie in. What peers sent and nobody took is lost. Handlers
        that still run end on their own threads. Calls after it raise ``CommError``; a second
        ``close`` does nothing."""

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ByPeer(Endpoint):
    """An endpoint that has one object for each peer, with its ``address`` and why it is ``lost``
    (None: it is not)."""

    _where: str

    @abstractmethod
    def _peer(self, number: int) -> Any:
        """The object of a peer, made where there is none."""

    @abstractmethod
    def _anew(self, number: int) -> Any:
        """A new one in the place of that of a peer which is lost."""

    @abstractmethod
    def _asking(self, peer: Any) -> Any:
        """What leads to a peer, made where it is missing."""

    def introduce(self, peer: int, address: str) -> None:
        known = self._peer(peer)
        if known.lost is not None and known.address != address:
            known = self._anew(peer)
        if known.address and known.address != address:
            raise CommError(
                f"{self._where}: worker {peer} is at {known.address}, {address} was given; "
                "disconnect it first"
            )
        known.address = address

    def connect(self, peer: int, address: str) -> None:
        self.introduce(peer, address)
        self._asking(self._peer(peer))


def no_address(where: str, peer: int) -> CommError:
    """The error of a send to a peer whom nobody has introduced."""
    return CommError(
        f"{where}: worker {peer} is not known; introduce(peer, address) or connect(peer, address) "
        "says where it is"
    )


def is_closed(where: str) -> CommError:
    """The error of a call after ``close``."""
    return CommError(f"{where}: the endpoint is closed")
