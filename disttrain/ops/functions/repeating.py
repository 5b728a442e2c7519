"""Elements several times in a row. Torch's name."""

from __future__ import annotations

import numpy as np

from ...core.classes import values_of
from ...core.constants import constant
from ...core.tensor import Tensor, beside
from ...errors import DTypeError, ShapeError
from ...symbolic import made
from ..primitives import gathering as prim
from ..primitives import views
from ..primitives.batching import made_beside
from ..primitives.reduce import cumsum
from .args import one_dim
from .gathering import searchsorted


def repeat_interleave(
    input: Tensor, repeats: Tensor | int | None = None, dim: int | None = None, *,
    output_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Each element (or slice along ``dim``) ``repeats`` times in a row."""
    counted = input if repeats is None else repeats
    if isinstance(counted, Tensor) and (counted.ndim > 1 or counted.meta()[1].kind not in "iu"):
        what = f"repeats of {counted.dtype!r} and shape {list(counted.shape)} given"
        raise DTypeError(f"repeat_interleave: {what}; needed integers, of one dimension or none")
    if repeats is None:
        counts = values_of(input)
        return beside(input, np.repeat(np.arange(len(counts)), counts))
    if dim is None:
        input, dim = views.reshape(input, shape=(-1,)), 0
    d = one_dim(dim, input.ndim, "repeat_interleave")
    n = input.shape[d]
    if output_size is not None and isinstance(repeats, Tensor) and not repeats.is_cpu:
        return prim.take(input, _repeated(repeats, n, output_size), dim=d)
    if not isinstance(repeats, (Tensor, list, tuple)) and repeats >= 0:
        return prim.take(input, _in_runs(input, n, repeats), dim=d)
    counts = values_of(repeats) if isinstance(repeats, Tensor) else np.asarray(repeats)
    if (counts < 0).any():
        raise ShapeError(
            f"repeat_interleave: {int(counts.min())} given; repeats cannot be negative"
        )
    if counts.size not in (1, n):
        raise ShapeError(
            f"repeat_interleave: {counts.size} repeats given for dimension {d} of size {n}; needed "
            f"1 or {n}"
        )
    if counts.size == 1:
        return prim.take(input, _in_runs(input, n, int(counts.item())), dim=d)
    else:
        places = beside(input, np.repeat(np.arange(n), counts.reshape(-1)))
    return prim.take(input, places, dim=d)


def repeated_places(n: int, times: int) -> np.ndarray:
    """Each of ``n`` places ``times`` times in a row."""
    return np.arange(n * times) // max(times, 1)


def _in_runs(input: Tensor, n: int, times: int) -> Tensor:
    if input.is_cpu:
        return constant(input, made(repeated_places, n, times, shape=(n * times,)))
    return made_beside(input, lambda xp: xp.arange(n * times) // max(times, 1))


def _repeated(repeats: Tensor, n: int, total: int) -> Tensor:
    """Which of ``n`` places comes at each of ``total``, so that the host waits for nothing."""
    ends = cumsum(repeats.expand(n), dim=0)
    return searchsorted(ends, made_beside(repeats, lambda xp: xp.arange(total)), right=True)


__all__ = ["repeat_interleave"]
