"""Which cores each rank runs on: near its device, by what the kernel tells of both in sysfs.

``read_machine`` reads, ``cores_of_ranks`` decides (pure), ``bind`` performs. The modes have
torchrun's names and meanings (``--numa-binding``). Knows no CUDA.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disttrain.errors import LaunchError


@dataclass(frozen=True)
class Core:
    """A logical processor: where it is, by numbers that others share."""

    node: int
    socket: int
    physical: int
    cache: int


@dataclass(frozen=True)
class Host:
    """The processors that may be used, and the node of each device's PCI address."""

    cores: dict[int, Core]
    near: dict[str, int] = field(default_factory=dict)


def cores_of_ranks(mode: str, host: Host, buses: Sequence[str | None]) -> list[tuple[int, ...]]:
    """For each rank the processors it is bound to. ``buses``: each rank's device (None: it has
    none; such ranks are spread over the nodes in blocks).

    node: those of the device's NUMA node; socket: of its socket; exclusive: a part of the node's
    cores that no other rank has; core-complex: those that share one last cache, another one for
    each rank while there are enough.
    """
    nodes = sorted({core.node for core in host.cores.values()})
    homes = [
        nodes[rank * len(nodes) // len(buses)] if bus is None else host.near[bus]
        for rank, bus in enumerate(buses)
    ]
    bound = []
    for rank, home in enumerate(homes):
        mine = sorted(cpu for cpu, core in host.cores.items() if core.node == home)
        if not mine:
            raise LaunchError(
                f"--numa-binding {mode}: rank {rank} belongs to NUMA node {home} (device "
                f"{buses[rank]}), none of whose processors this process may use (it may use "
                f"{as_ranges(host.cores)}); give it some of them, or leave the flag out"
            )
        beside = [r for r, other in enumerate(homes) if other == home]
        place = beside.index(rank)
        if mode == "socket":
            sockets = {host.cores[cpu].socket for cpu in mine}
            mine = [cpu for cpu, core in sorted(host.cores.items()) if core.socket in sockets]
        elif mode == "exclusive":
            mine = _share(mode, _grouped(host, mine, "physical"), place, len(beside), home)
        elif mode == "core-complex":
            groups = sorted(_grouped(host, mine, "cache"), key=lambda g: (-len(g), g))
            mine = groups[place % len(groups)]
        bound.append(tuple(mine))
    return bound


def _grouped(host: Host, cpus: Sequence[int], by: str) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(getattr(host.cores[cpu], by), []).append(cpu)
    return sorted(groups.values())


def _share(mode: str, groups: list[list[int]], place: int, ranks: int, node: int) -> list[int]:
    """The ``place``-th of ``ranks`` parts, as even as they can be, larger ones first."""
    if len(groups) < ranks:
        raise LaunchError(
            f"--numa-binding {mode}: {ranks} ranks belong to NUMA node {node}, which has "
            f"{len(groups)} usable cores; use --numa-binding node, or fewer ranks"
        )
    each, more = divmod(len(groups), ranks)
    start = place * each + min(place, more)
    return sorted(cpu for group in groups[start : start + each + (place < more)] for cpu in group)


def bind(cpus: Sequence[int]) -> None:
    """Run this process, and what it starts, on ``cpus``. Memory follows: Linux takes it from the
    node of the processor that first touches it."""
    os.sched_setaffinity(0, cpus)


# -- sysfs ----------------------------------------------------------------------------------------


def read_host(buses: Sequence[str], allowed: set[int], root: str = "/sys") -> Host:
    """What the kernel tells of the ``allowed`` processors and of these PCI addresses."""
    sys = Path(root)
    node_of = {}
    for folder in sys.glob("devices/system/node/node[0-9]*"):
        for cpu in from_ranges(_read(folder / "cpulist")):
            node_of[cpu] = int(folder.name[4:])
    cores = {}
    for cpu in sorted(allowed):
        folder = sys / f"devices/system/cpu/cpu{cpu}"
        socket = _read(folder / "topology/physical_package_id")
        siblings = from_ranges(_read(folder / "topology/thread_siblings_list"))
        cache = _last_cache(folder / "cache")
        cores[cpu] = Core(
            node_of.get(cpu, 0), int(socket or 0), min(siblings, default=cpu), min(cache, default=0)
        )
    return Host(cores, {bus: _node_of_device(sys, bus, node_of) for bus in buses})


def _node_of_device(sys: Path, bus: str, node_of: dict[int, int]) -> int:
    """The node of a device; where the kernel does not know (-1), that of the processors it calls
    local, or node 0."""
    folder = sys / "bus/pci/devices" / bus
    node = int(_read(folder / "numa_node") or -1)
    if node >= 0:
        return node
    local = from_ranges(_read(folder / "local_cpulist"))
    return min((node_of.get(cpu, 0) for cpu in local), default=0)


def _last_cache(folder: Path) -> list[int]:
    """The processors that share the highest level of data cache."""
    found: tuple[int, list[int]] = (0, [])
    for one in folder.glob("index[0-9]*"):
        level = int(_read(one / "level") or 0)
        if _read(one / "type") in ("Unified", "Data") and level > found[0]:
            found = level, from_ranges(_read(one / "shared_cpu_list"))
    return found[1]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def from_ranges(text: str) -> list[int]:
    """``"0-2,8"`` as [0, 1, 2, 8]."""
    found: list[int] = []
    for low, high in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(low), int(high or low) + 1)
    return found


def as_ranges(numbers: Sequence[int] | dict[int, Core]) -> str:
    """[0, 1, 2, 8] as ``"0-2,8"``."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
