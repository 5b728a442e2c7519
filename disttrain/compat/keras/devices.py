"""What ``keras.distribution`` asks a backend for, and Keras' torch backend lacks: devices, which
are the ranks that a launcher has started, one each; layouts, of which only whole copies exist."""

from __future__ import annotations

import types
from typing import Any

import disttrain as dt

from ...distributed.replicas import place
from ...errors import ConfigError

ALONE = "DataParallel alone, whose variables are whole everywhere"


def initialize(addresses: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Join the group: as the launcher says, or at the first of ``addresses`` ("host:port,...")."""
    if addresses and not dt.distributed.is_initialized():
        if num_processes is None or process_id is None:
            raise ConfigError(
                "keras.distribution.initialize: job_addresses given; needed num_processes and "
                "process_id, too (or none of them under dtrun)"
            )
        meeting = f"tcp://{addresses.split(',')[0]}"
        dt.distributed.init_process_group(None, meeting, None, num_processes, process_id)
    place()


def list_devices(device_type: str | None = None) -> list[str]:
    """The devices of all ranks, as "cpu:0"."""
    kind = "gpu" if dt.cuda.is_available() else "cpu"
    asked = {None: kind, "cuda": "gpu"}.get(device_type, device_type)
    return [f"{kind}:{rank}" for rank in range(place()[1])] if asked == kind else []


def _whole(value: Any, layout: Any) -> Any:
    cut = [axis for axis in getattr(layout, "axes", ()) if axis is not None]
    if cut:
        raise ConfigError(f"keras.distribution: {cut} cut a layout; over ranks there is {ALONE}")
    return value


def library() -> types.SimpleNamespace:
    """The names that Keras calls."""
    return types.SimpleNamespace(
        list_devices=list_devices, initialize=initialize, distribute_tensor=_whole,
        get_device_count=lambda device_type=None: len(list_devices(device_type)),
        num_processes=lambda: place()[1], process_id=lambda: place()[0],
        distribute_variable=_whole, _to_backend_mesh=lambda mesh: mesh,
        _to_backend_layout=lambda layout: layout,
    )  # fmt: skip
