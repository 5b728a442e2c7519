"""What a server is asked to do, and whether that makes sense."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ..errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """``delay``, ``timeout``, ``grace``, ``patience``, ``idle``: seconds. ``body``, ``json``,
    ``held``: bytes of one request, of its JSON, of all requests that are here."""

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 0
    onnx: bool = False
    max_batch: int = 32
    delay: float = 0.002
    queue: int = 1024
    timeout: float = 30.0
    grace: float = 30.0
    patience: float = 30.0
    idle: float = 75.0
    body: int = 64 * _MIB
    json: int = 4 * _MIB
    held: int = 512 * _MIB
    depth: int = 32
    connections: int = 1024
    token: bytes = field(default=b"", repr=False)
    certificate: str = ""
    key: str = ""
    watch: bool = True
    log_requests: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self)
        for name in self.models:
            if not name or not all(c.isalnum() or c in "-_." for c in name) or name[0] == ".":
                raise ConfigError(
                    f"serve: a model named {name!r}: letters, digits, '-', '_' and '.' are "
                    "needed, for it stands in addresses; give one with NAME=FILE"
                )
        if not self.models:
            raise ConfigError("serve: no model; give the file of a saved program")
        if self.host not in LOOPBACK and not self.token:
            raise ConfigError(
                f"serve: --host {self.host}: others than this machine's users can reach it, so "
                "clients must show a token: give --token-file FILE"
            )
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("serve: --certificate and --key go together")

    @property
    def local(self) -> bool:
        """Is it for this machine alone?"""
        return self.host in LOOPBACK


_LEAST = {
    "port": 0, "workers": 1, "max_batch": 1, "delay": 0, "queue": 1, "timeout": 1e-3, "grace": 0,
    "patience": 1e-3, "idle": 1e-3, "body": 1, "json": 1, "held": 1, "depth": 1, "connections": 1,
}  # fmt: skip
_MOST = {"port": 65535, "workers": 256, "depth": 500}


def _check_numbers(options: Options) -> None:
    for name, least in _LEAST.items():
        value, most = getattr(options, name), _MOST.get(name)
        if not least <= value <= (most or 1 << 50):  # refuses nan, too
            needed = f"{least} to {most}" if most else f"{least} or more"
            raise ConfigError(f"serve: {name}: {value}; {needed} is needed")


def cores() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0))
