"""Who may call a rank of another host, who is waited for, what hosts must have alike."""

from __future__ import annotations

import pytest

from disttrain import context
from disttrain.comm.sockets.handshake import Refused
from disttrain.comm.transports.tcp import engine
from disttrain.comm.transports.tcp.engine import _check_alike, _Guests
from disttrain.errors import ConfigError, WaitTimeout

pytestmark = pytest.mark.simulated


class Link:
    """One that has said who it is."""

    def __init__(self, number, said):
        self.number, self.said, self.closed = number, said, False

    def close(self):
        self.closed = True


def test_only_who_is_expected_is_let_in_and_for_what_there_is():
    guests = _Guests({1, 3})
    assert guests.admit(3, b"frames") == guests.admit(1, b"pulse") == b""
    for number, said in ((2, b"frames"), (1, b"chunks"), (0, b"pulse")):
        with pytest.raises(Refused, match=f"rank {number} is not expected here"):
            guests.admit(number, said)


def test_who_calls_once_more_has_lost_the_first_link():
    guests = _Guests({1})
    first, pulse, again = Link(1, b"frames"), Link(1, b"pulse"), Link(1, b"frames")
    for link in (first, pulse, again):
        guests.take(link)
    assert first.closed and not again.closed and not pulse.closed
    assert guests.links == {(1, b"frames"): again, (1, b"pulse"): pulse}


class Now(context.Waiter):
    """No time passes but in ``block``, which is over at once."""

    def __init__(self):
        super().__init__()
        self.at = 0.0

    def now(self):
        self.at += 0.01
        return self.at


def test_a_rank_has_come_with_both_links_and_who_has_not_is_named():
    guests = _Guests({1, 2, 3})
    for number, said in ((1, b"frames"), (1, b"pulse"), (3, b"pulse")):
        guests.take(Link(number, said))
    with context.attach(context.Rank(waiter=Now())):
        guests.wait_for([1], 1.0)
        with pytest.raises(WaitTimeout, match="init_process_group: ranks 2, 3 to call"):
            guests.wait_for([1, 2, 3], 0.05)
        guests.wait_for([], 0.0)


def test_hosts_with_less_memory_are_named():
    _check_alike([1 << 30] * 3)
    with pytest.raises(ConfigError) as error:
        _check_alike([1 << 30, 1 << 29, 1 << 30, 1 << 29])
    assert "ranks 1, 3 can map less memory (512 MiB a rank) than the others (1024 MiB)" in str(
        error.value
    )


def test_a_rank_alone_needs_no_sockets(monkeypatch):
    class Alone:
        size, timeout = 1, 7.0

    monkeypatch.setattr(engine, "connect_alone", lambda timeout: ("alone", timeout))
    assert engine.connect(Alone()) == ("alone", 7.0) and engine.missing() is None
