"""Names of backends, which of them there are, and how much checking is asked for."""

from __future__ import annotations

import enum
import os
from typing import Any

from .. import context
from ..comm import engines
from ..errors import ConfigError

_DEBUG = "distributed.debug_level"  # of a rank: the level that it was told


# What arrays of a device get where a program names nothing.
DEFAULT_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}


class Backend(str):
    """A backend's name in lower case: ``Backend("GLOO") == "gloo"``.

    Raises ``ConfigError`` (a ``ValueError``) for what is no text.
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    SHM, TCP, SIM, FAKE = "shm", "tcp", "sim", "fake"
    backend_list = list(dict.fromkeys(["undefined", *engines.NAMES]))
    default_device_backend_map = DEFAULT_BACKENDS

    def __new__(cls, name: Any) -> Backend:
        if not isinstance(name, str):
            raise ConfigError(f"Backend: {name!r} given; the name of a backend is needed")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls, name: str, func: Any, extended_api: bool = False, devices: Any = None
    ) -> None:
        """PyTorch's way to plug a backend in by a function that makes groups of its own kind.
        A transport is plugged in here as ``comm.engines`` says, and this raises ``ConfigError``."""
        raise ConfigError(
            f"Backend.register_backend({name!r}): groups made by a function of PyTorch's kind move "
            "no arrays here. Write a transport and add it to disttrain.comm.engines.ENGINES "
            "(docs/transports.md), or use one of " + ", ".join(engines.NAMES)
        )


class BackendConfig:
    """Which backend each device gets: ``BackendConfig("cpu:gloo,cuda:nccl")``. As text the same,
    completed."""

    def __init__(self, backend: str) -> None:
        pairs = engines.parse(str(backend)).pairs
        self.device_backend_map = {device: Backend(name) for device, name in pairs}

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, Backend]:
        return self.device_backend_map


class DebugLevel(enum.Enum):
    """What ``TORCH_DISTRIBUTED_DEBUG`` may say. Calls are always compared here; see ``strict``."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """What ``set_debug_level`` or, before any call of it, ``TORCH_DISTRIBUTED_DEBUG`` says."""
    kept = context.current().slots.get(_DEBUG)
    return _from_env() if kept is None else kept


def set_debug_level(level: DebugLevel) -> None:
    """Answer ``get_debug_level`` with ``level``. Calls are compared whatever it is."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: {level!r} given; needed is a DebugLevel")
    context.current().slots[_DEBUG] = level


def set_debug_level_from_env() -> None:
    """What ``TORCH_DISTRIBUTED_DEBUG`` says now."""
    set_debug_level(_from_env())


def _from_env() -> DebugLevel:
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    try:
        return DebugLevel[name]
    except KeyError:
        raise ConfigError(
            "The value of TORCH_DISTRIBUTED_DEBUG must be one of OFF, INFO, or DETAIL: "
            f"{name} given"
        ) from None
