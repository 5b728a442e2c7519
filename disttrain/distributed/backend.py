"""Names of backends, and how much checking is asked for. Pure data."""

from __future__ import annotations

import enum
import os
from typing import Any

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
