"""``tf.random``: TensorFlow's generators over Philox (``disttrain.keyed``), with its numbers.

The same bits as TensorFlow's on a CPU: ``stateless_*`` and ``Generator`` (algorithm Philox) for
uniform floats and integers; operations after ``set_seed`` for the sequence of their seeds, too.
Normal numbers agree to the last digits (sine and logarithm are this machine's). ``shuffle``,
``gamma``, ``poisson`` and ``categorical`` have the right distributions, and numbers of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays.pieces import sizes_of
from ...distributions import samples
from ...keyed import philox, streams
from ..tables import passing
from .arrays import stack
from .dispatch import execute, plain
from .math import made
from .tensor import GRAPH, convert, wrap
from .types import as_dtype
from .variable import Variable


def set_seed(seed: int) -> None:
    """Let all operations that follow draw from ``seed``; also what layers draw."""
    streams.begin(int(seed))
    dt.manual_seed(int(seed))


# --- where numbers come from: operations ``(word, shape, dtype, draw)`` ---------------------------
def _drawn(source: Any, held: list, word: str, shape: Any, dtype: Any, draw: Any) -> Any:
    sizes = plain(shape)
    known = isinstance(sizes, int) or all(isinstance(n, int) for n in sizes)

    def call(*values: Any) -> Any:  # (examples use nothing up)
        found = sizes_of(sizes if known else values[-1].tolist())
        numbers = source(*values[: len(held)])
        return numbers(draw, found, dtype.as_numpy_dtype, GRAPH.get() is not None)

    return execute(word, call, held if known else [*held, convert(shape)])


def _by_seeds(seed: Any, word: str, shape: Any, dtype: Any, draw: Any) -> Any:
    source = streams.seeds().source(seed, word, dtype)
    return _drawn(lambda: source, [], word, shape, dtype, draw)


def _by_seed(seed: Any, word: str, *what: Any) -> Any:
    t = convert(seed)
    if t.ndim != 1 or t.shape[0] != 2:
        raise ValueError(f"seed must have shape [2], not {t.shape}")
    return _drawn(lambda s: functools.partial(streams.drawn_of, s.tolist()), [t], word, *what)


def _by_state(generator: Any, word: str, *what: Any) -> Any:
    return _drawn(lambda: generator.drawn, [], word, *what)


# --- what is drawn --------------------------------------------------------------------------------
def _uniform(source: Callable, word: str, shape: Any, low: Any, high: Any, kind: Any) -> Any:
    dtype = as_dtype(kind)
    if high is None and dtype.is_integer:
        raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
    high = 1 if high is None else high
    if dtype.is_integer:
        least, most = plain(low), plain(high)
        draw = lambda k, c, n, t: philox.integers(k, c, n, least, most, t)  # noqa: E731
        return source(word.replace("Uniform", "UniformInt"), shape, dtype, draw)
    low, high = convert(low, hint=dtype), convert(high, hint=dtype)
    return source(word, shape, dtype, philox.uniform) * (high - low) + low


def _normal(draw: Any, source: Callable, word: str, shape: Any, mean: Any, spread: Any, kind: Any):
    dtype = as_dtype(kind)
    found = source(word, shape, dtype, draw) * convert(spread, hint=dtype)
    return found + convert(mean, hint=dtype)


def _full(source: Callable, shape: Any, dtype: Any) -> Any:
    return source("StatelessRandomUniformFullIntV2", shape, as_dtype(dtype), philox.full)


def stateless_split(seed: Any, num: int = 2, alg: str = "auto_select") -> Any:
    """``num`` new seeds from one."""
    t = convert(seed)
    return _full(functools.partial(_by_seed, t), [num, 2], t.dtype)


def stateless_fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Any:
    """A new seed from one and a number."""
    n = convert(data)
    return stack([_full(functools.partial(_by_seed, seed), [], n.dtype), n])


class Generator(streams.Stream):
    """Random numbers with a state of their own: a counter and a key (Philox)."""

    _state: Any
    numbers = staticmethod(plain)
    state = property(lambda self: self._state)
    key = property(lambda self: wrap(self._state._tensor[2]))

    def get(self) -> list[int]:
        found: list[int] = self._state._tensor.tolist()
        return found

    def put(self, state: list[int]) -> None:
        t = convert(np.array(state, np.int64))
        if "_state" in vars(self):
            self._state.assign(t)
        else:
            self._state = Variable(t, trainable=False, name="StateVar")

    def skip(self, delta: Any) -> Any:
        """Go on as if ``delta`` numbers had been drawn."""
        before = wrap(self._state._tensor)
        self.taken(int(plain(delta)))
        return before

    def uniform_full_int(self, shape: Any, dtype: Any = "uint64", name: str | None = None) -> Any:
        """Integers of all bits."""
        return _full(functools.partial(_by_state, self), shape, dtype)

    def make_seeds(self, count: int = 1) -> Any:
        """``count`` seeds for stateless functions, [2, count]."""
        keys = self.uniform_full_int([count], "int64")
        return stack([keys, keys * 0])


# --- functions that are alike: of the stream of seeds, of two seeds, of a generator ---------------
def _row(draw: Any, kind: str, word: str, text: str, source: Any, at: int) -> Any:
    """The function ``word``, whose argument at ``at`` says where its numbers come from."""

    def function(*given: Any) -> Any:
        values = list(given)
        return draw(functools.partial(source, values.pop(at)), kind, *values)

    return passing(word, text, function)


_ROWS: dict[str, Any] = {}
_MOMENTS = "mean=0.0 stddev=1.0 dtype='float32'"
for _word, _kind, _other, _text, _draw in (
    ("uniform", "RandomUniform", "RandomUniform", "minval=0 maxval=None dtype='float32'", _uniform),
    ("normal", "RandomStandardNormal", "RandomNormal", _MOMENTS,
     functools.partial(_normal, philox.normal)),
    ("truncated_normal", "TruncatedNormal", "TruncatedNormal", _MOMENTS,
     functools.partial(_normal, philox.truncated_normal)),
):  # fmt: skip
    _other, _long = f"Stateless{_other}V2", f"stateless_{_word}"
    _ROWS |= {
        _word: _row(_draw, _kind, _word, f"shape {_text} seed=None _name=None", _by_seeds, -1),
        _long: _row(_draw, _other, _long, f"shape seed {_text} _name=None _alg='auto_select'",
                    _by_seed, 1),
    }  # fmt: skip
    setattr(Generator, _word,
            _row(_draw, _other, _word, f"self shape {_text} _name=None", _by_state, 0))  # fmt: skip


NAMES: dict[str, Any] = {
    **_ROWS, "set_seed": set_seed, "Generator": Generator,
    "get_global_generator": Generator.default, "set_global_generator": Generator.as_default,
    "split": stateless_split, "fold_in": stateless_fold_in, **made("""
    - shuffle:RandomShuffle | value! _seed=None;
    - categorical:Multinomial | logits! num_samples dtype@=None _seed=None;
    - gamma:RandomGamma | shape alpha~ beta~=None dtype@='float32' _seed=None;
    - poisson:RandomPoissonV2 | shape lam! dtype@='float32' _seed=None""", (samples,)),
}  # fmt: skip
