"""How ``load(mmap=True)`` maps a file: a setting of the rank."""

from __future__ import annotations

import mmap

from .. import context
from ..errors import ConfigError

_SLOT = "serialize.mmap"


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
