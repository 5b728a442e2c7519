"""Random generators: one per rank by default and one for each of its accelerators, or made by the
user. Knows no distribution.

On the host the bit stream is SFC64 (Doty-Humphrey's Small Fast Chaotic generator) through numpy,
seeded by numpy's ``SeedSequence``: the same seed gives the same numbers on every machine. On an
accelerator it is Philox 4x32-10, by counter. A rank starts from a seed of the operating system
until ``manual_seed`` is called. A forked process goes on where its parent was, also where that has
drawn nothing yet; ranks that the launcher forks do not.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import context
from ..backends.device.array import DeviceArray, Located
from ..backends.device.platform import platform
from ..errors import ConfigError, DeviceError
from .tensor import Tensor, wrap
from .types.device import CPU, HOST, device, usable

_STATE = struct.Struct("<Q4QQQ")  # seed, the four words of SFC64, is half a draw kept, that half
_COUNTED = struct.Struct("<Qq")  # seed, offset
STEP = 4  # what a draw on an accelerator adds to its offset
_MASK = (1 << 64) - 1
RECORDING = "core.random.recording"  # the slot of how many graphs are recorded
_DEVICE_SEED = "core.random.device_seed"  # the slot of what the rank's devices start from


class _Cell:
    """What a generator of the host is made of: its seed and numpy's generator."""

    size = _STATE.size

    def __init__(self, seed: int | None = None) -> None:
        self.plant(fresh_seed() if seed is None else seed)

    def plant(self, seed: int) -> None:
        self.seed = seed & _MASK
        self.rng = np.random.Generator(np.random.SFC64(self.seed))

    def pack(self) -> bytes:
        state = self.rng.bit_generator.state
        words = [int(w) for w in state["state"]["state"]]
        return _STATE.pack(self.seed, *words, state["has_uint32"], state["uinteger"])

    def unpack(self, packed: bytes) -> None:
        seed, *words, has, half = _STATE.unpack(packed)
        self.plant(seed)
        bits = self.rng.bit_generator
        state: Any = bits.state
        state["state"]["state"] = np.array(words, np.uint64)
        state["has_uint32"], state["uinteger"] = has, half
        bits.state = state

    def draw(self, prim: object, forward: Callable[..., Any], params: dict) -> Any:
        return forward(**params)


class Recorded:
    """What a graph draws from one generator. ``base``: memory of the device for its seed and offset
    at each replay; ``offset``: how far a replay counts."""

    def __init__(self, generator: Generator, base: Any) -> None:
        self.generator, self.base, self.offset = generator, base, 0

    def begin(self) -> None:
        self.generator._counter("register_generator_state").recording = self

    def end(self) -> None:
        self.generator._cell.recording = None

    def next(self) -> tuple[int, int]:
        """The seed and offset of one replay."""
        cell = self.generator._cell
        seed, offset = cell.seed, cell.offset
        cell.offset += self.offset
        return seed, offset


class _Counter:
    """What a generator of an accelerator is made of: a seed, and how far it has counted. Numbers
    are functions of both (Philox), so that drawing needs no state on the device."""

    size = _COUNTED.size

    def __init__(self, where: device, seed: int | None = None) -> None:
        self.where = where
        self.recording: Any = None
        self.plant(fresh_seed() if seed is None else seed)

    def plant(self, seed: int) -> None:
        self.seed, self.offset = seed & _MASK, 0

    def pack(self) -> bytes:
        return _COUNTED.pack(self.seed, self.offset)

    def unpack(self, packed: bytes) -> None:
        self.seed, self.offset = _COUNTED.unpack(packed)

    def take(self) -> tuple[tuple, tuple[int, int]]:
        """The seed and the offset of one draw, which no other one gets; before them an array of
        what to add to both (none where no graph is recorded)."""
        recording = self.recording
        if recording is not None:
            offset, recording.offset = recording.offset, recording.offset + STEP
            return (recording.base,), (0, offset)
        if context.current().slots.get(RECORDING):
            raise DeviceError(
                "a graph is recorded, and draws from a generator that it does not know: its "
                "replays would all draw the same; call graph.register_generator_state(generator) "
                "before"
            )
        offset, self.offset = self.offset, self.offset + STEP
        return (), (self.seed, offset)

    @property
    def rng(self) -> Any:
        raise DeviceError(
            f"Expected a 'cpu' device type for generator but found '{self.where.type}': a "
            f"generator on {self.where} draws on that device only"
        )

    def draw(self, prim: Any, forward: Callable[..., Any], params: dict) -> Any:
        there = Located(platform(self.where.type), self.where.index or 0)
        with there:
            return DeviceArray(
                prim.on_device(there.platform, **params), there.platform, there.index
            )


def fresh_seed() -> int:
    """A seed of the operating system."""
    seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 11
    return context.drawn("seed", seed)


class Generator:
    """A stream of random numbers. ``rng`` is numpy's generator behind it."""

    _cell: Any

    def __init__(self, device: str | int | device = "cpu") -> None:
        self.device = usable(device)
        self._cell = _made_for(self.device)

    @property
    def rng(self) -> np.random.Generator:
        _note_use()
        return self._cell.rng

    def take(self) -> tuple[tuple, tuple[int, int]]:
        """For drawing on an accelerator: a seed, and an offset that no other draw gets; before them
        an array of two numbers to add to these, where a graph is recorded."""
        _note_use()
        cell = self._cell
        if cell.__class__ is not _Counter:
            raise DeviceError(
                "Expected a 'cuda' device type for generator but found 'cpu'; make one by "
                "Generator(device='cuda')"
            )
        return cell.take()

    def draw(self, prim: object, forward: Callable[..., Any], params: dict) -> Any:
        """The result of a primitive that draws from this and takes no array: ``forward`` where
        this is the host's."""
        return self._cell.draw(prim, forward, params)

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
        """Where the stream is, as a uint8 tensor on the host. On an accelerator it has PyTorch's
        16 bytes: the seed and the offset."""
        _note_use()
        return wrap(np.frombuffer(self._cell.pack(), np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Go to where ``get_state`` was called."""
        _note_use()
        array = new_state.array if isinstance(new_state, Tensor) else np.asarray(new_state)
        if array.dtype != np.uint8 or array.size != self._cell.size:
            raise ConfigError(
                f"set_state: a state of {array.size} elements of {array.dtype} given; needed the "
                f"{self._cell.size} bytes (uint8) that get_state() returned"
            )
        self._cell.unpack(array.tobytes())
        return self

    def get_offset(self) -> int:
        """How far an accelerator's generator has counted."""
        _note_use()
        return self._counter("get_offset").offset

    def set_offset(self, offset: int) -> Generator:
        """Go on counting from there: a multiple of 4."""
        _note_use()
        if offset < 0 or offset % STEP:
            raise ConfigError(f"set_offset: {offset} given; offset must be a multiple of {STEP}")
        self._counter("set_offset").offset = int(offset)
        return self

    def _counter(self, where: str) -> _Counter:
        if self._cell.__class__ is not _Counter:
            raise DeviceError(f"{where}: a generator on the CPU does not count: it has no offset")
        return self._cell

    def clone_state(self) -> Generator:
        """Another generator that goes on from the same place."""
        return Generator(self.device).set_state(self.get_state())

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "state": self.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.device = state["device"]
        self._cell = _made_for(self.device)
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
    def _cell(self) -> _Cell:
        return context.current().slot("core.random", _first_cell)

    def __reduce__(self) -> str:
        return "default_generator"


class _DeviceGenerator(Generator):
    """The generator of an accelerator's device, of whichever rank the calling thread belongs to."""

    def __init__(self, where: device) -> None:
        self.device = where

    @property
    def _cell(self) -> _Counter:
        cells = _device_cells()
        if self.device not in cells:
            cells[self.device] = _Counter(self.device, _device_seed())
        return cells[self.device]

    def __reduce__(self) -> tuple:
        return device_generator, (self.device,)


def _first_cell() -> _Cell:
    return _Cell(context.current().slots.get(context.SEED_SLOT))


def _made_for(where: device) -> _Cell | _Counter:
    return _Cell() if where.type in HOST else _Counter(where)


def _device_cells() -> dict[device, _Counter]:
    """The counters of the rank's devices that have been used."""
    return context.current().slot("core.random.devices", dict)


def _device_seed() -> int:
    """What devices start from that nobody has seeded by themselves."""
    slots = context.current().slots
    if _DEVICE_SEED not in slots:
        slots[_DEVICE_SEED] = default_generator._cell.seed
    return slots[_DEVICE_SEED]


# numpy's generator takes a while to load, so this process only chooses what it will start from.
context.current().slots[context.SEED_SLOT] = int.from_bytes(os.urandom(8), "little") >> 11
default_generator = _RankGenerator()


@functools.cache
def device_generator(where: device) -> Generator:
    """The calling rank's generator of that device, which has a number."""
    return _DeviceGenerator(where)


def generator_of(where: device) -> Generator:
    """The calling rank's generator of numbers on ``where``, a usable device."""
    return default_generator if where.type in HOST else device_generator(where)


def manual_seed(seed: int) -> Generator:
    """Seed the calling rank's generators: the host's, and those of all accelerators."""
    found = default_generator.manual_seed(seed)
    seed_devices(seed)
    return found


def seed_devices(seed: int) -> None:
    """Seed the generators of all accelerators. Needs none, and starts none."""
    slots = context.current().slots
    slots[_DEVICE_SEED] = int(seed) & _MASK
    for cell in _device_cells().values():
        cell.plant(slots[_DEVICE_SEED])


def seed() -> int:
    """Seed the calling rank's generators from the operating system; returns the seed."""
    found = default_generator.seed()
    seed_devices(found)
    return found


def initial_seed() -> int:
    """The seed of the calling rank's generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the calling rank's generator is, as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the calling rank's generator to what ``get_rng_state`` returned."""
    default_generator.set_state(new_state)


class States:
    """Where all generators of the calling rank are: the host's and its devices'."""

    def __init__(self) -> None:
        self.host = get_rng_state()
        cells = _device_cells()
        self.devices = {where: cell.pack() for where, cell in cells.items()}
        self.seed = _device_seed()

    def restore(self, devices: Iterable[device] | None = None) -> None:
        """Put them back (of the accelerators: ``devices``, None: all); one that was not used then
        begins again."""
        set_rng_state(self.host)
        cells = _device_cells()
        for where in list(cells) if devices is None else [d for d in devices if d in cells]:
            if where in self.devices:
                cells[where].unpack(self.devices[where])
            else:
                cells[where].plant(self.seed)


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, _caller: str = "fork_rng",
    _devices_kw: str = "devices", device_type: str = "cuda",
) -> Iterator[None]:  # fmt: skip
    """Put the calling rank's generators back to where they were when the block ends: the host's,
    and those of ``devices`` (numbers or devices; None: all)."""
    if not enabled:
        yield
        return
    chosen = None
    if devices is not None:
        chosen = [device(device_type, d) if isinstance(d, int) else device(d) for d in devices]
    before = States()
    try:
        yield
    finally:
        before.restore(chosen)
