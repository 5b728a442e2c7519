"""Sobol's sequence: points in Gray code's order (Antonov and Saleev, 1979), also scrambled by
random lower triangular matrices and a digital shift (Matousek, 1998).

Of one seed the scrambled points are PyTorch's: bits of the Mersenne twister that the seed begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import ConfigError, DTypeError, ShapeError
from ..ops.functions.creation.data import from_numpy
from ..ops.functions.random import randint
from .directions import BITS, MOST, directions


class SobolEngine:
    """Points of the Sobol sequence in ``dimension`` dimensions (at most 21201), in [0, 1).

    ``scramble``: by a random matrix and shift, of ``seed``, or of the default generator.
    """

    MAXBIT, MAXDIM = BITS, MOST

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= MOST:
            raise ConfigError(
                f"SobolEngine: dimension={dimension} given. Supported range of dimensionality for "
                f"SobolEngine is [1, {MOST}]"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self._directions = directions(dimension)
        self._start = np.zeros(dimension, np.int64)
        if scramble:
            self._start, self._directions = _scrambled(self._directions, seed)
        kind = dtypes.get_default_dtype().np  # the first point has no more digits than that
        self._first = (self._start.astype(kind) * kind.type(2.0**-BITS))[None]
        self.reset()

    def draw(
        self, n: int = 1, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next ``n`` points, (n, dimension), of the default type or ``dtype``."""
        kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
        if kind not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f'"_sobol_engine_draw" not implemented for {kind!r}')
        if n < 0:
            raise ShapeError(f"SobolEngine.draw: n={n} given; it must not be negative")
        self._check_end(n)
        first = self.num_generated == 0 and n > 0
        points = self._advance(n - 1 if first else n)
        points = points.astype(kind.np) * kind.np.type(2.0**-BITS)
        if first:
            points = np.concatenate([self._first.astype(kind.np), points])
        self.num_generated += n
        result = from_numpy(points)
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(
        self, m: int, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next 2^m points. The points drawn in all must be a power of two then, for only such
        a number is balanced."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n="
                f"{self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again; returns self."""
        self._last, self.num_generated = self._start, 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over ``n`` points; returns self."""
        self.num_generated += n
        if self.num_generated:
            self._check_end()
            self._last = self._point(self.num_generated - 1)
        return self

    def _point(self, number: int) -> np.ndarray:
        """A point, by the Gray code of its number."""
        code = number ^ (number >> 1)
        used = [k for k in range(BITS) if code >> k & 1]
        return self._start ^ np.bitwise_xor.reduce(self._directions[:, used], axis=1)

    def _check_end(self, more: int = 0) -> None:
        if self.num_generated + more > 1 << BITS:
            raise ConfigError(
                f"SobolEngine: {self.num_generated} points drawn, {more} more wanted; there are "
                f"2^{BITS}: reset() begins again"
            )

    def _advance(self, n: int) -> np.ndarray:
        """The next ``n`` points as whole numbers, and on to the last of them."""
        at = max(self.num_generated - 1, 0) + np.arange(n)
        lowest = ~at & (at + 1)  # the rightmost bit that is zero
        places = np.log2(lowest).astype(np.int64)
        steps = self._directions.T[places]
        points = np.bitwise_xor.accumulate(steps, axis=0) ^ self._last
        if n:
            self._last = points[-1]
        return points

    def __repr__(self) -> str:
        told = [f"dimension={self.dimension}"]
        if self.scramble:
            told.append("scramble=True")
        if self.seed is not None:
            told.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(told)})"


def _bits(seed: int | None) -> Any:
    """A function from sizes to random bits."""
    if seed is None:
        return lambda *sizes: randint(2, sizes).numpy()
    stream = np.random.RandomState(seed & 0xFFFFFFFF)
    return lambda *sizes: (stream.randint(0, 1 << 32, sizes, np.uint32) & 1).astype(np.int64)


def _scrambled(numbers: np.ndarray, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """A shift, and direction numbers as random matrices change them: lower triangular ones, with
    ones on the diagonal, over the bits of a number from its highest on."""
    size, draw = len(numbers), _bits(seed)
    shift = draw(size, BITS) @ (1 << np.arange(BITS))
    highest_first = np.arange(BITS - 1, -1, -1)
    changed = np.zeros_like(numbers)
    matrices = np.tril(draw(size, BITS, BITS), -1)
    rows = matrices @ (1 << highest_first) + (1 << highest_first)
    for p, place in enumerate(highest_first):
        common = numbers & rows[:, p, None]
        for half in (16, 8, 4, 2, 1):
            common = common ^ (common >> half)
        changed |= (common & 1) << place
    return shift, changed
