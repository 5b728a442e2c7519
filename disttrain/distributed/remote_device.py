"""Where something lies that may be with another worker: "worker/device". Pure data."""

from __future__ import annotations

from typing import Any

from ..core.types.device import device as make_device
from ..errors import ConfigError

# What can only be a device where no worker is named. (A device may have any name otherwise.)
_KINDS = frozenset("cpu cuda meta mps xpu hpu ipu mtia privateuseone".split())


class _remote_device:  # noqa: N801  (PyTorch's name)
    """A device of a worker: "<worker>/<device>", "rank:<rank>/<device>", "<worker>" (its CPU), or a
    device here ("cpu", a ``device``)."""

    def __init__(self, remote_device: object) -> None:
        self._worker_name: str | None = None
        self._rank: int | None = None
        worker: str | None
        if not isinstance(remote_device, (str, make_device)):
            raise TypeError(f"Invalid type for remote_device: {type(remote_device)}")
        if isinstance(remote_device, make_device):
            worker, place = None, remote_device
        else:
            worker, place = _split(remote_device)
        self._device = make_device(place)
        if worker is None:
            return
        parts = worker.split(":")
        if not worker or len(parts) > 2:
            raise _cannot_parse(remote_device)
        if len(parts) == 2 and parts[0] == "rank" and parts[1].isdigit():
            self._rank = int(parts[1])
        else:
            self._worker_name = worker

    def worker_name(self) -> str | None:
        """The worker's name, where it was given."""
        return self._worker_name

    def rank(self) -> int | None:
        """The worker's rank, where it was given."""
        return self._rank

    def device(self) -> make_device:
        """The device, at that worker."""
        return self._device

    def __repr__(self) -> str:
        if self._worker_name is not None:
            return f"{self._worker_name}/{self._device}"
        return str(self._device) if self._rank is None else f"rank:{self._rank}/{self._device}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _split(text: str) -> tuple[str | None, Any]:
    fields = text.split("/")
    if len(fields) > 2:
        raise _cannot_parse(text)
    if len(fields) == 2:
        return fields[0], fields[1]
    kind, _, number = text.partition(":")
    if kind in _KINDS and (not number or number.isdigit()):
        return None, text
    return text, "cpu"


def _cannot_parse(given: object) -> ConfigError:
    return ConfigError(
        f"Could not parse remote_device: {given}. The valid format is "
        "'<workername>/<device>' or 'rank:<rank>/<device>' or '<device>'"
    )
