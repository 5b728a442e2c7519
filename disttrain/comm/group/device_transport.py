"""The transport of a group whose arrays lie on the host or on devices: each goes its own way.

The CPU's transport, which every group has, moves what lies on the host: objects, headers, the
splitting of groups. A device's is made when the first array of its kind comes. Knows transports and
platforms; moves nothing itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform, platform_of
from ...errors import DeviceError
from ..calls.header import Call
from ..calls.reduce_ops import ReduceOp
from ..calls.transport import Swap, Transport
from ..calls.work import Work

Make = Callable[[Transport, Platform], Transport]


class Placed(Transport):
    """See ``Transport``. ``cpu``: for arrays on the host; ``make(cpu, platform)`` gives the one for
    arrays of a platform."""

    def __init__(self, cpu: Transport, make: Make) -> None:
        self.cpu, self._make = cpu, make
        self.devices: dict[type, Transport] = {}  # by the type of raw arrays
        self.rank, self.size, self.name, self.epoch = cpu.rank, cpu.size, cpu.name, cpu.epoch
        self.kind, self.shares, self.divides, self.hears = (
            *(cpu.kind, cpu.shares, cpu.divides, cpu.hears),
        )
        self.job, self.between = cpu.job, cpu.between

    @property
    def timeout(self) -> float:
        return self.cpu.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        for each in (self.cpu, *self.devices.values()):
            each.timeout = seconds

    @property
    def group(self) -> Callable[[], Any]:
        return self.cpu.group

    @group.setter
    def group(self, to: Callable[[], Any]) -> None:
        self.cpu.group = to

    def on(self, platform: Platform) -> Transport:
        """The transport for arrays of ``platform``."""
        found = self.devices.get(platform.array_type)
        if found is None:
            found = self.devices[platform.array_type] = self._make(self.cpu, platform)
            found.group = self.cpu.group
        return found

    def _of(self, array: RawArray | np.ndarray) -> Transport:
        if array.__class__ is np.ndarray:
            return self.cpu
        found = self.devices.get(array.__class__)
        if found is not None:
            return found
        platform = platform_of(array)
        return self.cpu if platform is None else self.on(platform)

    def _of_all(self, call: Call, *arrays: Sequence[Any]) -> Transport:
        """Of arrays that lie on one device."""
        kinds = {a.__class__ for row in arrays for a in row}
        if len(kinds) > 1:
            raise DeviceError(
                f"{call.text}: arrays on different devices were given "
                f"({', '.join(sorted(map(_place, kinds)))}); needed are all on one. Move them with "
                ".to()"
            )
        return self._of(next(a for row in arrays for a in row))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        with contextlib.ExitStack() as all_of_them:
            for found in self.devices.values():
                all_of_them.enter_context(found.together())
            yield

    def allocate(self, nbytes: int) -> np.ndarray:
        return self.cpu.allocate(nbytes)

    def share(self, call: Call, nbytes: int) -> Any:
        return self.cpu.share(call, nbytes)

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        # Devices that have met meet again: that orders their work, too.
        for found in self.devices.values():
            if found.leads:
                return found.barrier(call, async_op=async_op)
        return self.cpu.barrier(call, async_op=async_op)

    def broadcast(
        self, call: Call, array: Any, root: int, *, async_op: bool = False
    ) -> Work | None:
        return self._of(array).broadcast(call, array, root, async_op=async_op)

    def all_reduce(
        self, call: Call, array: Any, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        return self._of(array).all_reduce(call, array, op, async_op=async_op)

    def all_gather(
        self, call: Call, outs: Sequence[Any], array: Any, *, async_op: bool = False
    ) -> Work | None:
        return self._of_all(call, outs, (array,)).all_gather(call, outs, array, async_op=async_op)

    def reduce_scatter(
        self, call: Call, out: Any, ins: Sequence[Any], op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        found = self._of_all(call, ins, (out,))
        return found.reduce_scatter(call, out, ins, op, async_op=async_op)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[Any],
        ins: Sequence[Any],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        found = self._of_all(call, outs, ins)
        return found.all_to_all(call, outs, ins, ragged=ragged, async_op=async_op)

    def send(self, call: Call, array: Any, dst: int, tag: int) -> Work:
        return self._of(array).send(call, array, dst, tag)

    def recv(self, call: Call, array: Any, src: int | None, tag: int) -> Work:
        return self._of(array).recv(call, array, src, tag)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> Transport | None:
        cpu = self.cpu.split(call, members, name, swap)
        if swap is None:
            for found in self.devices.values():
                found.divide(cpu, members, name)
        return cpu

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[Transport, list[int]]:
        cpu, before = self.cpu.shrink(timeout, exclude)
        for found in self.devices.values():
            found.shrunk(cpu, before)
            found.close(None)
        return cpu, before

    def abandon(self) -> None:
        for found in self.devices.values():
            found.close(None)

    def close(self, call: Call | None) -> None:
        """The devices' first: what they have to agree on goes over the CPU's."""
        devices, self.devices = list(self.devices.values()), {}
        try:
            while devices:
                devices.pop().close(call)
        except BaseException:  # all ranks have found that they do not agree: nobody is met
            for found in devices:
                found.close(None)
            self.cpu.close(None)
            raise
        self.cpu.close(call)


def _place(kind: type) -> str:
    return "cpu" if kind is np.ndarray else f"a device's {kind.__name__}"
