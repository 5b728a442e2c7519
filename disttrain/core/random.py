"""Random generators: one per rank by default, or made by the user. Knows no distribution.

The bit stream is SFC64 (Doty-Humphrey's Small Fast Chaotic generator) through numpy, seeded by
numpy's ``SeedSequence``: the same seed gives the same numbers on every machine. A rank starts from
a seed of the operating system until ``manual_seed`` is called. A forked process goes on where its
parent was, also where that has drawn nothing yet; ranks that the launcher forks do not.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import context
from ..errors import ConfigError
from .device import CPU, device, usable
from .tensor import Tensor, wrap

_STATE = struct.Struct("<Q4QQQ")  # seed, the four words of SFC64, is half a draw kept, that half
_MASK = (1 << 64) - 1
_SEED = "core.random.seed"  # the slot of the seed that a process was born with


class _Cell:
    """What a generator is made of: its seed and numpy's generator."""

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 11
        self.plant(seed)

    def plant(self, seed: int) -> None:
        self.seed = seed & _MASK
        self.rng = np.random.Generator(np.random.SFC64(self.seed))


class Generator:
    """A stream of random numbers. ``rng`` is numpy's generator behind it."""

    _cell: Any

    def __init__(self, device: str | device = "cpu") -> None:
        self.device = usable(device)
        self._cell = _Cell()

    @property
    def rng(self) -> np.random.Generator:
        _note_use()
        return self._cell.rng

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream that belongs to ``seed`` (any integer of 64 bits)."""
        _note_use()
        seed = int(seed)
        if not -(1 << 63) <= seed <= _MASK:
            raise ConfigError(f"manual_seed: {seed} given; needed an integer of at most 64 bits")
        self._cell.plant(seed)
        return self

    def seed(self) -> int:
        """Start a stream from a seed of the operating system; returns the seed."""
        _note_use()
        self._cell.plant(_Cell().seed)
        return self._cell.seed

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        _note_use()
        return self._cell.seed

    def get_state(self) -> Tensor:
        """Where the stream is, as a uint8 tensor."""
        state = self.rng.bit_generator.state
        words = [int(w) for w in state["state"]["state"]]
        packed = _STATE.pack(self._cell.seed, *words, state["has_uint32"], state["uinteger"])
        return wrap(np.frombuffer(packed, np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Go to where ``get_state`` was called."""
        _note_use()
        array = new_state.array if isinstance(new_state, Tensor) else np.asarray(new_state)
        if array.dtype != np.uint8 or array.size != _STATE.size:
            raise ConfigError(
                f"set_state: a state of {array.size} elements of {array.dtype} given; needed the "
                f"{_STATE.size} bytes (uint8) that get_state() returned"
            )
        seed, *words, has, half = _STATE.unpack(array.tobytes())
        self._cell.plant(seed)
        bits = self.rng.bit_generator
        state = bits.state
        state["state"]["state"] = np.array(words, np.uint64)
        state["has_uint32"], state["uinteger"] = has, half
        bits.state = state
        return self

    def clone_state(self) -> Generator:
        """Another generator that goes on from the same place."""
        return Generator(self.device).set_state(self.get_state())

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "state": self.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.device, self._cell = state["device"], _Cell()
        self.set_state(state["state"])

    def __repr__(self) -> str:
        return f"<Generator on {self.device}, seed {self.initial_seed()}>"


def _note_use() -> None:
    """Tell interpreters that care (capture) that a stream is drawn from, read or set."""
    for interp in context.thread.stack:
        if interp.dynamic:
            interp.on_stream()


class _RankGenerator(Generator):
    """The generator of whichever rank the calling thread belongs to; has no state of its own."""

    def __init__(self) -> None:
        self.device = CPU

    @property
    def _cell(self) -> _Cell:  # type: ignore[override]
        return context.current().slot("core.random", _first_cell)

    def __reduce__(self) -> str:
        return "default_generator"


def _first_cell() -> _Cell:
    return _Cell(context.current().slots.get(_SEED))


# numpy's generator takes a while to load, so this process only chooses what it will start from.
context.current().slots[_SEED] = int.from_bytes(os.urandom(8), "little") >> 11
default_generator = _RankGenerator()


def manual_seed(seed: int) -> Generator:
    """Seed the calling rank's generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the calling rank's generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the calling rank's generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the calling rank's generator is, as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the calling rank's generator to what ``get_rng_state`` returned."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, **ignored: Any
) -> Iterator[None]:
    """Put the calling rank's generator back to where it was when the block ends."""
    if not enabled:
        yield
        return
    before = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(before)
