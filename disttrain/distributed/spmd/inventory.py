"""The devices that one program runs on: each rank of a job is one; a process alone has as many
simulated ones as were asked for, by ``simulate`` or by XLA's flag for host devices."""

from __future__ import annotations

import re

from ... import settings
from ...comm.job.worker_env import read_worker_env
from ...context import thread
from ...errors import ConfigError
from ..groups import state
from ..groups.new_group import get_rank, get_world_size

_COUNT = "distributed.spmd.count"  # the rank's slot: how many simulated devices its process has
_DEVICES = "distributed.spmd.devices"
_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


class Device:
    """One device: where an array, or a shard of one, lies."""

    platform = device_kind = "cpu"

    def __init__(self, id: int, process_index: int) -> None:  # noqa: A002
        self.id, self.process_index = id, process_index
        self.host_id = self.task_id = process_index
        self.local_hardware_id = id

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"cpu:{self.id}"


def simulate(count: int) -> None:
    """Let this process have ``count`` devices; before it is asked for them."""
    slots = thread.rank.slots
    if slots.get(_COUNT, count) != count:
        raise ConfigError(
            f"simulate: {count} devices are asked for after the program has used its "
            f"{slots[_COUNT]}; ask before it does"
        )
    slots[_COUNT] = count


def _simulated() -> int:
    found = _FLAG.search(settings.XLA_FLAGS.text())
    return thread.rank.slot(_COUNT, lambda: int(found[1]) if found else 1)


def world() -> tuple[int, int]:
    """This rank and how many there are, which have met from now on."""
    if state.is_initialized():
        return get_rank(), get_world_size()
    me = thread.rank
    size = me.world_size if me.waiter.simulated else _told()
    if size < 2:
        return 0, 1
    state.init_process_group()
    return get_rank(), get_world_size()


def _told() -> int:
    try:
        return read_worker_env(None, -1, -1).world_size
    except ConfigError:
        return 1


def spread() -> bool:
    """Whether the devices are ranks."""
    return world()[1] > 1


def devices() -> list[Device]:
    """All devices, of all processes."""
    return list(thread.rank.slot(_DEVICES, _make))


def _make() -> list[Device]:
    size = world()[1]
    if size > 1:
        return [Device(i, i) for i in range(size)]
    return [Device(i, 0) for i in range(_simulated())]


def local_devices(process: int | None = None) -> list[Device]:
    """The devices of this process, or of another one."""
    here = world()[0] if process is None else process
    return [d for d in devices() if d.process_index == here]
