"""The collectives of sharded state: equal blocks of all ranks, gathered or reduced, with a label.

As ``all_gather_single`` and ``reduce_scatter_single`` of a ``ProcessGroup``, but the label (whose
blocks these are) must agree between ranks: where many units have blocks of one size, ranks that
mean different ones find out instead of mixing them. The header is built once. Knows no tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls.header import Call
from ..calls.reduce_ops import ReduceOp
from ..calls.work import Work
from .device_setup import is_device_array
from .group import ProcessGroup


class Blocks:
    """The two collectives of one block of ``numel`` elements per rank on ``group``."""

    def __init__(self, group: ProcessGroup, name: str, label: tuple[int, ...]) -> None:
        """``name``: for the reader; ``label``: small numbers that must agree between ranks."""
        self.group, self._name, self._label = group, name, label
        self._known: dict[tuple, Call] = {}

    def share(self, nbytes: int) -> Any:
        """Memory of the whole group (``shared.Shared``), or None where the transport has none."""
        call = self.group.labelled("broadcast", None, None, (*self._label, nbytes), self._name)
        begun = self.group.begin(call)
        memory = self.group.transport.share(call, nbytes)
        self.group.ended(begun, None)
        return memory

    def gather(self, out: np.ndarray, own: np.ndarray, *, async_op: bool = False) -> Work | None:
        """``out`` (size x numel, flat) becomes all ranks' ``own`` one behind the other."""
        call = self._call("all_gather", own, None)
        n = own.size
        outs = [out[i * n : (i + 1) * n] for i in range(self.group.size)]
        begun = self.group.begin(call)
        work = self.group.transport.all_gather(call, outs, own, async_op=async_op)
        return self.group.ended(begun, work)

    def reduce(
        self, out: np.ndarray, flat: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        """``out`` (numel) becomes the reduction of this rank's part of every rank's ``flat``."""
        call = self._call("reduce_scatter", flat, op)
        n = out.size
        ins = [flat[i * n : (i + 1) * n] for i in range(self.group.size)]
        begun = self.group.begin(call)
        work = self.group.transport.reduce_scatter(call, out, ins, op, async_op=async_op)
        return self.group.ended(begun, work)

    def _call(self, verb: str, array: np.ndarray, op: ReduceOp | None) -> Call:
        if array.__class__ is not np.ndarray:
            is_device_array(array)  # from now on the group can move it
        key = (verb, array.size, array.dtype.num, op)
        call = self._known.get(key)
        if call is None:
            call = self._known[key] = self.group.labelled(
                verb, array, op, (*self._label, array.size), self._name
            )
        return call
