"""Which device of one worker stands for which of another: read, and checked by all together.

There is no device but the CPU in this version, so a map that names others is refused when the
workers meet, with the same error on all of them. Pure functions.
"""

from __future__ import annotations

from typing import Any

from ..core.types.device import device
from ..errors import ConfigError, DeviceError

DeviceMap = dict[device, device]


def to_device(given: int | str) -> device:
    """A device; a number is one of CUDA's."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = f"cuda:{given}"
    if isinstance(given, str) and ":-" in given:
        raise DeviceError(f"Device index must not be negative: {given} given")
    return device(given)


def to_device_map(device_map: dict[Any, Any]) -> DeviceMap:
    """A map of devices, which must be one to one."""
    full: DeviceMap = {}
    back: DeviceMap = {}
    for given_here, given_there in device_map.items():
        here, there = to_device(given_here), to_device(given_there)
        if there in back:
            raise ConfigError(
                "`device_map` only supports 1-to-1 mapping, "
                f"trying to map {here} and {back[there]} to {there}"
            )
        full[here], back[there] = there, here
    return full


def to_devices(devices: list[Any]) -> list[device]:
    """Devices that a worker says it uses."""
    found = [to_device(d) for d in devices]
    for d in found:
        if d.type != "cuda":
            raise ConfigError(
                f"`set_devices` expect a list of CUDA devices, but got device type {d.type}."
            )
    return found


def as_text(maps: dict[str, DeviceMap]) -> dict[str, list[list[str]]]:
    """Maps for the store."""
    return {to: [[str(a), str(b)] for a, b in m.items()] for to, m in maps.items()}


def check_maps(
    maps: dict[str, dict[str, list[list[str]]]], devices: dict[str, list[str]], whole: bool = True
) -> None:
    """``maps`` and ``devices`` by worker, as the store has them. ``whole``: all workers are known,
    so a map must not be for another one. Raises ``ConfigError``, which is a ``ValueError``."""
    for name, used in devices.items():
        if len(set(used)) != len(used):
            raise ConfigError(f"Node {name} has duplicated devices\ndevices = {used}")
        if used:
            raise ConfigError(
                f"Node {name} has devices with invalid indices\ndevices = {used}\ndevice count = 0"
            )
    for name, of in maps.items():
        if whole and not set(of) <= set(maps):
            raise ConfigError(
                f"Node {name} has invalid target node names in its device maps\n"
                f"device maps = {sorted(of)}\nnode names = {sorted(maps)}"
            )
        for to, pairs in of.items():
            for what, here in (
                ("source", [a for a, _ in pairs]),
                ("target", [b for _, b in pairs]),
            ):
                if any(d != "cpu" for d in here):
                    raise ConfigError(
                        f"Node {name} has {what} devices with invalid indices in its device map "
                        f"for {to}\ndevice map = {pairs}\ndevice count = 0"
                    )
