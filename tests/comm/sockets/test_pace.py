"""Which rule a link sends by: not a pacing one, until segments are lost."""

from __future__ import annotations

import socket
import struct

from comm.sockets.pairs import Host

from disttrain.comm.sockets import pace
from disttrain.comm.sockets.pace import Losses, is_lossy, rule_of, send_at_once


class Sock:
    """A socket whose system prefers ``rule`` and allows what is in ``allowed``."""

    family = socket.AF_INET

    def __init__(self, rule=b"bbr", allowed=(b"bbr", b"cubic", b"reno")):
        self.rule, self.allowed, self.told = rule, allowed, bytes(pace._INFO_BYTES)

    def getsockopt(self, level, name, size):
        assert level == socket.IPPROTO_TCP
        return self.told if name == socket.TCP_INFO else self.rule.ljust(size, b"\0")

    def setsockopt(self, level, name, rule):
        assert (level, name) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        if rule not in self.allowed:
            raise PermissionError
        self.rule = rule

    def tell(self, sent, again, in_vain):
        told = bytearray(pace._INFO_BYTES)
        for at, number in ((156, sent), (100, again), (216, in_vain)):
            struct.pack_into("=I", told, at, number)
        self.told = bytes(told)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None


def test_only_a_rule_that_paces_is_replaced_by_one_that_is_allowed():
    for own, allowed, then in (
        (b"bbr", (b"cubic", b"reno"), b"cubic"),
        (b"bbr", (b"reno",), b"reno"),
        (b"bbr", (), b"bbr"),
        (b"cubic", (b"cubic", b"reno"), b"cubic"),
        (b"dctcp", (b"cubic", b"reno"), b"dctcp"),
    ):
        sock = Sock(own, allowed)
        send_at_once(sock)
        assert sock.rule == then
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as local:
        send_at_once(local)
        assert rule_of(local) == b""


def test_a_link_that_loses_segments_goes_back_to_what_the_system_prefers(monkeypatch):
    sock = Sock(b"cubic")
    monkeypatch.setattr(pace.socket, "socket", lambda *_: Sock(b"bbr"))
    losses = Losses(sock)
    for sent, again, in_vain, then in (
        (50, 50, 0, b"cubic"),  # too few to tell
        (10_000, 60, 0, b"cubic"),
        (20_000, 900, 800, b"cubic"),  # which had not been lost at all
        (20_500, 930, 800, b"bbr"),
        (30_000, 930, 800, b"bbr"),
    ):
        sock.tell(sent, again, in_vain)
        losses.look()
        assert sock.rule == then, sent
    sock.rule = b"cubic"
    assert Losses(Sock(b"bbr")).own == b""  # nothing to go back to


def test_what_makes_a_network_bad():
    assert is_lossy(1000, 50) and not is_lossy(1000, 5) and not is_lossy(50, 50)


def test_both_ends_of_a_link_send_by_one_rule():
    with socket.socket() as fresh:
        paces = rule_of(fresh) in pace._PACING
        send_at_once(fresh)
        wanted = rule_of(fresh)
    with Host(False) as host:
        for link in host.pair(False):
            assert rule_of(link.sock) == wanted and bool(link.losses.own) == paces
            link.close()
            link.losses.look()
