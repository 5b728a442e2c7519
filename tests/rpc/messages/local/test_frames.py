"""Messages as packets on one host: parts that are shared or streamed, and what is garbage."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.errors import MessageTooLarge
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.local import frames
from disttrain.rpc.messages.local.frames import (
    APART_BYTES,
    PACKET_BYTES,
    PIECE_BYTES,
    STREAMED,
    Assembly,
    Garbage,
    decode,
    encode,
    encode_small,
    pieces_of,
)

pytestmark = pytest.mark.simulated

LIMITS = Limits()


class Shared:
    """Memory that both sides see; ``refuses``: parts are streamed."""

    def __init__(self, refuses=lambda part: False):
        self.parts, self.refuses = {}, refuses

    def place(self, part):
        if self.refuses(part):
            return STREAMED
        at = 4096 * (len(self.parts) + 1)
        self.parts[at] = part.copy()
        return at

    def find(self, at, nbytes):
        found = self.parts[at]
        assert found.size == nbytes
        return found


def carried(message, shared):
    """The message as the other side gets it."""
    packet, pieces = encode(message, shared.place)
    assert len(packet) <= PACKET_BYTES
    got = decode(memoryview(packet), shared.find, LIMITS, LIMITS.small())
    sent = list(pieces_of(pieces))
    assert all(len(p) <= PIECE_BYTES + 1 for p in sent)
    for k, piece in enumerate(sent):
        assert isinstance(got, Assembly)
        done = got.add(memoryview(piece))
        assert (done is not None) == (k == len(sent) - 1)
        got = done or got
    return got


def same(a, b):
    assert (a.kind, a.call, a.answers) == (b.kind, b.call, b.answers)
    assert (bytes(a.head), bytes(a.payload)) == (bytes(b.head), bytes(b.payload))
    assert len(a.arrays) == len(b.arrays)
    for x, y in zip(a.arrays, b.arrays):
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        assert x.flags.writeable and x.flags.c_contiguous


MESSAGES = {
    "empty": Message(0, 0),
    "small": Message(255, 2**64 - 1, True, b"head", b"payload"),
    "arrays": Message(1, 2, False, b"h", b"p", [np.arange(6.0).reshape(2, 3), np.array(True)]),
    "odd arrays": Message(
        1, 2, True, b"", b"",
        [np.zeros((0, 5), np.int8), np.ones((1,) * 20, ml_dtypes.bfloat16), np.array(3, "f2")],
    ),
    "large payload": Message(3, 4, True, b"h", bytes(range(256)) * (APART_BYTES // 128)),
    "large arrays": Message(
        1, 2, False, b"h", b"p",
        [np.arange(20_000.0), np.arange(5), np.ones((300, 100), np.float32)],
    ),
    "long head": Message(1, 2, False, b"x" * (PACKET_BYTES + 5), b"p", [np.arange(3)]),
    "all of it": Message(
        9, 9, True, b"x" * PACKET_BYTES, b"y" * (3 * PIECE_BYTES), [np.arange(30_000)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(
    "refuses",
    [lambda part: False, lambda part: True, lambda part: part.size > 100_000],
    ids=["shared", "streamed", "some of each"],
)
def test_a_message_comes_as_it_was_sent(name, refuses):
    same(carried(MESSAGES[name], Shared(refuses)), MESSAGES[name])


def test_the_short_form_of_small_ones_is_the_same():
    for name in ("empty", "small"):
        message = MESSAGES[name]
        packet, pieces = encode(message, None)
        assert encode_small(message, len(message.payload)) == packet and not pieces


def test_inline_arrays_are_the_receiver_s_own():
    packet, _ = encode(MESSAGES["arrays"], None)
    room = bytearray(packet)
    got = decode(memoryview(room), None, LIMITS, 0)
    room[:] = bytes(len(room))
    assert got.arrays[0].tolist() == [[0, 1, 2], [3, 4, 5]] and bytes(got.payload) == b"p"


def head(**fields):
    base = {"what": 1, "kind": 0, "flags": 0, "head": 0, "call": 0, "payload": 0, "arrays": 0,
            "body": 0, "body_at": 0, "payload_at": 0}  # fmt: skip
    return frames._HEAD.pack(*{**base, **fields}.values())


def array(code=0, ndim=0, apart=0, *numbers):
    return frames._ARRAYS[len(numbers)].pack(code, ndim, apart, 0, *numbers)


GARBAGE = {
    "too short": b"\x01" * 10,
    "another kind": head(what=2),
    "unknown flags": head(flags=8),
    "a body that lacks its head": head(head=5, body=4) + b"1234",
    "a body that is too long": head(head=1, body=3) + b"123",
    "a packet longer than its body": head(body=1, payload=1) + b"12",
    "no such type": head(arrays=1, body=8) + array(code=200),
    "too many dimensions": head(arrays=1, body=8) + array(ndim=65),
    "apart or not": head(arrays=1, body=8) + array(apart=2),
    "no shape": head(arrays=1, body=8) + array(ndim=1),
    "no elements": head(arrays=1, body=16) + array(9, 1, 0, 1000),
    "nothing apart": head(flags=4, payload=0, payload_at=STREAMED, arrays=0),
    "negative sizes": head(arrays=1, body=16) + array(0, 1, 0, 2**63),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_bytes_that_no_endpoint_sends(name):
    with pytest.raises((Garbage, MessageTooLarge)):
        decode(memoryview(GARBAGE[name]), None, LIMITS, 0)


def test_limits_hold_before_anything_is_made():
    tight = Limits(payload_bytes=100, head_bytes=10, arrays=1, message_bytes=150)
    for message in (
        Message(0, 1, head=b"x" * 11),
        Message(0, 1, payload=b"x" * 101),
        Message(0, 1, arrays=[np.zeros(1), np.zeros(1)]),
        Message(0, 1, arrays=[np.zeros(20)]),
    ):
        packet, _ = encode(message, None)
        with pytest.raises(MessageTooLarge):
            decode(memoryview(packet), None, tight, tight.small())
    announced = head(flags=2, head=11, body=100, body_at=STREAMED)
    with pytest.raises(MessageTooLarge, match="head_bytes"):
        decode(memoryview(announced), None, tight, 0)


def test_pieces_that_do_not_fit():
    message = Message(0, 1, payload=b"x" * APART_BYTES)
    packet, pieces = encode(message, lambda part: STREAMED)
    for piece, text in (
        (b"\x02", "an empty piece"),
        (b"\x02" + b"x" * (APART_BYTES + 3), "3 bytes"),
    ):
        waits = decode(memoryview(packet), None, LIMITS, 0)
        with pytest.raises(Garbage, match=text):
            waits.add(memoryview(piece))
    assert len(pieces) == 1
