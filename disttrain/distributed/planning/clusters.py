"""Machines that exist: devices, their links, how many there are; read from a TOML file.

Numbers are those of data sheets. How much of them a training gets is calibrated and stands
elsewhere (``constants``). Knows no model.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError

GIB = 1 << 30


@dataclass(frozen=True)
class Device:
    """``peaks``: dense operations a second by type; ``bandwidth``: of its memory, bytes a second.
    ``family``: whose calibrated efficiencies hold for it."""

    name: str
    family: str
    memory: int
    bandwidth: float
    peaks: dict[str, float]


@dataclass(frozen=True)
class Wire:
    """A link of one device, one direction: bytes a second, and seconds of a message's start."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machines:
    """``nodes`` of ``per_node`` devices. ``local``: between the devices of ``domain`` neighbours
    (0: of a node); ``network``: the part of a node's adapters that one device has.
    ``oversubscription``: by which the network between nodes is slower than the adapters."""

    name: str
    nodes: int
    per_node: int
    device: Device
    local: Wire
    network: Wire
    oversubscription: float = 1.0
    domain: int = 0

    @property
    def devices(self) -> int:
        return self.nodes * self.per_node

    @property
    def island(self) -> int:
        """Devices that the fast links join."""
        return self.domain or self.per_node

    def sized(self, devices: int) -> Machines:
        """As many of these machines as ``devices`` need."""
        per_node = min(self.per_node, devices)
        if devices % per_node:
            raise ConfigError(f"{self.name}: {devices} devices do not fill nodes of {per_node}")
        return replace(self, nodes=devices // per_node, per_node=per_node)


_TOP: dict[str, type] = {
    "name": str,
    "nodes": int,
    "per_node": int,
    "oversubscription": float,
    "domain": int,
    "device": dict,
    "local": dict,
    "network": dict,
}
_DEVICE: dict[str, type] = {
    "name": str,
    "family": str,
    "memory_gib": float,
    "memory_gb_s": float,
    "tflops": dict,
}
_WIRE: dict[str, type] = {"gb_s": float, "us": float}
_OPTIONAL = {"oversubscription", "domain", "family"}


def read_cluster(path: Path) -> Machines:
    """Raises ``ConfigError`` that names the key, and what it needs."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"--cluster {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from error
    return cluster_of(table, str(path))


def cluster_of(table: dict[str, Any], where: str = "cluster") -> Machines:
    """The machines that a table describes."""
    top = _checked(table, _TOP, where)
    dev = _checked(top["device"], _DEVICE, f"{where}: device")
    peaks = dev["tflops"]
    for kind, value in peaks.items():
        _number(value, float, f"{where}: device.tflops.{kind}")
    if "bf16" not in peaks:
        raise ConfigError(f"{where}: device.tflops.bf16 is missing")
    device = Device(
        dev["name"],
        dev.get("family", dev["name"]),
        int(dev["memory_gib"] * GIB),
        dev["memory_gb_s"] * 1e9,
        {kind: value * 1e12 for kind, value in peaks.items()},
    )
    wires = [_wire(top[name], f"{where}: {name}") for name in ("local", "network")]
    domain, per_node = top.get("domain", 0), top["per_node"]
    if domain and domain % per_node:
        raise ConfigError(
            f"{where}: domain={domain} given; needed is a multiple of per_node={per_node}"
        )
    return Machines(
        top["name"],
        top["nodes"],
        per_node,
        device,
        wires[0],
        wires[1],
        top.get("oversubscription", 1.0),
        domain,
    )


def _wire(table: dict[str, Any], where: str) -> Wire:
    found = _checked(table, _WIRE, where)
    return Wire(found["gb_s"] * 1e9, found["us"] * 1e-6)


def _checked(table: Any, known: dict[str, type], where: str) -> dict[str, Any]:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
    for key, kind in known.items():
        if key not in table:
            if key in _OPTIONAL:
                continue
            raise ConfigError(f"{where}: {key} is missing")
        value = table[key]
        if kind in (int, float):
            _number(value, kind, f"{where}: {key}")
        elif not isinstance(value, kind):
            what = "a table" if kind is dict else "a text"
            raise ConfigError(f"{where}: {key}={value!r} given; needed is {what}")
    return dict(table)


def _number(value: Any, kind: type, where: str) -> None:
    good = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not good or not 0 < value < float("inf"):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{where}={value!r} given; needed is {what} above 0")
