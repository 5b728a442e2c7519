"""The transport of a rank that has no peers: every verb answers from the rank's own data.

Outputs are written where PyTorch's fake process group writes them, and with the same values:

    all_reduce, broadcast, reduce    the array stays as it is
    all_gather, gather (root)        every output becomes this rank's array
    reduce_scatter                   the output becomes this rank's own piece, not reduced
    scatter                          on the root its own piece; elsewhere the output stays
    all_to_all                       piece by piece where sizes agree; else this rank's data, from
                                     its beginning, again and again
    send, recv, barrier              nothing happens

So numbers are wrong, and shapes, types, memory and the making of groups are right. Knows arrays; no
ranks, no waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....context import DEFAULT_TIMEOUT
from ...calls.header import Call
from ...calls.reduce_ops import ReduceOp, make_reducer
from ...calls.transport import Swap, Transport
from ...calls.work import Done, Work


class FakeTransport(Transport):
    """See ``Transport``; the conformance suite does not apply."""

    kind = "fake"
    hears = False

    def __init__(
        self, rank: int, size: int, name: str = "world", timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        super().__init__(rank, size, name, timeout)

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        return _over(async_op, None)

    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        return _over(async_op, array)

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        make_reducer(op, array.dtype, self.size)  # refuses what no transport could reduce
        return _over(async_op, array)

    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        for out in outs:
            _fill(out, array)
        return _over(async_op, outs)

    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        make_reducer(op, out.dtype, self.size)
        out[...] = ins[self.rank]
        return _over(async_op, out)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        if all(out.size == part.size for out, part in zip(outs, ins, strict=True)):
            for out, part in zip(outs, ins, strict=True):
                out[...] = part
        elif call.op == "scatter":
            out = next(out for out in outs if out.size)
            if ins[self.rank].size == out.size:
                out[...] = ins[self.rank]
        else:
            mine = np.concatenate([part for part in ins if part.size] or [ins[0]])
            for out in outs:
                _fill(out, mine)
        return _over(async_op, outs)

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        return Done(array)

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        return Done(0 if src is None else src)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> FakeTransport | None:
        if members is None:
            return None
        return FakeTransport(list(members).index(self.rank), len(members), name, self.timeout)

    def close(self, call: Call | None) -> None:
        """There is nobody to leave."""


def _over(async_op: bool, result: object) -> Work | None:
    return Done(result) if async_op else None


def _fill(out: np.ndarray, data: np.ndarray) -> None:
    """``data`` into ``out``, from its beginning, as often as it takes; nothing if it is empty."""
    if out.size == data.size:
        if out is not data:
            out[...] = data
    elif data.size:
        for lo in range(0, out.size, data.size):
            piece = out[lo : lo + data.size]
            piece[...] = data[: piece.size]
