"""Messages on their way: order of a pair, keys, receives from anybody, headers that differ."""

import numpy as np
import pytest

from disttrain.comm.calls.header import Call
from disttrain.comm.transports.sim.posts import Letter, Posts, Request
from disttrain.errors import CollectiveMismatch

KEY = ("world", 0)
F4 = np.dtype("f4")


def call(text, dtype=F4):
    return Call("send", args=text, site="here", dtype=dtype, numel=1)


def letter(number, src=0, dst=1, key=KEY, dtype=F4):
    return Letter(call("x", dtype), np.array([number], dtype), src, dst, key)


class Receive:
    """A request and what became of it."""

    def __init__(self, src=0, key=KEY):
        self.into, self.ends = np.zeros(1, F4), []
        self.request = Request(call("y"), self.into, src, key, lambda *end: self.ends.append(end))


def test_messages_of_a_pair_keep_their_order():
    posts, receives = Posts(), [Receive() for _ in range(4)]
    posts.arrive(letter(1))
    posts.arrive(letter(2))
    for receive in receives:
        posts.want(1, receive.request)
    posts.arrive(letter(3))
    assert [float(r.into[0]) for r in receives] == [1, 2, 3, 0]
    assert [r.ends for r in receives] == [[(0, None)]] * 3 + [[]]


def test_only_with_its_key_and_to_its_rank():
    posts, receive = Posts(), Receive()
    posts.want(1, receive.request)
    posts.arrive(letter(1, key=("world", 1)))
    posts.arrive(letter(2, key=("other", 0)))
    posts.arrive(letter(3, src=2))
    posts.arrive(letter(4, dst=2))
    assert receive.ends == []
    posts.arrive(letter(5))
    assert float(receive.into[0]) == 5


def test_from_anybody():
    posts, first, second = Posts(), Receive(None), Receive(None)
    posts.arrive(letter(7, src=3))
    posts.want(1, first.request)
    posts.want(1, second.request)
    posts.arrive(letter(8, src=2))
    assert [first.ends, second.ends] == [[(3, None)], [(2, None)]]
    assert [float(first.into[0]), float(second.into[0])] == [7, 8]


def test_headers_that_differ_are_told_to_both_sides_once():
    posts, receive = Posts(), Receive()
    posts.want(1, receive.request)
    posts.arrive(letter(1, dtype=np.dtype("i8")))
    ((source, error),) = receive.ends
    assert source is None and isinstance(error, CollectiveMismatch)
    assert "dtype differs" in str(error) and "operation 1" in str(error)
    assert receive.into[0] == 0
    assert posts.refusal(1, 0) is None
    assert str(posts.refusal(0, 1)) == str(error)
    assert posts.refusal(0, 1) is None


@pytest.mark.parametrize("number", [2, 5])
def test_the_error_counts_messages_of_the_pair(number):
    posts = Posts()
    for k in range(number - 1):
        posts.arrive(letter(k))
        posts.arrive(letter(k, src=2))
        posts.want(1, Receive().request)
    posts.arrive(letter(9, dtype=np.dtype("i8")))
    receive = Receive()
    posts.want(1, receive.request)
    assert f"operation {number}" in str(receive.ends[0][1])
