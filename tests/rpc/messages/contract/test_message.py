"""Messages as they are told of, and limits: each of them, at its edge."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.errors import ConfigError, DTypeError, MessageTooLarge
from disttrain.rpc.messages.contract.message import Limits, Message, check_arrays

pytestmark = pytest.mark.simulated


def test_a_message_says_its_sizes():
    message = Message(3, 7, True, b"ab", b"xyz", [np.zeros(1)])
    assert repr(message) == "<answer 7 of kind 3: 2 + 3 bytes, 1 arrays>"
    assert repr(Message(0, 1)).startswith("<request 1 of kind 0: 0 + 0")


TIGHT = Limits(message_bytes=100, payload_bytes=50, head_bytes=10, arrays=2)


@pytest.mark.parametrize(
    "sizes, name",
    [
        ((11, 0, 0, 0), "head_bytes"),
        ((0, 51, 0, 0), "payload_bytes"),
        ((0, 0, 3, 0), "arrays"),
        ((10, 50, 2, 41), "message_bytes"),
    ],
)
def test_each_limit_is_named_where_it_is_passed(sizes, name):
    with pytest.raises(MessageTooLarge, match=rf"send: a message with .*\({name}\)"):
        TIGHT.check(*sizes, "send")
    assert TIGHT.check(10, 50, 2, 40, "send") is None


def test_seconds_are_filled_in_where_none_were_given():
    assert Limits().within(3.0).handshake_seconds == 3.0
    given = Limits(handshake_seconds=1.0)
    assert given.within(3.0) is given


def test_what_is_small_is_within_every_limit():
    assert TIGHT.small() == 10
    assert Limits(head_bytes=99, payload_bytes=7, message_bytes=80).small() == 7
    size = TIGHT.small()
    TIGHT.check(size, 0, 0, 0, ""), TIGHT.check(0, size, 0, 0, "")


def test_arrays_are_counted_and_refused_where_they_cannot_go():
    assert check_arrays([np.zeros(3, np.float32), np.zeros((2, 2), bool)], "send") == 16
    assert check_arrays([], "send") == 0
    with pytest.raises(ConfigError, match=r"send: an array of shape \(3, 2\) that is not contig"):
        check_arrays([np.zeros((2, 3)).T], "send")
    with pytest.raises(DTypeError):
        check_arrays([np.array(["text"])], "send")
