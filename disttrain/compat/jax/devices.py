"""JAX's devices: each rank of a job is one; in one process, as many simulated ones as were asked
for (``--simulate``, ``jax_num_cpu_devices``, or XLA's flag for the number of host devices)."""

from __future__ import annotations

import re
from typing import Any

from ... import distributed as dist
from ... import settings
from ...comm.job.worker_env import read_worker_env
from ...context import thread
from ...errors import ConfigError

_COUNT = "compat.jax.devices"  # the rank's slot: how many simulated devices its process has
_DEVICES = "compat.jax.device_list"
_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
KINDS = ("gpu", "cuda", "rocm", "tpu", "METAL")


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

    def memory_stats(self) -> None:
        """Nothing is known of a host's memory."""
        return


def simulate(count: int) -> None:
    """Let this process have ``count`` devices; before it is asked for them."""
    slots = thread.rank.slots
    if slots.get(_COUNT, count) != count:
        raise RuntimeError(
            "jax_num_cpu_devices config should be updated before backends are initialized i.e. "
            f"before any JAX operation is executed: there are {slots[_COUNT]} devices already"
        )
    slots[_COUNT] = count


def _simulated() -> int:
    found = _FLAG.search(settings.XLA_FLAGS.text())
    return thread.rank.slot(_COUNT, lambda: int(found[1]) if found else 1)


def world() -> tuple[int, int]:
    """This rank and how many there are, which have met from now on."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    me = thread.rank
    size = me.world_size if me.waiter.simulated else _told()
    if size < 2:
        return 0, 1
    dist.init_process_group()
    return dist.get_rank(), dist.get_world_size()


def _told() -> int:
    try:
        return read_worker_env(None, -1, -1).world_size
    except ConfigError:
        return 1


def spread() -> bool:
    """Whether the devices are ranks."""
    return world()[1] > 1


def devices(backend: str | None = None) -> list[Device]:
    """All devices, of all processes."""
    _check(backend)
    return list(thread.rank.slot(_DEVICES, _make))


def _make() -> list[Device]:
    size = world()[1]
    if size > 1:
        return [Device(i, i) for i in range(size)]
    return [Device(i, 0) for i in range(_simulated())]


def _check(backend: str | None) -> None:
    if backend in KINDS:
        raise RuntimeError(
            f"Unknown backend: '{backend}' requested, but no platforms that are instances of "
            f"{backend} are present. Platforms present are: cpu"
        )
    if backend not in (None, "cpu"):
        raise RuntimeError(f"Unknown backend {backend}")


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process, or of another one."""
    here = next((i for i in (process_index, host_id) if i is not None), world()[0])
    return [d for d in devices(backend) if d.process_index == here]


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many of them this process has."""
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process."""
    return world()[0]


def process_count(backend: str | None = None) -> int:
    """How many processes there are."""
    return world()[1]


def default_backend() -> str:
    """The platform of the devices."""
    return "cpu"


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes."""
    return list(range(process_count()))


NAMES: dict[str, Any] = {
    f.__name__: f
    for f in (
        devices, local_devices, device_count, local_device_count, process_index, process_count,
        process_indices, default_backend,
    )
}  # fmt: skip
