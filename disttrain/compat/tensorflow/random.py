"""``tf.random``: TensorFlow's generators over Philox (``disttrain.keyed``), with its numbers.

The same bits as TensorFlow's on a CPU: ``stateless_*`` and ``Generator`` (algorithm Philox) for
uniform floats and integers; operations after ``set_seed`` for the sequence of their seeds, too.
Normal numbers agree to the last digits (sine and logarithm are this machine's). ``shuffle``,
``gamma``, ``poisson`` and ``categorical`` have the right distributions, and numbers of their own.
"""

from __future__ import annotations

import contextvars
import functools
import math
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ...arrays.pieces import sizes_of
from ...keyed import philox, streams
from ..tables import passing
from .arrays import stack
from .dispatch import execute, matched, op, plain
from .tensor import GRAPH, convert, wrap
from .types import as_dtype
from .variable import Variable

_seeds: contextvars.ContextVar[Any] = contextvars.ContextVar("seeds", default=None)


def _current() -> streams.Seeds:
    found: Any = _seeds.get()
    if found is None:
        found = streams.Seeds(None)
        _seeds.set(found)
    return found


def set_seed(seed: int) -> None:
    """Let all operations that follow draw from ``seed``; also what layers draw."""
    _seeds.set(streams.Seeds(int(seed)))
    dt.manual_seed(int(seed))


# --- where numbers come from: what draws, of which shape and type, by which operation ---------
def _by_seeds(shape: Any, dtype: Any, draw: Any, word: str, seed: Any) -> Any:
    """In a traced function each run goes on where the last has ended, as does an operation of the
    same seeds."""
    seeds, sizes = _current(), plain(shape)
    pair = seeds.pair(seed)
    place = word, dtype, pair, GRAPH.get() is not None and object()
    known = isinstance(sizes, int) or all(isinstance(n, int) for n in sizes)

    def call(*values: Any) -> Any:
        found = sizes_of(sizes if known else values[0].tolist())
        trial = GRAPH.get() is not None  # (examples use nothing up)
        return seeds.drawn(draw, pair, place, found, dtype.as_numpy_dtype, trial)

    return execute(word, call, [] if known else [convert(shape)])


def _by_seed(shape: Any, dtype: Any, draw: Any, word: str, seed: Any) -> Any:
    t, sizes = convert(seed), sizes_of(plain(shape))
    if t.ndim != 1 or t.shape[0] != 2:
        raise ValueError(f"seed must have shape [2], not {t.shape}")
    kind = dtype.as_numpy_dtype
    return execute(word, lambda s: streams.drawn_of(draw, s.tolist(), sizes, kind), [t])


def _by_state(shape: Any, dtype: Any, draw: Any, word: str, generator: Any) -> Any:
    sizes = sizes_of(plain(shape))

    def call() -> Any:
        key, counter = generator._advance(sizes) if GRAPH.get() is None else (0, 0)
        return streams.drawn(draw, key, counter, sizes, dtype.as_numpy_dtype)

    return execute(word, call, [])


# --- what is drawn ----------------------------------------------------------------------------
def _uniform(source: Callable, who: Any, word: str, shape: Any, low: Any, high: Any, kind: Any):
    dtype = as_dtype(kind)
    if high is None and dtype.is_integer:
        raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
    high = 1 if high is None else high
    if dtype.is_integer:
        least, most = plain(low), plain(high)
        draw = lambda k, c, n, t: philox.integers(k, c, n, least, most, t)  # noqa: E731
        return source(shape, dtype, draw, word.replace("Uniform", "UniformInt"), who)
    low, high = convert(low, hint=dtype), convert(high, hint=dtype)
    return source(shape, dtype, philox.uniform, word, who) * (high - low) + low


def _normal(draw: Any, source: Callable, who: Any, word: str, shape: Any, mean: Any, spread: Any,
            kind: Any) -> Any:  # fmt: skip
    dtype = as_dtype(kind)
    found = source(shape, dtype, draw, word, who)
    return found * convert(spread, hint=dtype) + convert(mean, hint=dtype)


_FULL = "StatelessRandomUniformFullIntV2"


def stateless_split(seed: Any, num: int = 2, alg: str = "auto_select") -> Any:
    """``num`` new seeds from one."""
    t = convert(seed)
    return _by_seed([num, 2], t.dtype, philox.full, _FULL, t)


def stateless_fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Any:
    """A new seed from one and a number."""
    n = convert(data)
    return stack([_by_seed([], n.dtype, philox.full, _FULL, seed), n])


def gamma(shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: Any = None,
          name: str | None = None) -> Any:  # fmt: skip
    """Numbers of gamma distributions, ``shape`` of each."""
    pair = matched("Gamma", [convert(alpha, hint=as_dtype(dtype)), 1.0 if beta is None else beta])
    sizes = tuple(sizes_of(plain(shape)))
    return execute("RandomGamma", lambda a, b: dt.distributions.Gamma(a, b).sample(sizes), pair)


def poisson(shape: Any, lam: Any, dtype: Any = "float32", seed: Any = None, name: Any = None):
    """Numbers of Poisson distributions, ``shape`` of each."""
    sizes, rates = sizes_of(plain(shape)), convert(lam, hint=as_dtype(dtype))
    return execute("RandomPoissonV2", lambda v: dt.poisson(
        v.expand(*sizes, *v.shape).clone()), [rates])  # fmt: skip


class Generator:
    """Random numbers with a state of their own: a counter and a key (Philox)."""

    algorithm = 1

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        start = copy_from.state.numpy() if copy_from is not None else plain(state)
        self._state = Variable(convert(start, "int64"), trainable=False, name="StateVar")

    from_seed = classmethod(lambda cls, seed, alg=None: cls(state=[int(seed), 0, 0]))
    from_state = classmethod(
        lambda cls, state, alg=None: cls(state=convert(state).numpy().tolist())
    )
    from_non_deterministic_state = classmethod(lambda cls, alg=None: cls(state=streams.by_chance()))
    from_key_counter = classmethod(lambda cls, key, counter, alg=None: cls(
        state=[*convert(counter).numpy().tolist(), int(plain(key))]))  # fmt: skip

    state = property(lambda self: self._state)
    key = property(lambda self: wrap(self._state._tensor[2]))

    def reset_from_seed(self, seed: int) -> None:
        self.reset([int(seed), 0, 0])

    def reset(self, state: Any) -> None:
        self._state.assign(convert(plain(state), "int64"))

    def skip(self, delta: int) -> Any:
        """Go on as if ``delta`` numbers had been drawn."""
        before = self._state._tensor
        self._advance([int(plain(delta))])
        return wrap(before)

    def _advance(self, sizes: list[int]) -> tuple[int, int]:
        now = self._state._tensor.tolist()
        state, key, counter = streams.advanced(now, math.prod(sizes))
        self._state._tensor = dt.tensor(state, dtype=dt.int64)
        return key, counter

    def uniform_full_int(self, shape: Any, dtype: Any = "uint64", name: str | None = None) -> Any:
        """Integers of all bits."""
        return _by_state(shape, as_dtype(dtype), philox.full, _FULL, self)

    def make_seeds(self, count: int = 1) -> Any:
        """``count`` seeds for stateless functions, [2, count]."""
        keys = self.uniform_full_int([count], "int64")
        return stack([keys, keys * 0])

    def split(self, count: int = 1) -> list[Generator]:
        """Generators of their own."""
        keys = self.uniform_full_int([count], "int64").numpy().tolist()
        return [Generator(state=[0, 0, key]) for key in keys]


# --- functions that are alike: of the stream of seeds, of two seeds, of a generator --------------
_ROWS: dict[str, Any] = {}
_LIMITS = "minval=0 maxval=None dtype='float32'"
_MOMENTS = "mean=0.0 stddev=1.0 dtype='float32'"
for _word, _kinds, _text, _draw in (
    ("uniform", ("RandomUniform", "StatelessRandomUniformV2"), _LIMITS, _uniform),
    ("normal", ("RandomStandardNormal", "StatelessRandomNormalV2"), _MOMENTS,
     functools.partial(_normal, philox.normal)),
    ("truncated_normal", ("TruncatedNormal", "StatelessTruncatedNormalV2"), _MOMENTS,
     functools.partial(_normal, philox.truncated_normal)),
):  # fmt: skip
    _ROWS[_word] = passing(
        _word, f"shape {_text} seed=None _name=None",
        lambda shape, low, high, kind, seed, draw=_draw, word=_kinds[0]: draw(
            _by_seeds, seed, word, shape, low, high, kind))  # fmt: skip
    _ROWS[f"stateless_{_word}"] = passing(
        f"stateless_{_word}", f"shape seed {_text} _name=None _alg='auto_select'",
        lambda shape, seed, *how, draw=_draw, word=_kinds[1]: draw(
            _by_seed, seed, word, shape, *how))  # fmt: skip
    setattr(Generator, _word, passing(
        _word, f"self shape {_text} _name=None",
        lambda self, *how, draw=_draw, word=_kinds[1]: draw(_by_state, self, word, *how)
    ))  # fmt: skip

_GLOBAL: contextvars.ContextVar[Any] = contextvars.ContextVar("global generator", default=None)


def get_global_generator() -> Generator:
    """The generator of programs that have none of their own."""
    found: Any = _GLOBAL.get()
    if found is None:
        found = Generator.from_non_deterministic_state()
        _GLOBAL.set(found)
    return found


NAMES: dict[str, Any] = {
    **_ROWS, **{f.__name__: f for f in (set_seed, gamma, poisson, Generator, get_global_generator)},
    "set_global_generator": lambda generator: _GLOBAL.set(generator) and None,
    "split": stateless_split, "fold_in": stateless_fold_in,
    "shuffle": op("shuffle", "RandomShuffle", lambda v: v.index_select(0, dt.randperm(len(v))),
                  "value! _seed=None"),
    "categorical": op(
        "categorical", "Multinomial", lambda v, n, kind: dt.multinomial(
            dt.softmax(v, -1), n, True).to(dt.int64 if kind is None else kind),
        "logits! num_samples dtype@=None _seed=None"),
}  # fmt: skip
