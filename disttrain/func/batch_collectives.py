"""What collectives over the examples of a ``vmap`` do: rearrangements and sums of its batch.

A row is ``(inner, bdim, size, params) -> (inner, bdim)``: the value of the level below, and where
in it the batch is (None: one value for all examples).
"""

from __future__ import annotations

from typing import Any

from ..ops.functions.gathering import index_select
from ..ops.functions.reduce import sum as added
from ..ops.functions.views.join import cat
from ..ops.functions.views.shapes import diagonal, expand, movedim, unsqueeze
from ..ops.primitives.batching import fronted, made_beside

SAME = ("psum", "all_gather_same")  # whose results are one for all examples


def _total(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    return (x * size if dim is None else added(x, dim, dtype=x.dtype)), None


def _vary(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    return x, dim


def _gather(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    return fronted(x, dim, size), None


def _scatter(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    return _total(x, dim, size, params)[0], 0


def _own(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    if dim is None:
        return x, 0
    return movedim(diagonal(movedim(x, dim, 0), 0, 0, 1), -1, 0), 0


def _exchange(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    if dim is None:  # what all have for one, from each of them
        x = unsqueeze(x, 1)
        return expand(x, (size, size, *x.shape[2:])), 0
    return movedim(movedim(x, dim, 0), 1, 0), 0


def _permute(x: Any, dim: int | None, size: int, params: dict) -> tuple:
    x = fronted(x, dim, size)
    sources = [size] * size
    for source, target in params["perm"]:
        sources[target] = source
    if size in sources:  # those to whom none sends have zeros
        x = cat([x, x.new_zeros((1, *x.shape[1:]))], 0)
    return index_select(x, 0, made_beside(x, lambda xp: xp.asarray(sources))), 0


COLLECTIVES = {
    "psum": _total, "pvary": _vary, "all_gather": _gather, "all_gather_same": _gather,
    "psum_scatter": _scatter, "own_part": _own, "all_to_all": _exchange, "ppermute": _permute,
}  # fmt: skip
