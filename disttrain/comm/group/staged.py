"""Arrays of devices over the CPU's transport: by way of the host.

What gloo does in PyTorch: an array is copied to the host, moved there, and copied back. So every
backend of CPUs serves every device. Each verb waits for the device once before data moves. Knows a
platform and another transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.array import Located
from ...backends.device.platform import Platform
from ..calls.header import Call
from ..calls.reduce_ops import ReduceOp
from ..calls.transport import Swap, Transport
from ..calls.work import Work


class Staged(Transport):
    """See ``Transport``."""

    def __init__(self, cpu: Transport, platform: Platform) -> None:
        super().__init__(cpu.rank, cpu.size, cpu.name, cpu.timeout, cpu.epoch)
        self.cpu, self.platform, self.kind = cpu, platform, cpu.kind

    def _down(self, array: RawArray) -> np.ndarray:
        return self.platform.download(array)

    def _up(self, host: np.ndarray, array: RawArray) -> None:
        """The values of ``host`` into ``array``."""
        if host.size:
            index = self.platform.index_of(array)
            with Located(self.platform, index):
                array[...] = self.platform.upload(host, index)

    def _back(self, work: Work | None, pairs: list[tuple[np.ndarray, Any]], result: object) -> Any:
        """Copy what has come to the devices, when it has."""

        def copy(_: np.ndarray | None) -> Any:
            for host, array in pairs:
                self._up(host, array)
            return result

        if work is None:
            copy(None)
            return None
        return work.then(copy)

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        return self.cpu.barrier(call, async_op=async_op)

    def broadcast(
        self, call: Call, array: Any, root: int, *, async_op: bool = False
    ) -> Work | None:
        mine = self.rank == root
        host = self._down(array) if mine else np.empty(array.size, array.dtype)
        work = self.cpu.broadcast(call, host, root, async_op=async_op)
        return self._back(work, [] if mine else [(host, array)], array)

    def all_reduce(
        self, call: Call, array: Any, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        host = self._down(array)
        work = self.cpu.all_reduce(call, host, op, async_op=async_op)
        return self._back(work, [(host, array)], array)

    def all_gather(
        self, call: Call, outs: Sequence[Any], array: Any, *, async_op: bool = False
    ) -> Work | None:
        hosts = [np.empty(out.size, out.dtype) for out in outs]
        work = self.cpu.all_gather(call, hosts, self._down(array), async_op=async_op)
        return self._back(work, list(zip(hosts, outs, strict=True)), outs)

    def reduce_scatter(
        self, call: Call, out: Any, ins: Sequence[Any], op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        host = np.empty(out.size, out.dtype)
        downs = [self._down(a) for a in ins]
        work = self.cpu.reduce_scatter(call, host, downs, op, async_op=async_op)
        return self._back(work, [(host, out)], out)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[Any],
        ins: Sequence[Any],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        hosts = [np.empty(out.size, out.dtype) for out in outs]
        downs = [self._down(a) for a in ins]
        work = self.cpu.all_to_all(call, hosts, downs, ragged=ragged, async_op=async_op)
        return self._back(work, list(zip(hosts, outs, strict=True)), outs)

    def send(self, call: Call, array: Any, dst: int, tag: int) -> Work:
        return self.cpu.send(call, self._down(array), dst, tag)

    def recv(self, call: Call, array: Any, src: int | None, tag: int) -> Work:
        host = np.empty(array.size, array.dtype)
        work = self.cpu.recv(call, host, src, tag)

        def copy(source: int) -> Any:
            self._up(host, array)
            return source

        return work.then(copy)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> Transport | None:
        """Groups of some ranks are split off from the CPU's transport."""
        return self.cpu.split(call, members, name, swap)

    def close(self, call: Call | None) -> None:
        """The CPU's transport is closed by whoever closes this one."""
