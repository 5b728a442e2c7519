"""Where a DataLoader is in its epoch, and how another one gets there.

The order of an epoch is drawn from random streams, so they are noted before it is drawn: a resumed
loader draws it again, passes over what was taken, and leaves the streams as it found them. Samplers
that count their place over all ranks (``state_at``) are told it instead, on any number of ranks.
Knows samplers and streams; loads nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import context
from ..core import Tensor, wrap
from ..core.random import Generator, default_generator
from ..errors import ConfigError
from .checks import Count
from .dataset import rng_of
from .sampler import BatchSampler

_MT_BYTES = 625 * 4  # numpy's MT19937 in memory: its words and the place in them
_KEPT = "data.position.numpy"  # the slot of the last state of numpy's stream
_NEEDED = ("fetched", "finished", "rank", "world_size")


@dataclass(frozen=True)
class Streams:
    """The random streams of a process: the rank's, Python's and numpy's in their own words, and
    one of a program's own: a uint8 array, text for a numpy generator, or None."""

    rank: np.ndarray
    python: tuple
    numpy: dict[str, Any]
    own: Any = None

    @classmethod
    def now(cls, own: object = None) -> Streams:
        """As they are."""
        rank = default_generator.get_state().array
        return cls(rank, random.getstate(), _numpy_state(), _get(own))

    def set(self, own: object = None) -> None:
        """Go back to them; ``own`` where a state of it was noted."""
        default_generator.set_state(wrap(self.rank))
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if own is not None and self.own is not None:
            _set(own, self.own)

    def same(self, other: Streams) -> bool:
        """Has nothing been drawn between the two (but from ``own``)?"""
        return (
            np.array_equal(self.rank, other.rank)
            and self.python == other.python
            and self.numpy is other.numpy  # as long as nothing is drawn, see _numpy_state
        )

    def packed(self) -> dict[str, Any]:
        """As a dict that a checkpoint can hold."""
        _, words, gauss = self.python
        python = np.append(np.array(words, np.float64), (gauss is not None, gauss or 0.0))
        own = wrap(self.own) if isinstance(self.own, np.ndarray) else self.own
        numpy = json.dumps(self.numpy, default=np.ndarray.tolist)
        return {"rank": wrap(self.rank), "python": wrap(python), "numpy": numpy, "own": own}

    @classmethod
    def unpacked(cls, state: dict[str, Any]) -> Streams:
        """What ``packed`` has made a dict of."""
        rank, python, numpy, own = (_plain(state[k]) for k in ("rank", "python", "numpy", "own"))
        *words, has, gauss = python.tolist()
        its = _shaped(json.loads(numpy), np.random.get_state(legacy=False))
        return cls(rank, (3, tuple(int(w) for w in words), gauss if has else None), its, own)


def _numpy_state() -> dict[str, Any]:
    """The state of numpy's global stream; the same object as long as nothing is drawn. Asking for
    it takes longer than many a batch, so its words are compared as they lie in memory; they do not
    tell whether half of a pair of normal numbers is kept."""
    bits: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]
    words = b""
    if isinstance(bits, np.random.MT19937):
        words = ctypes.string_at(bits.ctypes.state_address, _MT_BYTES)
        kept = context.current().slots.get(_KEPT)
        if kept is not None and kept[0] == words:
            return kept[1]
    state = np.random.get_state(legacy=False)
    context.current().slots[_KEPT] = (words, state) if words and not state["has_gauss"] else None
    return state


def _plain(value: object) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _get(generator: object) -> Any:
    if isinstance(generator, Generator):
        return generator.get_state().array
    if generator is None:
        return None
    return json.dumps(rng_of(generator).bit_generator.state, default=np.ndarray.tolist)


def _set(generator: object, state: Any) -> None:
    if isinstance(generator, Generator):
        generator.set_state(wrap(state))
    else:
        bits = rng_of(generator).bit_generator
        bits.state = _shaped(json.loads(state), bits.state)


def _shaped(value: Any, like: object) -> Any:
    if isinstance(like, dict):
        return {k: _shaped(v, like[k]) for k, v in value.items()}
    return np.array(value, like.dtype) if isinstance(like, np.ndarray) else value


@dataclass(frozen=True)
class Stamped:
    """A batch of a worker whose streams have moved on while it was loaded."""

    batch: Any
    streams: Streams


@dataclass
class Position:
    """One epoch of a loader. ``before``: batches that were taken before it was resumed."""

    count: Count
    own: Any  # the loader's generator
    begin: Streams  # before the iterator was made
    base_seed: int
    before: int = 0
    first: Streams | None = None  # before the sampler was asked for the first time
    finished: bool = False
    workers: dict[int, Streams] = field(default_factory=dict)  # after the last batch of each
    starts: dict[int, Streams] = field(default_factory=dict)  # when the epoch began
    out_of_turn: set[int] = field(default_factory=set)  # taken, though one before was not
    low: int = 0  # all batches before this one were taken

    @property
    def end(self) -> int:
        """One more than the last batch that was taken before."""
        return max(self.out_of_turn, default=self.before - 1) + 1

    def taken(self) -> list[int]:
        """The batches of the epoch that were taken before."""
        return [*range(self.low), *self.out_of_turn]

    def take(self, number: int) -> None:
        """Batch ``number`` of the epoch is given."""
        if number != self.low:
            self.out_of_turn.add(number)
            return
        self.low += 1
        while self.low in self.out_of_turn:
            self.out_of_turn.remove(self.low)
            self.low += 1

    def fresh(self) -> dict[str, Any]:
        """The state of a loader that was never asked for anything."""
        return {**self.state_dict(None, False), "sampler": None, "finished": True}

    def opened(self, requests: object) -> Iterator:
        """``requests``, with the streams noted when the first is asked for."""
        return itertools.chain.from_iterable(self._open(requests))

    def _open(self, requests: Any) -> Iterator:
        if self.first is None:
            self.first = Streams.now(self.own)
        # What gives numbers may be no more than a ``__next__``.
        yield requests if hasattr(requests, "__iter__") else iter(requests.__next__, object())

    def state_dict(self, source: object, replay: bool) -> dict[str, Any]:
        """The position as a dict. ``replay``: workers go through the epoch from its start again."""
        me = context.current()
        fetched = self.before + self.count.fetched
        state: dict[str, Any] = {
            "fetched": fetched,
            "finished": self.finished,
            "rank": int(me.rank),
            "world_size": int(me.world_size),
            "base_seed": self.base_seed,
            "begin": self.begin.packed(),
            "first": None if self.first is None else self.first.packed(),
            "own": Streams.now(self.own).packed()["own"],
            "sampler": None if source is None else state_at(source, self.count.fetched),
            "out_of_turn": sorted(self.out_of_turn),
        }
        kept = self.starts if replay else self.workers
        state["workers"] = {str(worker): streams.packed() for worker, streams in kept.items()}
        return state


def resume(state: dict[str, Any], count: Count, own: object, num_workers: int) -> Position:
    """The position that ``state`` tells of. What belongs to the worker processes of another rank,
    or to another number of them, is left out: its place in the order is what counts."""
    me = context.current()
    begin = Streams.unpacked(state["begin"])
    seed = int(state["base_seed"])
    first = None if state["first"] is None else Streams.unpacked(state["first"])
    at = Position(count, own, begin, seed, state["fetched"], first)
    at.out_of_turn = set(state["out_of_turn"])
    at.low = at.before - len(at.out_of_turn)
    if (state["rank"], state["world_size"]) != (me.rank, me.world_size):
        at.base_seed = int(rng_of(own).integers(0, 1 << 62))
    elif all(int(worker) < num_workers for worker in state["workers"]):
        at.workers = {int(k): Streams.unpacked(v) for k, v in state["workers"].items()}
        at.starts = dict(at.workers)
    return at


def check(state: dict) -> None:
    """Refuse what no ``state_dict`` of a loader is."""
    missing = [k for k in _NEEDED if not isinstance(state, dict) or k not in state]
    if missing:
        given = sorted(state) if isinstance(state, dict) else type(state).__name__
        raise ConfigError(
            f"DataLoader.load_state_dict: {given} given, without {', '.join(missing)}; give what "
            "state_dict() of a DataLoader has returned"
        )


def set_own(generator: object, state: dict[str, Any]) -> None:
    """Set a loader's own generator to where it was when ``state`` was taken."""
    if generator is not None and state["own"] is not None:
        _set(generator, _plain(state["own"]))


def state_at(source: Any, count: int) -> dict[str, Any] | None:
    """The state of a sampler of which ``count`` values were taken; None: it keeps no place."""
    if type(source) is BatchSampler:
        return state_at(source.sampler, count * source.batch_size)
    return source.state_at(count) if _keeps_place(source) else None


def requests_from(source: Any, at: Position, state: dict[str, Any]) -> Iterator:
    """What is left to be asked for at ``at``. The streams stay as they are, but for the loader's
    own generator, which goes to where it was."""
    inner: Any = source.sampler if type(source) is BatchSampler else source
    if state["sampler"] is not None and _keeps_place(inner):
        inner.load_state_dict(state["sampler"])
        return iter(source)
    if at.first is None:
        set_own(at.own, state)
        return iter(source)
    now = Streams.now()
    try:
        at.begin.set(at.own)
        rng_of(at.own).integers(0, 1 << 62)  # the seed of the workers is drawn in between
        requests = iter(source)
        at.first.set(at.own)
        taken = set(at.taken())
        begun = itertools.islice(requests, max(at.end, 1))  # one at least: the order is drawn then
        left = [r for i, r in enumerate(begun) if i not in taken]
        return itertools.chain(left, requests)
    finally:
        now.set()


def _keeps_place(source: object) -> bool:
    """Has the class ``state_at``, and not below it another ``__iter__``, of another order?"""
    for kind in type(source).__mro__:
        if "state_at" in vars(kind):
            return True
        if "__iter__" in vars(kind):
            return False
    return False
