"""One operation as NCCL's calls, with what the device does before and after them.

``prepare`` lays out what NCCL wants in one piece, ``issue`` makes the calls, ``finish`` puts what
has come where it belongs: all in the stream of the communicator. Which calls there are depends only
on what all ranks know alike (sizes, operators, types), never on how arrays of one of them lie. What
is only moved goes as bytes. Knows the binding and raw arrays; no stream, no peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...calls.reduce_ops import ReduceOp
from .library import BYTES
from .reductions import Native, fold

Ask = Callable[[Any, Any], None]


class Moves:
    """Of the transport ``of``, on ``arrays``, which lie on device ``index``. ``pairs``: what this
    rank gives and wants, in bytes, where pairs of ranks must agree on it."""

    def __init__(self, of: Any, arrays: Sequence[Any]) -> None:
        self.of, self.arrays = of, arrays
        self.platform, self.library = of.platform, of.library
        self.index = self.platform.index_of(arrays[0])
        self.pairs: tuple[list[int], list[int]] | None = None
        self.calls: list[Ask] = []
        self._before: list[Callable[[], None]] = []
        self._after: list[Callable[[], None]] = []

    def prepare(self) -> None:
        for step in self._before:
            step()

    def issue(self, raw: object, comm: object) -> None:
        for ask in self.calls:
            ask(raw, comm)

    def finish(self) -> None:
        for step in self._after:
            step()
        # What was asked for refers back to this: memory of devices would wait for the collector.
        self.calls, self._before, self._after, self.arrays = [], [], [], ()

    def _copy(self, source: Any, target: Any) -> None:
        target[...] = source

    # -- moving -------------------------------------------------------------------------------

    def broadcast(self, array: Any, root: int) -> None:
        self._broadcast(array, array, root)

    def _broadcast(self, given: RawArray, array: RawArray, root: int) -> None:
        if not array.size:
            return
        at, to, kind = self.library.at(given), self.library.at(array), self.library.dtype(BYTES)
        self.calls.append(
            lambda raw, comm: raw.broadcast(
                at, to, array.nbytes, kind, root, comm.handle, comm.stream.handle
            )
        )

    def all_gather(self, outs: Sequence[Any], array: Any) -> None:
        sizes = [out.size for out in outs]
        if sizes.count(array.size) != len(outs):
            for root, out in enumerate(outs):
                self._broadcast(array if root == self.of.rank else out, out, root)
            return
        if not array.size:
            return
        into = _Row(self, outs)
        self._before.append(into.make)
        at, kind = self.library.at(array), self.library.dtype(BYTES)
        self.calls.append(
            lambda raw, comm: raw.all_gather(
                at, into.at, array.nbytes, kind, comm.handle, comm.stream.handle
            )
        )
        self._after.append(into.apart)

    def all_to_all(self, outs: Sequence[Any], ins: Sequence[Any]) -> None:
        me = self.of.rank
        if outs[me].size and self.library.at(outs[me]) != self.library.at(ins[me]):
            self._before.append(lambda: self._copy(ins[me], outs[me]))
        for peer in range(self.of.size):
            if peer != me:
                self.send(ins[peer], peer)
                self.recv(outs[peer], peer)

    def send(self, array: Any, dst: int) -> None:
        if not array.size:
            return
        at, kind = self.library.at(array), self.library.dtype(BYTES)
        self.calls.append(
            lambda raw, comm: raw.send(
                at, array.nbytes, kind, comm.places[dst], comm.handle, comm.stream.handle
            )
        )

    def recv(self, array: Any, src: int) -> None:
        if not array.size:
            return
        at, kind = self.library.at(array), self.library.dtype(BYTES)
        self.calls.append(
            lambda raw, comm: raw.recv(
                at, array.nbytes, kind, comm.places[src], comm.handle, comm.stream.handle
            )
        )

    # -- reducing -----------------------------------------------------------------------------

    def all_reduce(self, array: Any, op: ReduceOp) -> None:
        how = self.library.native(op, array.dtype, self.of.size, self.index)
        if not array.size:
            return
        if how is None:
            rows = _Row(self, like=array, count=self.of.size)
            self._before.append(rows.make)
            at, kind = self.library.at(array), self.library.dtype(BYTES)
            self.calls.append(
                lambda raw, comm: raw.all_gather(
                    at, rows.at, array.nbytes, kind, comm.handle, comm.stream.handle
                )
            )
            self._after.append(lambda: fold(rows.parts(), op, array))
            return
        at = self.library.at(array)
        self._reducing(
            how,
            lambda raw, comm, kind, code: raw.all_reduce(
                at, at, array.size * how.parts, kind, code, comm.handle, comm.stream.handle
            ),
        )

    def reduce_scatter(self, out: Any, ins: Sequence[Any], op: ReduceOp) -> None:
        how = self.library.native(op, out.dtype, self.of.size, self.index)
        if how is None:
            self._fold_pieces(out, ins, op)
        elif all(a.size == ins[0].size for a in ins):
            self._scatter_alike(out, ins, how)
        else:
            for root, a in enumerate(ins):
                if a.size:
                    self._reduce(a, out if root == self.of.rank else None, root, how)

    def _scatter_alike(self, out: RawArray, ins: Sequence[Any], how: Native) -> None:
        if not out.size:
            return
        given, to = _Row(self, ins), self.library.at(out)
        self._before += [given.make, given.together]
        self._reducing(
            how,
            lambda raw, comm, kind, code: raw.reduce_scatter(
                given.at, to, out.size * how.parts, kind, code, comm.handle, comm.stream.handle
            ),
        )

    def _reduce(self, array: Any, out: object, root: int, how: Native) -> None:
        at, to = self.library.at(array), 0 if out is None else self.library.at(out)
        self._reducing(
            how,
            lambda raw, comm, kind, code: raw.reduce(
                at, to, array.size * how.parts, kind, code, root, comm.handle, comm.stream.handle
            ),
        )

    def _fold_pieces(self, out: RawArray, ins: Sequence[Any], op: ReduceOp) -> None:
        """Everybody's piece goes to whom it belongs to, who folds them."""
        rows = _Row(self, like=out, count=self.of.size)
        self._before.append(rows.make)
        me, kind = self.of.rank, self.library.dtype(BYTES)
        if out.size:
            self._before.append(lambda: self._copy(ins[me], rows.parts()[me]))
            self._after.append(lambda: fold(rows.parts(), op, out))
        for peer in range(self.of.size):
            if peer != me:
                self.send(ins[peer], peer)
                if out.size:
                    self._receive_row(rows, peer, out.nbytes, kind)

    def _receive_row(self, rows: _Row, peer: int, nbytes: int, kind: int) -> None:
        self.calls.append(
            lambda raw, comm: raw.recv(
                rows.at + peer * nbytes, nbytes, kind, comm.places[peer], comm.handle,
                comm.stream.handle,
            )
        )  # fmt: skip

    def _reducing(self, how: Native, ask: Callable[[Any, Any, int, int], None]) -> None:
        kind = self.library.dtype(how.dtype)
        if how.op:
            code = self.library.op(how.op)
            self.calls.append(lambda raw, comm: ask(raw, comm, kind, code))
            return

        def scaled(raw: object, comm: Any) -> None:
            op, forget = comm.times(how.factor, how.dtype)
            ask(raw, comm, kind, op)
            self._after.append(forget)

        self.calls.append(scaled)


class _Row:
    """Several arrays of one size as one piece of memory: their own, where they lie one behind the
    other, else a piece that ``make`` takes."""

    def __init__(
        self, of: Moves, arrays: Sequence[Any] = (), like: Any = None, count: int = 0
    ) -> None:
        self._of, self._arrays = of, arrays
        first = arrays[0] if arrays else like
        self._size, self._dtype, self._count = first.size, first.dtype, count or len(arrays)
        self._whole: Any = None
        self.at = of.library.at(first) if arrays else 0
        width = first.nbytes
        at = of.library.at
        self._lies = bool(arrays) and all(
            at(a) == self.at + i * width for i, a in enumerate(arrays)
        )

    def make(self) -> None:
        """Take memory, where it is needed, in the current stream."""
        if not self._lies and self._size:
            self._whole = self._of.platform.empty((self._count * self._size,), self._dtype)
            self.at = self._of.library.at(self._whole)

    def parts(self) -> list[Any]:
        n = self._size
        return [self._whole[i * n : (i + 1) * n] for i in range(self._count)]

    def together(self) -> None:
        """Copy the arrays into the piece."""
        if self._whole is not None:
            for array, part in zip(self._arrays, self.parts(), strict=True):
                part[...] = array

    def apart(self) -> None:
        """Copy the piece into the arrays."""
        if self._whole is not None:
            for array, part in zip(self._arrays, self.parts(), strict=True):
                array[...] = part
