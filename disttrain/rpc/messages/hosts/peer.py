"""What a remote endpoint knows of one peer, and the streams and links to and from it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Any

from ....errors import PeerFailed
from ..contract.message import Message
from .lanes import Bells, Incoming, Outgoing
from .large_parts import Wires
from .small_answers import IncomingAnswers


class Distant:
    """``deliver`` takes answers that somebody waits for."""

    def __init__(self, number: int, address: str, deliver: Callable[[Message], None]) -> None:
        self.number, self.address = number, address
        self.mine, self.life = secrets.token_bytes(16), b""  # see ``handshake.Introduction``
        self.wires = Wires(number)
        self.error: PeerFailed | None = None  # set when it is lost
        self.buried = False  # and told
        self.leaving = False  # this worker has ended the relation
        self.lock = threading.Lock()
        self.opening = threading.Lock()
        self.lanes: dict[int, Outgoing] = {}
        self.heard: dict[Incoming | IncomingAnswers, Any] = {}  # from it, with gRPC's object
        self.read = self.taken = 0  # messages from it: all, and those whose turn has come
        self.channel: Any = None
        self.stream: Any = None  # starts a stream on the channel
        self.bells = Bells(deliver)
