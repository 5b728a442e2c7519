"""What NCCL reduces itself, by which of its types and operators; the rest is reduced from copies.

NCCL has sums, products, minima, maxima and averages of most types. Truth values are its bytes, of
which the maximum is their "or" and the minimum their "and"; complex numbers are pairs. What it
lacks (bits, 16-bit integers, products of complex numbers) is gathered and folded where it is
needed, in the order that the CPU's transports have. Knows arrays of any module; no communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from disttrain.backends.device.raw import RawArray

from ....errors import DTypeError
from ...calls.reduce_ops import ReduceOp, make_reducer, ufunc_of

_NAMES = {  # numpy's types -> nccl4py's names
    np.dtype(t): name
    for t, name in (
        ("bool", "UINT8"), ("int8", "INT8"), ("uint8", "UINT8"), ("int32", "INT32"),
        ("uint32", "UINT32"), ("int64", "INT64"), ("uint64", "UINT64"), ("float16", "FLOAT16"),
        (ml_dtypes.bfloat16, "BFLOAT16"), ("float32", "FLOAT32"), ("float64", "FLOAT64"),
        (ml_dtypes.float8_e4m3fn, "FLOAT8E4M3"), (ml_dtypes.float8_e5m2, "FLOAT8E5M2"),
        ("complex64", "FLOAT32"), ("complex128", "FLOAT64"),
    )
}  # fmt: skip
_OPS = {"SUM": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "AVG": "AVG"}
_OF_TRUTH = {"SUM": "MAX", "MAX": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "MIN": "MIN",
             "BAND": "MIN"}  # fmt: skip
_EIGHT_BITS = {np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)}
_FOREIGN = {np.dtype(ml_dtypes.float8_e4m3fnuz), np.dtype(ml_dtypes.float8_e5m2fnuz)}


@dataclass(frozen=True)
class Native:
    """``dtype``, ``op``: nccl4py's names; ``factor``: of a sum whose values are multiplied first
    (``op`` is empty then); ``parts``: of its numbers in one element."""

    dtype: str
    op: str
    factor: float | int | None = None
    parts: int = 1


def native(op: ReduceOp, dtype: np.dtype, num_ranks: int, major: int) -> Native | None:
    """How NCCL itself reduces ``dtype`` by ``op`` on devices of compute capability ``major``; None
    where it does not. Raises ``DTypeError`` where nothing does."""
    make_reducer(op, dtype, num_ranks)  # refuses what has no meaning, as on the CPU
    if dtype in _FOREIGN or (dtype in _EIGHT_BITS and major < 9):
        raise DTypeError(
            f"reduce op {op}: an array of dtype {dtype.name} on a device of compute capability "
            f"{major} was given; NCCL reduces float8_e4m3fn and float8_e5m2 from 9.0 on. Convert "
            "it to bfloat16"
        )
    name = _NAMES.get(dtype)
    if name is None:
        return None
    if dtype.kind == "b":
        return Native(name, _OF_TRUTH[op.name]) if op.name in _OF_TRUTH else None
    parts = 2 if dtype.kind == "c" else 1
    if op.name == "PREMUL_SUM":
        return Native(name, "", 1 if op.factor is None else op.factor, parts)
    if op.name not in _OPS or (parts == 2 and op.name == "PRODUCT"):
        return None
    return Native(name, _OPS[op.name], None, parts)


def fold(rows: Sequence[Any], op: ReduceOp, out: RawArray) -> None:
    """Reduce ``rows``, one per rank, into ``out``, neighbours first."""
    join: Callable[..., Any] = ufunc_of(op)
    parts = list(rows)
    if op.factor is not None:
        parts = [p * p.dtype.type(op.factor) for p in parts]
    while len(parts) > 1:
        pairs = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    out[...] = parts[0]
