"""What rules of matrices share: triangles, identities, blocks, batch rules of several
arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.annotations import Shaped, Value
from ..batching import fronted, made_like
from ..elementwise import H, cast_like, eq, where
from ..linalg import array_type, column, matmul, row, skew, swap
from ..views import cat, getitem, tri


def real_type(kind: np.dtype) -> np.dtype:
    """The type of the parts of a complex type; a real type itself."""
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


def complex_type(kind: np.dtype) -> np.dtype:
    """The complex type of numbers whose parts are of ``kind``."""
    return kind if kind.kind == "c" else np.dtype(f"c{kind.itemsize * 2}")


def adjoint(x: Value) -> Any:
    """The conjugate transpose of each matrix."""
    return swap(H(x))


def square(a: Shaped) -> int:
    """The size of square matrices."""
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"square matrices are needed, {list(a.shape)} given")
    return int(a.shape[-1])


def identity(like: Value, size: int) -> Any:
    """The identity matrix, for operations with ``like``, in its type."""
    kind = array_type(like)
    return made_like(like, lambda xp: xp.eye(size, dtype=kind))


def halved(x: Value) -> Any:
    """x + x^H with the real part of the diagonal of x."""
    whole = x + adjoint(x)
    return whole - whole * identity(x, x.shape[-1]) * 0.5


def halved_diagonal(x: Value) -> Any:
    """The lower triangle with half of its diagonal."""
    lower = tri(x, k=0, upper=False)
    return lower - lower * identity(x, x.shape[-1]) * 0.5


def on_diagonal(values: Value, like: Value) -> Any:
    """Square matrices with ``values`` on their diagonals, in the type of ``like``."""
    return column(cast_like(values, like)) * identity(like, values.shape[-1])


def apart(values: Value) -> Any:
    """1 / (values[j] - values[i]); 0 where two are equal: what belongs to equal ones has no
    derivative, and counts as none."""
    gap = row(values) - column(values)
    same = eq(gap, 0)
    return where(same, 0.0, 1.0 / where(same, 1.0, gap))


def part(x: Value, rows: slice, columns: slice) -> Any:
    """A block of each matrix."""
    ahead = (slice(None),) * (len(x.shape) - 2)
    return getitem(x, index=(*ahead, rows, columns))


def beside(a: Value, b: Value) -> Any:
    """Matrices with the columns of both."""
    return cat(a, b, dim=len(a.shape) - 1, sizes=(a.shape[-1], b.shape[-1]))


def below(a: Value, b: Value) -> Any:
    """Matrices with the rows of both."""
    return cat(a, b, dim=len(a.shape) - 2, sizes=(a.shape[-2], b.shape[-2]))


class Fronted:
    """The batch rule of a primitive of matrices of one batch: all batch dimensions in front."""

    def __init__(self, prim_of: Callable[[], Any]) -> None:
        self.prim_of = prim_of

    def __call__(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        moved = [a if a is None else fronted(a, d, size) for a, d in zip(args, dims, strict=True)]
        out = self.prim_of()(*moved, **params)
        return out, (0,) * len(out) if isinstance(out, tuple) else 0


__all__ = [
    "H", "Fronted", "adjoint", "apart", "array_type", "below", "beside", "column", "complex_type",
    "halved", "halved_diagonal", "identity", "matmul", "on_diagonal", "part",
    "real_type", "row", "skew", "square", "swap", "tri",
]  # fmt: skip
