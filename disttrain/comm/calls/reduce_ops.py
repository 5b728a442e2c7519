"""Reduction operators on arrays, in one fixed order: a balanced tree over the ranks.

Neighbours are joined first: ``((0 1) (2 3)) ((4 5) 6)`` is the order of seven. The fixed order
makes results bitwise reproducible, and elementwise work makes them independent of how an array is
cut into chunks. That it is this tree makes rounding errors grow with its depth only, and lets a
rank that has joined a subtree alone take part with the result (``distributed/invariant``).
float16, bfloat16 and float8 are summed in float32 and rounded once.
Knows numpy arrays; no ranks, no transport.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from ...backends.fused.casts import scaled
from ...errors import ConfigError, DTypeError

BLOCK_BYTES = 128 << 10  # accumulate in pieces that stay in the processor's cache

_BITS = "biu"
_NUMBERS = "biufc"
_ORDERED = "biuf"


@dataclass(frozen=True, init=False)
class ReduceOp:
    """How values of all ranks become one. ``ReduceOp.SUM`` ... or ``premul_sum(factor)``, which
    ``ReduceOp.PREMUL_SUM(factor)`` is, too. ``ReduceOp(op)`` is ``op``."""

    name: str
    code: int
    factor: float | int | None = None

    SUM: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    PREMUL_SUM: ClassVar[ReduceOp]
    RedOpType: ClassVar[type]  # PyTorch has one class for the operator and one for its kind

    def __init__(
        self, name: str | ReduceOp, code: int = 0, factor: float | int | None = None
    ) -> None:
        if isinstance(name, ReduceOp):
            code, factor, name = name.code, name.factor, name.name
        for field, value in (("name", name), ("code", code), ("factor", factor)):
            object.__setattr__(self, field, value)

    def __call__(self, factor: float | int) -> ReduceOp:
        if self.name != "PREMUL_SUM":
            raise ConfigError(f"ReduceOp.{self}: only ReduceOp.PREMUL_SUM takes a factor")
        return premul_sum(factor)

    def __str__(self) -> str:
        return self.name if self.factor is None else f"{self.name}({self.factor!r})"


ReduceOp.RedOpType = ReduceOp
for _code, _name in enumerate(
    ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
):
    setattr(ReduceOp, _name, ReduceOp(_name, _code))

_UFUNC = {
    "SUM": (np.add, _NUMBERS),
    "AVG": (np.add, "fc"),
    "PRODUCT": (np.multiply, _NUMBERS),
    "MIN": (np.minimum, _ORDERED),
    "MAX": (np.maximum, _ORDERED),
    "BAND": (np.bitwise_and, _BITS),
    "BOR": (np.bitwise_or, _BITS),
    "BXOR": (np.bitwise_xor, _BITS),
    "PREMUL_SUM": (np.add, "iufc"),
}
_NARROW = {
    np.dtype(t).num
    for t in (
        *(np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
    )
}


def premul_sum(factor: float | int) -> ReduceOp:
    """Multiply every rank's values by ``factor``, then sum. Same factor on every rank."""
    if not isinstance(factor, (int, float, np.integer, np.floating)):
        raise ConfigError(f"premul_sum: factor={factor!r} was given; needed is a real number.")
    return ReduceOp("PREMUL_SUM", 8, factor.item() if isinstance(factor, np.generic) else factor)


def check_op(op: object) -> None:
    """``op`` is a ``ReduceOp``."""
    if not isinstance(op, ReduceOp):
        raise ConfigError(
            f"reduce op: {op!r} was given; needed is ReduceOp.SUM, AVG, ... or premul_sum(factor)."
        )


def ufunc_of(op: ReduceOp) -> Callable[..., np.ndarray]:
    """What joins two ranks' values."""
    return _UFUNC[op.name][0]


def make_reducer(op: ReduceOp, dtype: np.dtype, num_ranks: int) -> _Native | _Wide:
    """``reduce(parts, out)`` for ``num_ranks`` 1-D arrays of ``dtype``, by the tree over them.

    ``out`` may be one of ``parts``. Raises ``DTypeError`` where the operator has no meaning for
    the type. A reducer owns scratch memory: one thread at a time.
    """
    ufunc: Callable[..., np.ndarray]
    ufunc, kinds = _UFUNC[op.name]
    kind = "f" if dtype.num in _NARROW or dtype.kind == "V" else dtype.kind
    if kind not in kinds or (kind in "iu" and (op.factor or 0) % 1):
        raise DTypeError(
            f"reduce op {op}: an array of dtype {dtype.name} was given; needed is "
            f"{_needed(op)}. Convert the array or use another operator."
        )
    narrow = dtype.num in _NARROW
    if dtype.kind == "c" and op.name == "PRODUCT":
        ufunc = _times
    if not narrow and op.factor in (None, 1):
        return _Native(ufunc, dtype, num_ranks if op.name == "AVG" else 1, kind in "fc")
    acc = np.dtype(np.float32) if narrow else dtype
    return _Wide(ufunc, acc, num_ranks if op.name == "AVG" else 1, op.factor)


def _quietly() -> Callable[..., None]:
    """What calls a function for which numpy ignores what it would warn of: as ``np.errstate`` does,
    which takes as long as to add 1,000 numbers."""
    context = Context()
    context.run(np.seterr, all="ignore")
    return context.run


def _times(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The product of complex numbers. NumPy's own is rounded in another way where the result is
    one of the factors, or memory is not aligned, which differs between ranks."""
    real = a.real * b.real - a.imag * b.imag
    imag = a.real * b.imag + a.imag * b.real
    out.real, out.imag = real, imag
    return out


def _needed(op: ReduceOp) -> str:
    if op.name == "PREMUL_SUM":
        return "a number type that can hold the factor"
    return {
        "fc": "a floating or complex type (use SUM and divide)",
        _BITS: "an integer or bool type",
        _ORDERED: "a type with an order",
    }[_UFUNC[op.name][1]]


class _Scratch:
    """Blocks of ``size`` elements that lie in the cache, one per depth of the tree."""

    def __init__(self, size: int, dtype: np.dtype) -> None:
        self.size, self.dtype = size, dtype
        self.blocks: list[np.ndarray] = []

    def __call__(self, depth: int, count: int) -> np.ndarray:
        while len(self.blocks) <= depth:
            self.blocks.append(np.empty(self.size, self.dtype))
        return self.blocks[depth][:count]


OUT = -1  # where the result goes


@functools.cache
def tree(n: int, own: int | None) -> tuple[tuple[int, int, int], ...]:
    """The tree over ``n`` >= 2 neighbours as steps (left, right, result). Numbers below ``n`` are
    the parts, from ``n`` on places for what is joined on the way, ``OUT`` the memory of the result.
    It is written to last, or, where it is that of part ``own``, as soon as that was read."""
    steps: list[tuple[int, int, int]] = []

    def join(first: int, count: int, place: int) -> int:
        """Join ``count`` parts; those places from ``place`` on are free. Where the value is."""
        if count == 1:
            return first
        cut = left_size(count)
        left = join(first, cut, place)
        right = join(first + cut, count - cut, place + (left == place))
        mine = count == n or (own is not None and first <= own < first + count)
        steps.append((left, right, OUT if mine else place))
        return steps[-1][2]

    join(0, n, n)
    return tuple(steps)


def left_size(n: int) -> int:
    """How many of ``n`` >= 2 neighbours the left branch has: the largest power of two below."""
    return 1 << (n - 1).bit_length() - 1


class _Native:
    """Accumulate in the array's own type."""

    def __init__(
        self, ufunc: Callable[..., np.ndarray], dtype: np.dtype, divisor: int, quiet: bool
    ) -> None:
        self.ufunc, self.divisor = ufunc, divisor
        exact = divisor & (divisor - 1) == 0 and dtype.kind in "fc"  # the same bits, and sooner
        self.factor = dtype.type(1.0 / divisor) if exact else None
        # Results are sums times this, where nothing else has to be done.
        self.scale = (1.0 / divisor if exact else None) if ufunc is np.add else None
        self.block = BLOCK_BYTES // dtype.itemsize
        self.scratch = _Scratch(self.block, dtype)
        self.acc = dtype
        self.quietly = _quietly() if quiet else None

    def lift(self, part: np.ndarray, out: np.ndarray) -> np.ndarray:
        """A rank's values in the type that they are added in (``acc``); ``out`` may serve."""
        return part

    def finish(self, value: np.ndarray, out: np.ndarray) -> None:
        """The result of what all ranks' values have come to; ``value`` may be ``out``."""
        if value is not out:
            out[...] = value
        self._divide(out)

    def __call__(self, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
        if self.quietly is not None:  # inf - inf and overflow are results here, not news
            self.quietly(self._reduce, parts, out)
        else:
            self._reduce(parts, out)

    def _reduce(self, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
        if len(parts) == 1:
            if parts[0] is not out:
                out[...] = parts[0]
        elif len(parts) == 2:
            self.ufunc(parts[0], parts[1], out=out)
        else:
            steps = tree(len(parts), next((i for i, p in enumerate(parts) if p is out), None))
            if out.size <= self.block:
                self._join(steps, parts, out)
            else:
                for lo in range(0, out.size, self.block):
                    hi = lo + self.block
                    self._join(steps, [p[lo:hi] for p in parts], out[lo:hi])
        self._divide(out)

    def _divide(self, out: np.ndarray) -> None:
        if self.divisor > 1:
            if self.factor is None:
                np.divide(out, self.divisor, out)
            else:
                np.multiply(out, self.factor, out)

    def _join(self, steps: tuple, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
        ufunc, values, n = self.ufunc, [*parts], len(parts)
        for left, right, place in steps:
            if place == OUT:
                into = out
            elif place < len(values):
                into = values[place]
            else:
                into = self.scratch(place - n, out.size)
                values.append(into)
            a = out if left == OUT else values[left]
            ufunc(a, out if right == OUT else values[right], out=into)


def _copy(x: np.ndarray, factor: float, out: np.ndarray) -> None:
    np.copyto(out, x, casting="unsafe")


class _Wide:
    """Accumulate in another type (float32 for narrow floats), scaling every part if asked."""

    scale = None

    def __init__(
        self, ufunc: Callable[..., np.ndarray], acc: np.dtype, divisor: int, factor
    ) -> None:
        self.ufunc, self.divisor, self.factor = ufunc, divisor, factor
        self.block = BLOCK_BYTES // acc.itemsize
        self.scratch = _Scratch(self.block, acc)
        self.cast, self.acc = scaled if acc == np.float32 else _copy, acc

    def lift(self, part: np.ndarray, out: np.ndarray) -> np.ndarray:
        """See ``_Native.lift``."""
        self.cast(part, 1.0, out)
        if self.factor is not None:
            np.multiply(out, out.dtype.type(self.factor), out=out)
        return out

    def finish(self, value: np.ndarray, out: np.ndarray) -> None:
        """See ``_Native.finish``."""
        if self.divisor > 1:
            np.divide(value, self.divisor, out=value)
        self.cast(value, 1.0, out)

    def __call__(self, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            for lo in range(0, out.size, self.block):
                hi = lo + self.block
                self.finish(self._join([p[lo:hi] for p in parts], 0), out[lo:hi])

    def _join(self, parts: Sequence[np.ndarray], depth: int) -> np.ndarray:
        value = self.scratch(depth, parts[0].size)
        if len(parts) == 1:
            return self.lift(parts[0], value)
        cut = left_size(len(parts))
        left, right = self._join(parts[:cut], depth), self._join(parts[cut:], depth + 1)
        return self.ufunc(left, right, out=value)
