"""Folds of many arrays in two launches: norms of gradients, and whether all numbers are finite.

    fold_many("squares" | "sizes" | "largest")     (out (n) float64, array 1, ..., array n)

``out`` gets, for each array, the sum of the squares, the sum of the absolute values, or the largest
absolute value (nan where one is), in float64. Arrays have one floating type. The order in which
numbers are added depends on their count alone. Squares of float32 do not overflow in float64, so
that their sum is finite where all numbers are.
"""

from __future__ import annotations

import functools

import numpy as np

from ....errors import ShapeError
from ..structs import C_STORED, Value
from .code import Code, Field, Operand, Pointer, Step, Steps, blocks, expect, filled, itemsize
from .randomness import FLOATS

_MOST = 128  # arrays that one launch takes: its struct stays under 4 KB
_EACH = 1 << 14  # elements that one block folds, while there are few blocks
_PARTS = 256  # blocks that one array gets at most
_TAKE = {
    "squares": "dt_fma(x, x, sum)",
    "sizes": "sum + fabs(x)",
    "largest": "dt_max(sum, fabs(x))",
}
_FOLD = {"squares": "dt_fold_sum", "sizes": "dt_fold_sum", "largest": "dt_fold_max"}
_JOIN = """
  __shared__ double slots[8];
  dt_leave<$fold, double>(sum, slots);
  __syncthreads();
  if (threadIdx.x < 32) sum = dt_take<$fold, 8, double>(slots, 0.0);
  if (threadIdx.x == 0) ((double*)a.to)[$at] = sum;
"""
_PARTLY = """
  int low = 0, high = (int)a.count;
  while (high - low > 1) {
    const int middle = (low + high) >> 1;
    if (a.start[middle] <= blockIdx.x) low = middle; else high = middle;
  }
  const $stored* const p = (const $stored*)a.p[low];
  const dt_u64 n = a.n[low], step = (dt_u64)(a.start[low + 1] - a.start[low]) * 256u * $v;
  const bool whole = (a.p[low] & 15) == 0;
  double sum = 0;
  const dt_u64 first = (dt_u64)(blockIdx.x - a.start[low]) * 256u + threadIdx.x;
  for (dt_u64 i = first * $v; i < n; i += step) {
    const int left = n - i < $v ? (int)(n - i) : $v;
    $stored r[$v];
    if (whole && left == $v) dt_fetch<$v>(r, p + i);
    else
      for (int j = 0; j < left; ++j) r[j] = p[i + j];
#pragma unroll
    for (int j = 0; j < $v; ++j) {
      const double x = j < left ? (double)dt_from_$dtype(r[j]) : 0.0;
      sum = $take;
    }
  }
"""
_WHOLE = """
  double sum = 0;
  for (unsigned i = a.start[blockIdx.x] + threadIdx.x; i < a.start[blockIdx.x + 1]; i += 256u)
    sum = $fold::of(sum, ((const double*)a.part)[i]);
"""


def _plan(op: str, operands: tuple[Operand, ...]) -> Steps:
    out, *arrays = operands
    expect("fold_many", "out", out, ("float64",))
    if out.shape != (len(arrays),):
        raise ShapeError(f"fold_many: out is {out.shape}; needed is {(len(arrays),)}")
    for o in arrays:
        expect("fold_many", "an array", o, FLOATS if o is arrays[0] else (arrays[0].dtype,))
    steps: list[Step] = []
    end = 0
    for first in range(0, len(arrays), _MOST):
        part = arrays[first : first + _MOST]
        steps += _launches(op, part, first, end)
        end += -(-sum(map(_blocks, part)) * 8 // 256) * 256
    return Steps(tuple(steps), end)


def _blocks(o: Operand) -> int:
    return max(1, min(blocks(o.size, _EACH), _PARTS))


def _launches(op: str, arrays: list[Operand], first: int, scratch: int) -> list[Step]:
    """Those of at most ``_MOST`` arrays, the first of which is number ``first``."""
    count, pad = len(arrays), _MOST - len(arrays)
    starts = [0]
    for o in arrays:
        starts.append(starts[-1] + _blocks(o))
    dtype = arrays[0].dtype
    given: dict[str, Value] = {
        "p": (*(Pointer(1 + first + k) for k in range(count)), *[0] * pad),
        "n": (*(o.size for o in arrays), *[0] * pad),
        "start": (*starts, *[starts[-1]] * pad),
        "count": count,
        "to": Pointer(-1, scratch),
    }
    fields = [Field("p", "u64", _MOST), Field("n", "u64", _MOST), Field("start", "u32", _MOST + 1)]
    fields += [Field("count", "u32"), Field("to", "u64")]
    names = {"stored": C_STORED[dtype], "dtype": dtype, "v": 16 // itemsize(dtype)}
    body = filled(_PARTLY, take=_TAKE[op], **names)
    body += filled(_JOIN, fold=_FOLD[op], at="blockIdx.x")
    partly = Step(f"fold_{op}_{dtype}", body, tuple(fields), given, starts[-1])
    last: dict[str, Value] = {"start": given["start"], "part": Pointer(-1, scratch)}
    last["to"] = Pointer(0, first * 8)
    body = filled(_WHOLE, fold=_FOLD[op]) + filled(_JOIN, fold=_FOLD[op], at="blockIdx.x")
    fields = [Field("start", "u32", _MOST + 1), Field("part", "u64"), Field("to", "u64")]
    return [partly, Step(f"fold_{op}_parts", body, tuple(fields), last, count)]


def _by_numpy(op: str, out: np.ndarray, *arrays: np.ndarray) -> None:
    for k, a in enumerate(arrays):
        x = np.abs(a.astype(np.float64))
        if op == "largest":
            out[k] = x.max(initial=0.0)
        else:
            out[k] = (x * x if op == "squares" else x).sum()


@functools.cache
def fold_many(op: str) -> Code:
    """See above."""
    plan, reference = functools.partial(_plan, op), functools.partial(_by_numpy, op)
    return Code(f"fold_many_{op}", -1, (), (0,), plan, reference)


__all__ = ["fold_many"]
