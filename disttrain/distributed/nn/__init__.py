"""Collectives that backward goes through, and modules that other workers have, under PyTorch's
names. The latter are loaded when they are asked for."""

import importlib
from typing import Any

from . import functional
from .functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
)


def __getattr__(name: str) -> Any:
    if name in ("RemoteModule", "remote_module"):
        found = importlib.import_module(f"{__name__}.remote_module")
        return found if name == "remote_module" else found.RemoteModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
