"""Names of backends, which of them there are, and how much checking is asked for."""

from __future__ import annotations

import enum
import os
from typing import Any

from ..comm import engines
from ..errors import ConfigError


class Backend(str):
    """A backend's name in lower case: ``Backend("GLOO") == "gloo"``.

    Raises ``ConfigError`` (a ``ValueError``) for what is no text.
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    SHM, TCP, SIM, FAKE = "shm", "tcp", "sim", "fake"

    def __new__(cls, name: Any) -> Backend:
        if not isinstance(name, str):
            raise ConfigError(f"Backend: {name!r} given; the name of a backend is needed")
        return super().__new__(cls, name.lower())


class DebugLevel(enum.Enum):
    """What ``TORCH_DISTRIBUTED_DEBUG`` may say. Calls are always compared here; see ``strict``."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """What ``TORCH_DISTRIBUTED_DEBUG`` says."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    try:
        return DebugLevel[name]
    except KeyError:
        raise ConfigError(
            f"TORCH_DISTRIBUTED_DEBUG={name}; needed is one of OFF, INFO, DETAIL"
        ) from None


def is_backend_available(backend: str) -> bool:
    """Whether groups can be made with ``backend`` in this process."""
    return engines.missing(backend.lower()) is None


def get_default_backend_for_device(device: Any) -> str:
    return "gloo"


def is_gloo_available() -> bool:
    return engines.missing("gloo") is None


def is_nccl_available() -> bool:
    return engines.missing("nccl") is None


def is_mpi_available() -> bool:
    return engines.missing("mpi") is None
