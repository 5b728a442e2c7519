"""Settings of the rank: whether ``save`` makes checksums, how ``load(mmap=True)`` maps a file."""

from __future__ import annotations

import mmap

from .. import context
from ..errors import ConfigError

_SLOT, _SUMS = "serialize.mmap", "serialize.sums"


def get_crc32_options() -> bool:
    """Does ``save`` make checksums of tensors? (The header always has one.)"""
    return context.current().slots.get(_SUMS, True)


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether ``save`` makes checksums of tensors. They cost about a second for 2 GB; without them
    a damaged tensor is loaded as it is."""
    context.current().slots[_SUMS] = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """``mmap.MAP_PRIVATE``, unless set otherwise."""
    return context.current().slots.get(_SLOT, mmap.MAP_PRIVATE)


class set_default_mmap_options:  # noqa: N801  (called like a function)
    """With ``mmap.MAP_SHARED``, what is written to tensors of a file that is loaded with
    ``mmap=True`` is written to the file; with ``MAP_PRIVATE`` it stays in the process. In a
    ``with`` statement, for the length of its block."""

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ConfigError(
                f"set_default_mmap_options: {flags!r} given; needed mmap.MAP_PRIVATE or "
                "mmap.MAP_SHARED"
            )
        self._before = get_default_mmap_options()
        context.current().slots[_SLOT] = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        context.current().slots[_SLOT] = self._before
