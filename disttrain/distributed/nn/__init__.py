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

_PACKAGES = ("remote_module",)
_NAMES = {"RemoteModule": "remote_module"}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), *_PACKAGES, *_NAMES})
