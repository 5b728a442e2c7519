"""``tf.random``: TensorFlow's generators over Philox, with its numbers.

The same bits as TensorFlow's on a CPU: ``stateless_*`` and ``Generator`` (algorithm Philox) for
uniform floats and integers; operations after ``set_seed`` for the sequence of their seeds, too.
Normal numbers agree to the last digits (sine and logarithm are this machine's). ``shuffle``,
``gamma``, ``poisson`` and ``categorical`` have the right distributions, and numbers of their own.
"""

from __future__ import annotations

import contextvars
import math as numbers
import random as python_random
from typing import Any

import disttrain as dt

from ...keyed import philox
from .arrays import stack
from .dispatch import execute, plain
from .tensor import GRAPH, convert, inner_type, matched, wrap
from .types import as_dtype
from .variable import Variable

_MAX = 2**31 - 1
_DEFAULT_SEED = 87654321
_seeds: contextvars.ContextVar[Any] = contextvars.ContextVar("seeds", default=None)


class _Seeds:
    """The global seed, and the seeds of operations that follow from it."""

    def __init__(self, seed: int | None) -> None:
        self.seed, self.stream = seed, python_random.Random(seed)
        self.used: dict[tuple, int] = {}  # by operation: where its numbers go on

    def pair(self, own: int | None) -> tuple[int, int]:
        """The two seeds of an operation."""
        if self.seed is not None:
            pair = self.seed, self.stream.randint(0, _MAX) if own is None else own
        elif own is not None:
            pair = _DEFAULT_SEED, own
        else:
            pair = self.stream.getrandbits(63), self.stream.getrandbits(63)
        return pair if any(pair) else (0, _MAX)


def _current() -> _Seeds:
    found = _seeds.get()
    if found is None:
        found = _Seeds(None)
        _seeds.set(found)
    return found


def set_seed(seed: int) -> None:
    """Let all operations that follow draw from ``seed``; also what layers draw."""
    _seeds.set(_Seeds(int(seed)))
    dt.manual_seed(int(seed))


def _drawn(shape: Any, kind: Any, draw: Any, seed: Any, word: str) -> Any:
    """A tensor of numbers ``draw(key, counter, count, numpy's type)``. In a traced function each
    run goes on where the last has ended, as does an operation of the same seeds."""
    dtype, seeds = as_dtype(kind), _current()
    pair = seeds.pair(seed)
    key, place = pair[0] & (1 << 64) - 1, (word, dtype, pair, GRAPH.get() is not None and object())
    sizes = plain(shape)
    late = convert(shape) if not isinstance(sizes, (list, tuple, int)) or any(
        not isinstance(n, int) for n in _listed(sizes)) else None  # fmt: skip

    def call(*values: Any) -> Any:
        found = _listed(sizes) if late is None else [int(n) for n in values[0].tolist()]
        count = numbers.prod(found)
        begun = seeds.used.get(place, 0)
        array = draw(key, (pair[1] << 64) + begun, count, dtype.as_numpy_dtype)
        if GRAPH.get() is None:  # (examples use nothing up)
            seeds.used[place] = begun + count * 256
        return dt.tensor(array).reshape(found)

    return execute(word, call, [] if late is None else [late])


def _listed(sizes: Any) -> list:
    return [sizes] if isinstance(sizes, int) else list(sizes)


def _between(found: Any, low: Any, high: Any) -> Any:
    return found * (high - low) + low


def _limits(minval: Any, maxval: Any, kind: Any) -> tuple:
    dtype = as_dtype(kind)
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    if dtype.is_integer:
        return plain(minval), plain(maxval)
    return convert(minval, hint=dtype), convert(maxval, hint=dtype)


def uniform(shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32",
            seed: Any = None, name: str | None = None) -> Any:  # fmt: skip
    """Numbers in [minval, maxval)."""
    low, high = _limits(minval, maxval, dtype)
    if as_dtype(dtype).is_integer:
        return _drawn(shape, dtype, lambda k, c, n, t: philox.integers(k, c, n, low, high, t), seed,
                      "RandomUniformInt")  # fmt: skip
    return _between(_drawn(shape, dtype, philox.uniform, seed, "RandomUniform"), low, high)


def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: Any = None,
           name: str | None = None) -> Any:  # fmt: skip
    """Numbers of a normal distribution."""
    kind = as_dtype(dtype)
    found = _drawn(shape, dtype, philox.normal, seed, "RandomStandardNormal")
    return found * convert(stddev, hint=kind) + convert(mean, hint=kind)


def truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
                     seed: Any = None, name: str | None = None) -> Any:  # fmt: skip
    """Numbers of a normal distribution within two standard deviations."""
    kind = as_dtype(dtype)
    found = _drawn(shape, dtype, philox.truncated_normal, seed, "TruncatedNormal")
    return found * convert(stddev, hint=kind) + convert(mean, hint=kind)


def shuffle(value: Any, seed: Any = None, name: str | None = None) -> Any:
    """The slices along the first dimension in random order."""
    t = convert(value)
    return execute("RandomShuffle", lambda v: v.index_select(0, dt.randperm(len(v))), [t])


def categorical(logits: Any, num_samples: Any, dtype: Any = None, seed: Any = None,
                name: str | None = None) -> Any:  # fmt: skip
    """Numbers of classes, ``num_samples`` for each row of unnormalized log-probabilities."""
    kind = inner_type(dtype or "int64")
    return execute("Multinomial", lambda v: dt.multinomial(
        dt.softmax(v, -1), plain(num_samples), True).to(kind), [convert(logits)])  # fmt: skip


def gamma(shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: Any = None,
          name: str | None = None) -> Any:  # fmt: skip
    """Numbers of gamma distributions, ``shape`` of each."""
    pair = matched("Gamma", [convert(alpha, hint=as_dtype(dtype)), 1.0 if beta is None else beta])
    sizes = _listed(plain(shape))
    return execute(
        "RandomGamma", lambda a, b: dt.distributions.Gamma(a, b).sample(tuple(sizes)), pair
    )


def poisson(
    shape: Any, lam: Any, dtype: Any = "float32", seed: Any = None, name: str | None = None
):
    """Numbers of Poisson distributions, ``shape`` of each."""
    sizes, rates = _listed(plain(shape)), convert(lam, hint=as_dtype(dtype))
    return execute("RandomPoissonV2", lambda v: dt.poisson(
        v.expand(*sizes, *v.shape).clone()), [rates])  # fmt: skip


# --- stateless --------------------------------------------------------------------------------
def _stateless(shape: Any, seed: Any, kind: Any, draw: Any, word: str) -> Any:
    t, sizes = convert(seed), _listed(plain(shape))
    if t.ndim != 1 or t.shape[0] != 2:
        raise ValueError(f"seed must have shape [2], not {t.shape}")
    dtype = as_dtype(kind)

    def call(pair: Any) -> Any:
        key, counter = philox.key_and_counter(tuple(int(s) for s in pair.tolist()))
        found = draw(key, counter, numbers.prod(sizes), dtype.as_numpy_dtype)
        return dt.tensor(found).reshape(sizes)

    return execute(word, call, [t])


def stateless_uniform(shape: Any, seed: Any, minval: Any = 0, maxval: Any = None,
                      dtype: Any = "float32", name: str | None = None,
                          alg: str = "auto_select"):  # fmt: skip
    """Numbers in [minval, maxval): a function of ``seed`` (two integers)."""
    low, high = _limits(minval, maxval, dtype)
    if as_dtype(dtype).is_integer:
        return _stateless(shape, seed, dtype, lambda k, c, n, t: philox.integers(k, c, n, low,
            high, t),
                          "StatelessRandomUniformIntV2")  # fmt: skip
    found = _stateless(shape, seed, dtype, philox.uniform, "StatelessRandomUniformV2")
    return _between(found, low, high)


def _stateless_normal(word: str, draw: Any) -> Any:
    def function(shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
                 name: str | None = None, alg: str = "auto_select") -> Any:  # fmt: skip
        kind = as_dtype(dtype)
        found = _stateless(shape, seed, dtype, draw, word)
        return found * convert(stddev, hint=kind) + convert(mean, hint=kind)

    return function


def stateless_split(seed: Any, num: int = 2, alg: str = "auto_select") -> Any:
    """``num`` new seeds from one."""
    t = convert(seed)
    return _stateless([num, 2], t, t.dtype, philox.full, "StatelessRandomUniformFullIntV2")


def stateless_fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Any:
    """A new seed from one and a number."""
    n = convert(data)
    first = _stateless([], seed, n.dtype, philox.full, "StatelessRandomUniformFullIntV2")
    return stack([first, n])


class Generator:
    """Random numbers with a state of their own: a counter and a key (Philox)."""

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        start = copy_from.state.numpy() if copy_from is not None else plain(state)
        self._state = Variable(convert(start, "int64"), trainable=False, name="StateVar")
        self.algorithm = 1

    @classmethod
    def from_seed(cls, seed: int, alg: Any = None) -> Generator:
        return cls(state=[int(seed), 0, 0])

    @classmethod
    def from_state(cls, state: Any, alg: Any = None) -> Generator:
        return cls(state=convert(state).numpy().tolist())

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        return cls(state=[python_random.SystemRandom().getrandbits(62) for _ in range(3)])

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any = None) -> Generator:
        return cls(state=[*convert(counter).numpy().tolist(), int(plain(key))])

    state = property(lambda self: self._state)
    key = property(lambda self: wrap(self._state._tensor[2]))

    def reset_from_seed(self, seed: int) -> None:
        self._state.assign(convert([int(seed), 0, 0], "int64"))

    def reset(self, state: Any) -> None:
        self._state.assign(convert(plain(state), "int64"))

    def skip(self, delta: int) -> Any:
        """Go on as if ``delta`` numbers had been drawn."""
        before = self._numbers()
        self._advance(int(plain(delta)))
        return wrap(dt.tensor([_signed(before[0]), _signed(before[1]), _signed(before[2])]))

    def _numbers(self) -> list[int]:
        return [int(n) & (1 << 64) - 1 for n in self._state._tensor.tolist()]

    def _advance(self, count: int) -> tuple[int, int]:
        low, high, key = self._numbers()
        counter = low | high << 64
        after = counter + count * 256
        parts = [_signed(after & (1 << 64) - 1), _signed(after >> 64 & (1 << 64) - 1), _signed(key)]
        self._state._tensor = dt.tensor(parts, dtype=dt.int64)
        return key, counter

    def _draw(self, shape: Any, kind: Any, draw: Any, word: str) -> Any:
        sizes, dtype = _listed(plain(shape)), as_dtype(kind)

        def call() -> Any:
            count = numbers.prod(sizes)
            if GRAPH.get() is None:
                key, counter = self._advance(count)
            else:
                key, counter = 0, 0
            return dt.tensor(draw(key, counter, count, dtype.as_numpy_dtype)).reshape(sizes)

        return execute(word, call, [])

    def uniform(self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32",
                name: str | None = None) -> Any:  # fmt: skip
        """Numbers in [minval, maxval)."""
        low, high = _limits(minval, maxval, dtype)
        if as_dtype(dtype).is_integer:
            return self._draw(shape, dtype, lambda k, c, n, t: philox.integers(k, c, n, low, high,
                t),
                              "StatelessRandomUniformIntV2")  # fmt: skip
        found = self._draw(shape, dtype, philox.uniform, "StatelessRandomUniformV2")
        return _between(found, low, high)

    def normal(self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
               name: str | None = None) -> Any:  # fmt: skip
        """Numbers of a normal distribution."""
        found = self._draw(shape, dtype, philox.normal, "StatelessRandomNormalV2")
        return found * stddev + mean

    def truncated_normal(self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0,
                         dtype: Any = "float32", name: str | None = None) -> Any:  # fmt: skip
        """Numbers of a normal distribution within two standard deviations."""
        found = self._draw(shape, dtype, philox.truncated_normal, "StatelessTruncatedNormalV2")
        return found * stddev + mean

    def uniform_full_int(self, shape: Any, dtype: Any = "uint64", name: str | None = None) -> Any:
        """Integers of all bits."""
        return self._draw(shape, dtype, philox.full, "StatelessRandomUniformFullIntV2")

    def make_seeds(self, count: int = 1) -> Any:
        """``count`` seeds for stateless functions, [2, count]."""
        keys = self.uniform_full_int([count], "int64")
        return stack([keys, keys * 0])

    def split(self, count: int = 1) -> list[Generator]:
        """Generators of their own."""
        keys = self.uniform_full_int([count], "int64").numpy().tolist()
        return [Generator(state=[0, 0, key]) for key in keys]


def _signed(n: int) -> int:
    return n - (1 << 64) if n >= 1 << 63 else n


_GLOBAL: contextvars.ContextVar[Any] = contextvars.ContextVar("global generator", default=None)


def get_global_generator() -> Generator:
    """The generator of programs that have none of their own."""
    found = _GLOBAL.get()
    if found is None:
        found = Generator.from_non_deterministic_state()
        _GLOBAL.set(found)
    return found


def set_global_generator(generator: Generator) -> None:
    """Replace it."""
    _GLOBAL.set(generator)


NAMES: dict[str, Any] = {
    **{w: globals()[w] for w in """set_seed uniform normal truncated_normal shuffle categorical
    gamma
    poisson stateless_uniform Generator get_global_generator set_global_generator""".split()},
    "stateless_normal": _stateless_normal("StatelessRandomNormalV2", philox.normal),
    "stateless_truncated_normal": _stateless_normal("StatelessTruncatedNormalV2",
                                                    philox.truncated_normal),
    "split": stateless_split, "fold_in": stateless_fold_in,
}  # fmt: skip
