"""What parts of sparse tensors must fulfil, and whether that is looked at.

What needs no look at the numbers (shapes, types) is always checked; the numbers where they are
asked to be (``check_invariants``), but for coordinates, whose checks cost little beside the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import context
from ....errors import DimError, ShapeError

_SLOT = "ops.sparse.checks"


def _state() -> dict[str, bool]:
    return context.current().slot(_SLOT, lambda: {"on": False})


class check_sparse_tensor_invariants:  # noqa: N801  (PyTorch's name)
    """Whether the numbers of places are checked when sparse tensors are made: a block, a decorator,
    and ``enable()`` and ``disable()`` for the calling rank."""

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether numbers are checked now."""
        return _state()["on"]

    @staticmethod
    def enable() -> None:
        """Check from now on."""
        _state()["on"] = True

    @staticmethod
    def disable() -> None:
        """Check no more."""
        _state()["on"] = False

    def __enter__(self) -> None:
        self.saved.append(_state()["on"])
        _state()["on"] = self.state

    def __exit__(self, *exc: object) -> None:
        _state()["on"] = self.saved.pop()

    def __call__(self, fn: Callable) -> Callable:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return fn(*args, **kwargs)

        return run


def wanted(asked: bool | None) -> bool:
    """Whether numbers are to be checked, where a call asks (or not: None)."""
    return check_sparse_tensor_invariants.is_enabled() if asked is None else asked


def coordinates(places: np.ndarray, counts: tuple, size: tuple[int, ...]) -> None:
    """Of COO: places (sparse dimensions, count), the shape of the values, the whole shape."""
    nnz = places.shape[1]
    if not counts or counts[0] != nnz:
        raise ShapeError(
            f"sparse_coo_tensor: indices and values must have same nnz, but got nnz from indices: "
            f"{nnz}, nnz from values: {counts[0] if counts else 'none'}"
        )
    dims = len(places) + len(counts) - 1
    if len(size) != dims:
        raise ShapeError(
            f"sparse_coo_tensor: number of dimensions must be sparse_dim ({len(places)}) + "
            f"dense_dim ({len(counts) - 1}), but got {len(size)}"
        )
    if tuple(size[len(places) :]) != tuple(counts[1:]):
        raise ShapeError(
            f"sparse_coo_tensor: values has incorrect size, expected "
            f"{[nnz, *size[len(places) :]]}, got {list(counts)}"
        )
    if math.prod(size) >= 2**63:
        raise ShapeError(f"sparse_coo_tensor: numel: integer multiplication overflow: size={size}")
    for dim, (row, n) in enumerate(zip(places, size, strict=False)):
        if row.size and row.min() < 0:
            raise DimError(f"sparse_coo_tensor: found negative index {row.min()} for dim {dim}")
        if row.size and row.max() >= n:
            raise DimError(
                f"sparse_coo_tensor: size is inconsistent with indices: for dim {dim}, size is {n} "
                f"but found index {row.max()}, which lies outside of it"
            )


def parts(layout: str, starts: np.ndarray, others: np.ndarray, counts: tuple) -> tuple[int, int]:
    """Of compressed layouts: that parts belong together. The block that a value is."""
    names = _names(layout)
    for name, array in zip(names, (starts, others), strict=True):
        if array.ndim < 1:
            raise ShapeError(
                f"{layout}_tensor: {name} must have dimensionality >= 1, but got {array.ndim}"
            )
        if array.dtype not in (np.int32, np.int64):
            raise ShapeError(
                f"{layout}_tensor: {name} and {names[1]} must be an int32 or int64 type, but got "
                f"{array.dtype}"
            )
    batch, inner = starts.ndim - 1, 2 if layout in ("sparse_bsr", "sparse_bsc") else 0
    if others.ndim != starts.ndim or len(counts) < batch + 1 + inner:
        raise ShapeError(
            f"{layout}_tensor: {names[0]}, {names[1]} and values must have dimensionality "
            f"{batch + 1}, {batch + 1} and {batch + 1 + inner} or more, but got {starts.ndim}, "
            f"{others.ndim} and {len(counts)}"
        )
    if not starts.shape[:-1] == others.shape[:-1] == counts[:batch]:
        raise ShapeError(
            f"{layout}_tensor: all batch dimensions must be equal, but got {starts.shape[:-1]} of "
            f"{names[0]}, {others.shape[:-1]} of {names[1]} and {counts[:batch]} of values"
        )
    block = counts[batch + 1 : batch + 3] if inner else (1, 1)
    if min(block) < 1:
        raise ShapeError(f"{layout}_tensor: blocks of {block} given; they must not be empty")
    return block[0], block[1]


def lines(
    layout: str, starts: np.ndarray, others: np.ndarray, counts: tuple, size: tuple,
    block: tuple[int, int],
) -> None:  # fmt: skip
    """Of compressed layouts: that parts fit the size."""
    names, batch = _names(layout), starts.ndim - 1
    inner = 2 if layout in ("sparse_bsr", "sparse_bsc") else 0
    dense = len(counts) - batch - 1 - inner
    if len(size) != batch + 2 + dense:
        raise ShapeError(
            f"{layout}_tensor: tensor dimensionality must be sum of batch, base, and dense "
            f"dimensionalities (={batch} + 2 + {dense}) but got {len(size)}"
        )
    rest = counts[batch + 1 + inner :]
    fits = tuple(size[batch + 2 :]) == tuple(rest) and tuple(size[:batch]) == starts.shape[:-1]
    if counts[batch] != others.shape[-1] or not fits:
        raise ShapeError(
            f"{layout}_tensor: number of elements in {names[1]} ({others.shape[-1]}) and shape of "
            f"values {list(counts)} do not fit size {list(size)}"
        )
    matrix = size[batch : batch + 2]
    if any(n % b for n, b in zip(matrix, block, strict=True)):
        raise ShapeError(
            f"{layout}_tensor: tensor sparse size {matrix} must be divisible by blocks of {block}"
        )
    first = 0 if layout in ("sparse_csr", "sparse_bsr") else 1
    count = matrix[first] // block[first]
    if starts.shape[-1] != count + 1:
        raise ShapeError(
            f"{layout}_tensor: {names[0]}.shape[-1] must be equal to the number of compressed "
            f"lines plus one (={count + 1}), but got {starts.shape[-1]}"
        )


def _names(layout: str) -> tuple[str, str]:
    return (
        ("crow_indices", "col_indices")
        if layout in ("sparse_csr", "sparse_bsr")
        else ("ccol_indices", "row_indices")
    )


def numbers(layout: str, starts: np.ndarray, others: np.ndarray, size: tuple) -> None:
    """Of a compressed matrix: the numbers themselves. ``size``: in blocks."""
    first, second = _names(layout)
    across = size[1 if layout in ("sparse_csr", "sparse_bsr") else 0]
    steps = np.diff(starts)
    inside = bool((others >= 0).all() and (others < across).all())
    tests = {
        f"{first}[..., 0] == 0": starts[0] == 0,
        f"{first}[..., -1] == nnz": starts[-1] == len(others),
        f"0 <= {first}[..., 1:] - {first}[..., :-1] <= {'ncols' if 'crow' in first else 'nrows'}": (
            (steps >= 0).all() and (steps <= across).all()
        ),
        f"0 <= {second} < {'ncols' if 'crow' in first else 'nrows'}": inside,
    }
    for text, holds in tests.items():
        if not holds:
            raise ShapeError(f"{layout}_tensor: `{text}` is not satisfied.")
    later = np.ones(max(len(others) - 1, 0), bool)
    later[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(others))] - 1] = False
    if (np.diff(others)[later] <= 0).any():
        raise ShapeError(
            f"{layout}_tensor: `{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, "
            "... are sorted and distinct along the last dimension values` is not satisfied."
        )
