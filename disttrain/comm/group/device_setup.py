"""When groups begin to move arrays of devices: with the first one that a rank gives to any of them.

A rank without devices pays nothing for them: its groups hold the CPU's transport itself. From the
first device array on, each of them holds a ``Placed``, which chooses by where an array lies. That
is each rank's own affair; what ranks have to agree on is agreed upon in the first operation. Knows
groups and platforms; no data.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ... import context
from ...backends.device.platform import Platform, platform_of
from ..calls.transport import Transport
from .device_transport import Placed
from .staged import Staged

_SLOT = "comm.placing"  # of a rank's context


class _Groups:
    """The groups of a rank, and whether they move arrays of devices, too."""

    def __init__(self) -> None:
        self.all: weakref.WeakSet[Any] = weakref.WeakSet()
        self.placed = False
        self.lock = threading.Lock()


def joined(group: object, transport: Transport) -> Transport:
    """The transport that ``group``, a new one of this rank on ``transport``, is to hold."""
    groups = context.current().slot(_SLOT, _Groups)
    with groups.lock:
        groups.all.add(group)
        return _over(group, transport) if groups.placed else transport


def is_device_array(array: object) -> bool:
    """Whether ``array`` lies on a device; from now on this rank's groups can move it."""
    if platform_of(array) is None:
        return False
    groups = context.current().slot(_SLOT, _Groups)
    if not groups.placed:
        place(groups)
    return True


def together(group: Any, array: object) -> AbstractContextManager[None]:
    """Within it operations of ``group`` on arrays like ``array`` are collected, and started
    together at its end, where it lies on a device."""
    platform = platform_of(array)
    if platform is None:
        return nullcontext()
    place()
    group.transport.on(platform)  # it has to be there before it can collect
    return group.transport.together()


def bind(group: Any, found: Platform, index: int) -> None:
    """Connect the devices of all ranks of ``group`` now, this rank's being ``index``."""
    place()
    group.transport.on(found).bind(index)


def place(groups: _Groups | None = None) -> None:
    """From now on the groups of this rank move arrays of devices."""
    groups = context.current().slot(_SLOT, _Groups) if groups is None else groups
    if groups.placed:
        return
    with groups.lock:
        groups.placed = True
        for group in list(groups.all):
            group.transport = _over(group, group.transport)


def _over(group: Any, transport: Transport) -> Transport:
    if isinstance(transport, Placed) or transport.group_type is not None or not transport.hears:
        return transport  # a program's own moves what it is given; who has no peers, nothing
    return Placed(transport, lambda cpu, platform: _make(group.backend, cpu, platform))


def _make(backend: str, cpu: Transport, platform: Platform) -> Transport:
    if cpu.between is None:
        return Staged(cpu, platform)
    return cpu.between(backend, cpu, platform)
