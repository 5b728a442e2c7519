"""A rank and the raw ends of its links to another one: anything can be said on these."""

from __future__ import annotations

import socket

from disttrain.comm.job.segment import Segment
from disttrain.comm.sockets.link import Link
from disttrain.comm.transports.tcp.net import Net
from disttrain.comm.transports.tcp.pipe import Pipe


class Victim:
    """Rank 0 of three, and the raw sockets of rank 1, with which anything can be said."""

    def __init__(self):
        self.segment = Segment.create(3, 1 << 20)
        self.net = Net(self.segment, 0, (0, 1, 2), False)
        (link, self.sock), (pulse, self.pulse) = _pair(), _pair()
        self.pipe = Pipe(1, Link(link, 1, b"", None), Link(pulse, 1, b"", None), self.net)
        self.net.add(self.pipe)
        areas = (self.segment.comm_area(1), self.segment.arena(1))
        self.own = [range(start, start + size) for start, size in areas]

    def says(self, data):
        """What becomes of it."""
        self.sock.sendall(data)
        self.net.block(1.0, lambda: False)
        self.net.advance()
        return self.net.gone.get(1, (0, ""))[1]

    def others_memory(self):
        """All that rank 1 must not change: before its areas, between and behind them."""
        whole = memoryview(self.segment.buffer)
        first, second = self.own
        slots = self.segment.comm_area(0)[0]  # news of a failure may stand before
        return (
            bytes(whole[slots : first.start])
            + bytes(whole[first.stop : second.start])
            + bytes(whole[second.stop : second.stop + (1 << 16)])
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.net.abandon()
        self.sock.close()
        self.pulse.close()
        self.segment.close()


def _pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        return listener.accept()[0], there
