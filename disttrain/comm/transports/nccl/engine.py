"""How ranks with devices come to have NCCL's communicators (see ``selection``): beside the CPU's
transport of the same ranks, over which they meet, agree and talk of what goes wrong."""

from __future__ import annotations

from ....backends.device.platform import Platform, platform
from ....errors import BackendError, DeviceError
from ...calls.transport import Transport
from ...meeting.meeting import Meeting
from .transport import NcclTransport

DEVICES = ("cuda",)


def missing() -> str | None:
    """The first thing that is missing: a driver, a device, the binding, the library."""
    try:
        found = platform(DEVICES[0])
        if found.count() == 0:
            return "there is no device"
        found.collectives()
    except DeviceError as error:
        return str(error)
    return None


def over(cpu: Transport, device: Platform) -> NcclTransport:
    """The transport for arrays of ``device`` beside ``cpu``. Nobody is waited for."""
    return NcclTransport(cpu, device)


def connect(meeting: Meeting) -> Transport:
    raise BackendError(
        "nccl: it moves arrays of devices only, beside a backend of the CPU's; name one "
        "('cpu:gloo,cuda:nccl')"
    )
