"""Draws as operations: now, or at every run of the function that is being traced, where numbers go
on. For a program whose values are of any kind (``Draws``'s methods say which).

Where numbers come from is a *source*: the seeds in force, two seeds, or a stream; a function of a
word (what the operation is called), a shape, a type and a way to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import CaptureError
from ..func.instructions import is_staging
from ..graphs import CURRENT, Symbol
from ..graphs.compiled import STAGING
from ..ops import api as ops
from . import philox, streams

Source = Callable[[str, Any, Any, streams.Draw], Any]


_NATIVE = {philox.uniform: ops.rand, philox.normal: ops.randn}


def _in_program(word: str, draw: Any, sizes: Any, kind: Any) -> Tensor:
    """Numbers of a program, which draws from the generator of where it runs."""
    if STAGING.get() or draw not in _NATIVE:
        raise CaptureError(f"{word}: a program draws uniform and normal floats alone; draw these "
                           "outside of it, and give them to it")  # fmt: skip
    return _NATIVE[draw]([sizes] if isinstance(sizes, int) else sizes, dtype=kind)


class Draws:
    """Draws of plain Tensors. A subclass may say what values and types are otherwise."""

    # --- what a subclass may say otherwise --------------------------------------------------------
    def execute(self, kind: str, call: Callable[..., Any], inputs: list) -> Any:
        """Run ``call`` on values, or write it down."""
        graph = CURRENT.get()
        return call(*inputs) if graph is None else graph.record(kind, call, inputs)

    def value(self, given: Any, kind: Any = None) -> Any:
        """What a program gives, as a value; a number in the type ``kind``."""
        if isinstance(given, (Tensor, Symbol)):
            return given
        return ops.tensor(given) if kind is None else ops.tensor(given, dtype=kind)

    def numbers(self, given: Any) -> Any:
        """The Python numbers of what a program gives, where they can be read."""
        return given.tolist() if isinstance(given, Tensor) else given

    def kind(self, given: Any) -> Any:
        """The type that a program names."""
        return dtypes.as_dtype(given)

    def numpy_type(self, kind: Any) -> Any:
        """numpy's type for it."""
        return kind.np

    def stack(self, values: Sequence[Any]) -> Any:
        """Values beside each other."""
        return ops.stack(list(values))

    def combine(self, fn: Callable[..., Any], *values: Any) -> Any:
        """``fn``, which is arithmetic, of values."""
        return self.execute("Combine", fn, list(values))

    # --- sources ----------------------------------------------------------------------------------
    def _drawn(
        self, source: Callable, held: list, word: str, shape: Any, kind: Any, draw: Any
    ) -> Any:
        sizes, native = self.numbers(shape), np.dtype(self.numpy_type(kind))
        known = isinstance(sizes, int) or (
            not isinstance(sizes, Symbol) and all(isinstance(n, int) for n in sizes)
        )

        def call(*values: Any) -> Any:  # (examples use nothing up)
            found = sizes if known else values[-1].tolist()
            if is_staging():
                return _in_program(word, draw, found, dtypes.as_dtype(native.name))
            numbers = source(*values[: len(held)])
            found = [found] if isinstance(found, int) else found
            return numbers(draw, found, native, CURRENT.get() is not None)

        return self.execute(word, call, held if known else [*held, self.value(shape)])

    def of_seeds(self, seed: int | None, word: str, shape: Any, kind: Any, draw: Any) -> Any:
        """By the seeds in force, of which ``seed`` may be one."""
        source = streams.seeds().source(seed, word, kind)
        return self._drawn(lambda: source, [], word, shape, kind, draw)

    def of_seed(self, seed: Any, word: str, *what: Any) -> Any:
        """By two seeds."""
        pair = self.value(seed)
        if len(pair.shape) != 1 or pair.shape[0] != 2:
            raise ValueError(f"seed must have shape [2], not {pair.shape}")
        return self._drawn(lambda s: partial(streams.drawn_of, s.tolist()), [pair], word, *what)

    def of_stream(self, stream: streams.Stream, word: str, *what: Any) -> Any:
        """By a stream."""
        return self._drawn(lambda: stream.drawn, [], word, *what)

    # --- what is drawn ----------------------------------------------------------------------------
    def uniform(self, source: Source, word: str, shape: Any, low: Any, high: Any, kind: Any) -> Any:
        """From ``low`` to before ``high`` (1)."""
        kind = self.kind(kind)
        if np.dtype(self.numpy_type(kind)).kind not in "iu":
            low, high = self.value(low, kind), self.value(1 if high is None else high, kind)
            found = source(word, shape, kind, philox.uniform)
            return self.combine(lambda x, a, b: x * (b - a) + a, found, low, high)
        if high is None:
            raise ValueError(f"Must specify maxval for integer dtype {kind!r}")
        least, most = self.numbers(low), self.numbers(high)
        draw = lambda k, c, n, t: philox.integers(k, c, n, least, most, t)  # noqa: E731
        return source(word.replace("Uniform", "UniformInt"), shape, kind, draw)

    def normal(
        self, source: Source, word: str, shape: Any, mean: Any, spread: Any, kind: Any,
        draw: streams.Draw = philox.normal,
    ) -> Any:  # fmt: skip
        """Normal numbers of this mean and deviation."""
        kind = self.kind(kind)
        found = source(word, shape, kind, draw)
        moments = self.value(spread, kind), self.value(mean, kind)
        return self.combine(lambda x, factor, shift: x * factor + shift, found, *moments)

    def truncated_normal(
        self, source: Source, word: str, shape: Any, mean: Any, spread: Any, kind: Any
    ) -> Any:
        """Of these, those within two deviations."""
        return self.normal(source, word, shape, mean, spread, kind, philox.truncated_normal)

    def full(self, source: Source, shape: Any, kind: Any) -> Any:
        """Integers of all bits."""
        word = "StatelessRandomUniformFullIntV2"
        return source(word, shape, self.kind(kind), philox.full)

    def split(self, seed: Any, num: int = 2, alg: str = "auto_select") -> Any:
        """``num`` new pairs of seeds from one."""
        pair = self.value(seed)
        return self.full(partial(self.of_seed, pair), [num, 2], pair.dtype)

    def fold_in(self, seed: Any, data: Any, alg: str = "auto_select") -> Any:
        """A new pair of seeds from one and a number."""
        n = self.value(data)
        return self.stack([self.full(partial(self.of_seed, seed), [], n.dtype), n])

    def seeds_of(self, stream: streams.Stream, count: int = 1) -> Any:
        """``count`` pairs of seeds of a stream, [2, count]."""
        keys = self.full(partial(self.of_stream, stream), [count], "int64")
        return self.stack([keys, keys * 0])

    # --- functions --------------------------------------------------------------------------------
    def uniform_of_seeds(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32",
        seed: Any = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """From ``minval`` to before ``maxval`` (1), by the seeds in force."""
        source = partial(self.of_seeds, seed)
        return self.uniform(source, "RandomUniform", shape, minval, maxval, dtype)

    def uniform_of_seed(
        self, shape: Any, seed: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32",
        name: str | None = None, alg: str = "auto_select",
    ) -> Any:  # fmt: skip
        """From ``minval`` to before ``maxval`` (1), by two seeds."""
        source = partial(self.of_seed, seed)
        return self.uniform(source, "StatelessRandomUniformV2", shape, minval, maxval, dtype)

    def normal_of_seeds(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        seed: Any = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """Normal numbers by the seeds in force."""
        source = partial(self.of_seeds, seed)
        return self.normal(source, "RandomStandardNormal", shape, mean, stddev, dtype)

    def normal_of_seed(
        self, shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        name: str | None = None, alg: str = "auto_select",
    ) -> Any:  # fmt: skip
        """Normal numbers by two seeds."""
        source = partial(self.of_seed, seed)
        return self.normal(source, "StatelessRandomNormalV2", shape, mean, stddev, dtype)

    def truncated_normal_of_seeds(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        seed: Any = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """Normal numbers within two deviations by the seeds in force."""
        source = partial(self.of_seeds, seed)
        return self.truncated_normal(source, "TruncatedNormal", shape, mean, stddev, dtype)

    def truncated_normal_of_seed(
        self, shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        name: str | None = None, alg: str = "auto_select",
    ) -> Any:  # fmt: skip
        """Normal numbers within two deviations by two seeds."""
        source = partial(self.of_seed, seed)
        word = "StatelessTruncatedNormalV2"
        return self.truncated_normal(source, word, shape, mean, stddev, dtype)


class DrawnStream(streams.Stream):
    """A stream whose numbers are drawn by operations of ``draws``."""

    draws: ClassVar[Draws] = Draws()

    def _of(self, draw: Callable[..., Any], *what: Any) -> Any:
        return draw(partial(self.draws.of_stream, self), *what)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32",
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """From ``minval`` to before ``maxval`` (1)."""
        word = "StatelessRandomUniformV2"
        return self._of(self.draws.uniform, word, shape, minval, maxval, dtype)

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """Normal numbers."""
        word = "StatelessRandomNormalV2"
        return self._of(self.draws.normal, word, shape, mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32",
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """Of these, those within two deviations."""
        word = "StatelessTruncatedNormalV2"
        return self._of(self.draws.truncated_normal, word, shape, mean, stddev, dtype)

    def uniform_full_int(self, shape: Any, dtype: Any = "uint64", name: str | None = None) -> Any:
        """Integers of all bits."""
        return self._of(self.draws.full, shape, dtype)

    def make_seeds(self, count: int = 1) -> Any:
        """``count`` pairs of seeds, [2, count]."""
        return self.draws.seeds_of(self, count)
