"""What endpoints with one object a peer share: where a peer is, and when that may change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.errors import CommError
from disttrain.rpc.messages.contract.endpoint import ByPeer, is_closed, no_address
from disttrain.rpc.messages.contract.message import Limits

pytestmark = pytest.mark.simulated


class Peers(ByPeer):
    """Notes whom it asks."""

    _where = "messages of worker 0"
    patience = 1.5
    serve = send = waiting = disconnect = None

    def __init__(self, limits=None):
        super().__init__(0, b"token", limits)
        self.peers, self.asked, self.closed = {}, [], 0

    def _peer(self, number):
        return self.peers.setdefault(number, SimpleNamespace(address="", lost=None))

    def _anew(self, number):
        del self.peers[number]
        return self._peer(number)

    def _asking(self, peer):
        self.asked.append(peer.address)

    def close(self):
        self.closed += 1


def test_a_handshake_may_take_what_is_said_or_what_the_way_needs():
    assert Peers().limits.handshake_seconds == 1.5
    assert Peers(Limits(handshake_seconds=9.0)).limits.handshake_seconds == 9.0


def test_introducing_connects_nobody_and_connecting_does():
    end = Peers()
    end.introduce(1, "there")
    end.introduce(1, "there")
    assert end.asked == [] and end.peers[1].address == "there"
    end.connect(2, "here")
    assert end.asked == ["here"]


def test_a_peer_that_lives_stays_where_it_is():
    end = Peers()
    end.introduce(1, "there")
    with pytest.raises(CommError, match="worker 1 is at there, elsewhere was given; disconnect"):
        end.introduce(1, "elsewhere")
    with pytest.raises(CommError, match="disconnect it first"):
        end.connect(1, "elsewhere")
    assert end.asked == []


def test_a_lost_peer_is_another_one_at_another_address_only():
    end = Peers()
    end.introduce(1, "there")
    first = end.peers[1]
    first.lost = OSError()
    end.introduce(1, "there")
    assert end.peers[1] is first, "at the same address it stays lost"
    end.introduce(1, "elsewhere")
    assert end.peers[1] is not first and end.peers[1].address == "elsewhere"


def test_it_ends_with_its_block():
    with Peers() as end:
        assert not end.closed
    assert end.closed == 1


def test_errors_say_what_is_missing():
    assert str(no_address("messages", 3)).startswith("messages: worker 3 is not known; introduce(")
    assert str(is_closed("messages")) == "messages: the endpoint is closed"
