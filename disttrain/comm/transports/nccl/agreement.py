"""What ranks agree on while their devices work: headers, compared over the CPU's transport.

Every operation of devices is announced, under its own fingerprint, on a group of the CPU's
transport that nothing else uses. The headers meet there as those of the CPU's own operations do,
between hosts, too: what differs, who is missing and who has died is found and told by the same
code. An announcement waits for nobody; whoever looks at it later learns how it has ended. Knows
transports and headers; no device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import CollectiveMismatch, CommError
from ...calls.header import TEXT_BYTES, Call, mismatch_text, told_text
from ...calls.transport import Transport
from ...calls.work import Work

_TEXT = 2 + TEXT_BYTES
_PAIR_TAG = 0xFFFF0000  # above those of programs
_MEET = Call("split", shown="connect devices", site="the group's first operation on them")


class Agreement:
    """Of the ranks of ``cpu``, whose first operation on devices comes now: all of them come."""

    def __init__(self, cpu: Transport) -> None:
        self.cpu, self.rank, self.size = cpu, cpu.rank, cpu.size
        found = cpu.split(_MEET, list(range(cpu.size)), f"{cpu.name}:devices")
        assert found is not None
        self.channel: Transport = found
        self.number = 0  # of the operations so far
        self._sent, self._got = [0] * cpu.size, [0] * cpu.size

    @property
    def ranks(self) -> list[int]:
        """What the members are called."""
        group = self.cpu.group()
        return list(range(self.size)) if group is None else list(group.ranks)

    def announce(self, call: Call) -> Work:
        """This rank calls ``call``. The work ends when all have."""
        self.number += 1
        self.channel.timeout = self.cpu.timeout
        work = self.channel.barrier(call, async_op=True)
        assert work is not None
        return work

    def announce_pairs(self, call: Call, gives: Sequence[int], wants: Sequence[int]) -> Work:
        """As ``announce``, of a call whose sizes each pair of ranks must agree on: what this rank
        gives to and wants from each, in bytes."""
        self.number += 1
        number, width = self.number, 8 * self.size
        row = np.zeros(2 * width + _TEXT, np.uint8)
        row[: 2 * width].view(np.int64)[:] = [*gives, *wants]
        told = np.frombuffer(call.told, np.uint8)
        row[2 * width : 2 * width + told.size] = told
        table = np.empty((self.size, row.size), np.uint8)
        work = self.channel.all_gather(call, list(table), row, async_op=True)
        assert work is not None
        return work.then(lambda _: self._check_pairs(call, number, table))

    def _check_pairs(self, call: Call, number: int, table: np.ndarray) -> None:
        width = 8 * self.size
        sizes = [row[: 2 * width].tobytes() for row in table]
        each = np.array([np.frombuffer(s, np.int64) for s in sizes])
        gives, wants = each[:, : self.size], each[:, self.size :]
        if (gives == wants.T).all():
            return
        giver, taker = (int(i) for i in np.argwhere(gives != wants.T)[0])
        ranks = self.ranks
        where = (
            f"group {self.cpu.name}: rank {ranks[giver]} gives {gives[giver, taker]} bytes to rank "
            f"{ranks[taker]}, which wants {wants[taker, giver]}"
        )
        texts = {ranks[r]: told_text(table[r, 2 * width :].tobytes()) for r in range(self.size)}
        raise CollectiveMismatch(mismatch_text(where, number, "numel", texts))

    # -- messages -----------------------------------------------------------------------------

    def announce_send(self, call: Call, dst: int, tag: int) -> Work:
        """This rank sends to ``dst``."""
        number = np.array([self._sent[dst]], np.int64)
        self._sent[dst] += 1
        return self.channel.send(call, number, dst, tag)

    def announce_recv(self, call: Call, src: int | None, tag: int) -> Work:
        """This rank receives from ``src`` (None: from whoever comes first). The result: from whom.
        Fails where that was not the next message of the pair: devices bring them in one order,
        whatever their tags."""
        number = np.empty(1, np.int64)

        def check(source: int) -> int:
            expected, self._got[source] = self._got[source], self._got[source] + 1
            if number[0] != expected:
                raise CommError(
                    f"group {self.cpu.name}: {call.text}: message {number[0]} of rank "
                    f"{self.ranks[source]} was asked for, and message {expected} is the next; "
                    "devices bring the messages of a pair in the order in which they were sent, "
                    "whatever their tags: receive them in that order"
                )
            return source

        return self.channel.recv(call, number, src, tag).then(check)

    # -- connecting ---------------------------------------------------------------------------

    def everyones(self, row: np.ndarray) -> np.ndarray:
        """The rows (uint8, of one length) of all ranks; all of them come."""
        table = np.empty((self.size, row.size), np.uint8)
        self.cpu.all_gather(_MEET, list(table), row)
        return table

    def trade(self, row: np.ndarray, peer: int) -> np.ndarray:
        """The row (uint8, of the same length) of ``peer``, which comes, too."""
        low, high = sorted((self.rank, peer))
        call = Call(
            "send", shown="connect a pair of devices", site="their first message",
            common=f"{self.cpu.name} {low} {high}",
        )  # fmt: skip
        into = np.empty_like(row)
        if self.rank == low:
            self.channel.send(call, row, peer, _PAIR_TAG).wait()
        self.channel.recv(call, into, peer, _PAIR_TAG).wait()
        if self.rank == high:
            self.channel.send(call, row, peer, _PAIR_TAG).wait()
        return into

    def close(self, call: Call | None) -> None:
        """See ``Transport.close``."""
        self.channel.close(call)
