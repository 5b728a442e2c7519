"""Reading rows by number, and adding them up by number in a fixed order.

    TAKE      (a (o, n, i), index (k), out (o, k, i))             out[x, j] = a[x, index[j]]
    GATHER    (a (o, n, i), index (o, k, i), out (o, k, i))       out[x, j, y] = a[x, index[...], y]
    ADD_ROWS  (g (n, d), order (n), places (n), out (size, d))    out[index[j]] += g[j] for all j

``ADD_ROWS`` takes ``order``, a stable argsort of the index, and ``places``, the index in that
order: each run of equal places is added up by one block, by eight teams whose sums are joined in
turn, without atomics. An index out of range ends the kernel with a message, and with it, as
PyTorch's does, all use of the device by this process; by numpy it raises ``DimError``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....errors import DimError, ShapeError
from ..structs import C_STORED, Value
from .code import Code, Field, Operand, Pointer, Step, Steps, blocks, expect, filled, itemsize

_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "dt_u64", 16: "uint4"}
_INDEX = ("int64",)
_TEAMS = 8
_READ = """
  const dt_u64 stride = (dt_u64)gridDim.x * 256u, inner = a.inner / $words;
  const dt_i64* const index = (const dt_i64*)a.index;
  for (dt_u64 e = (dt_u64)blockIdx.x * 256u + threadIdx.x; e < a.total / $words; e += stride) {
    const dt_u64 y = e % inner, rest = e / inner, j = rest % a.k, x = rest / a.k;
    const dt_i64 row = index[$at];
    if ((dt_u64)row >= a.n) dt_out_of_range("$name", row, (dt_i64)a.n);
    (($word*)a.out)[e] = ((const $word*)a.a)[(x * a.n + row) * inner + y];
  }
"""
_SUM = """
  __shared__ $wide sums[$teams][32];
  const unsigned t = threadIdx.x % ${lanes}u, r = threadIdx.x / ${lanes}u % ${rows}u;
  const unsigned w = threadIdx.x / 32u;
  const dt_u64 i = blockIdx.x / a.tiles * ${rows}u + r;
  const dt_u64 col = blockIdx.x % a.tiles * ${lanes}u + t;
  const dt_i64* const places = (const dt_i64*)a.places;
  const dt_i64* const order = (const dt_i64*)a.order;
  const dt_i64 place = i < a.n ? places[i] : -1;
  const bool mine = i < a.n && col < a.d && (i == 0 || places[i - 1] != place);
  if (mine && (dt_u64)place >= a.size) dt_out_of_range("add_rows", place, (dt_i64)a.size);
  $wide sum = 0;
  if (mine)
    for (dt_u64 j = i + w; j < a.n && places[j] == place; j += $teams)
      sum = dt_add(sum, dt_from_$dtype(((const $stored*)a.g)[order[j] * a.d + col]));
  sums[w][threadIdx.x % 32u] = sum;
  __syncthreads();
  if (mine && w == 0) {
    for (int k = 1; k < $teams; ++k) sum = dt_add(sum, sums[k][threadIdx.x]);
    $stored* const out = ($stored*)a.out + place * a.d + col;
    *out = dt_to_$dtype(dt_add(dt_from_$dtype(*out), sum));
  }
"""


def _fits(name: str, fine: bool, operands: tuple[Operand, ...]) -> None:
    if not fine:
        shapes = ", ".join(str(o.shape) for o in operands)
        raise ShapeError(f"{name}: arrays of shapes {shapes} do not belong together")


def _read(name: str, operands: tuple[Operand, ...]) -> Steps:
    a, index, out = operands
    three = len(a.shape) == len(out.shape) == 3
    _fits(name, three and len(index.shape) == (1 if name == "take" else 3), operands)
    (o, n, inner), k = a.shape, index.shape[0 if name == "take" else 1]
    wanted = (o, k, inner)
    whole = name == "take" or index.shape == wanted
    _fits(name, out.shape == wanted and whole, operands)
    expect(name, "index", index, _INDEX)
    expect(name, "out", out, (a.dtype,))
    total, size, words = out.size, itemsize(a.dtype), 1
    if not total:
        return Steps(())
    at = "j" if name == "take" else "e"
    body = filled(_READ, at=at, name=name, word=_WORDS[size], words=1)
    while name == "take" and size * words < 16 and inner % (words * 2) == 0:
        words *= 2
    if words > 1:  # rows are copied in words as wide as they allow, where they lie so
        wide = filled(_READ, at=at, name=name, word=_WORDS[size * words], words=words)
        aligned = f"((a.a | a.out) & {size * words - 1}) == 0"
        body = f"\n  if ({aligned}) {{{wide}  return;\n  }}{body}"
    values: dict[str, Value] = {"a": Pointer(0), "index": Pointer(1), "out": Pointer(2)}
    values |= {"total": total, "n": n, "k": k, "inner": inner}
    fields = tuple(Field(v, "u64") for v in values)
    grid = min(blocks(total // words), 1 << 16)
    return Steps((Step(f"{name}_{size}x{words}", body, fields, values, grid),))


def _taken(a: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    _inside("take", index, a.shape[1])
    out[...] = a[:, index]


def _gathered(a: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    _inside("gather", index, a.shape[1])
    out[...] = np.take_along_axis(a, index, 1)


def _inside(name: str, index: np.ndarray, n: int) -> None:
    wrong = index[(index < 0) | (index >= n)]
    if wrong.size:
        raise DimError(f"{name}: index {wrong[0]} is out of range for {n} rows")


def _add_rows(operands: tuple[Operand, ...]) -> Steps:
    g, order, places, out = operands
    fine = len(g.shape) == len(out.shape) == 2 and g.shape[1] == out.shape[1]
    _fits("add_rows", fine and order.shape == places.shape == g.shape[:1], operands)
    for what, o in (("order", order), ("places", places)):
        expect("add_rows", what, o, _INDEX)
    expect("add_rows", "out", out, (g.dtype,))
    expect("add_rows", "g", g, tuple(t for t in C_STORED if t != "bool"))
    (n, d), size = g.shape, out.shape[0]
    if not n or not d:
        return Steps(())
    lanes = min(32, 1 << (d - 1).bit_length())
    wide = {"float64": "double", "int64": "dt_i64"}.get(g.dtype, "float")
    wide = "int" if g.dtype in ("int8", "uint8", "int16", "int32") else wide
    body = filled(
        _SUM, wide=wide, teams=_TEAMS, lanes=lanes, rows=32 // lanes, dtype=g.dtype,
        stored=C_STORED[g.dtype],
    )  # fmt: skip
    tiles = blocks(d, lanes)
    values: dict[str, Value] = {"g": Pointer(0), "order": Pointer(1), "places": Pointer(2)}
    values |= {"out": Pointer(3), "n": n, "d": d, "size": size, "tiles": tiles}
    fields = tuple(Field(v, "u64") for v in values)
    name = f"add_rows_{g.dtype}_{lanes}"
    return Steps((Step(name, body, fields, values, blocks(n, 32 // lanes) * tiles),))


def _added(g: np.ndarray, order: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """In the same order: each run by eight sums, which join one after the other."""
    if not len(places):
        return
    _inside("add_rows", places, len(out))
    wide = np.result_type(g.dtype, np.float32) if out.dtype.kind not in "iu" else g.dtype
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    rows = g[order].astype(wide)
    for first, last in zip(starts, np.r_[starts[1:], len(places)]):
        sums = np.zeros((_TEAMS, g.shape[1]), wide)
        for w in range(min(_TEAMS, last - first)):
            for row in rows[first + w : last : _TEAMS]:
                sums[w] += row
        total = sums[0]
        for one in sums[1:]:
            total = total + one
        out[places[first]] = (out[places[first]].astype(wide) + total).astype(out.dtype)


TAKE = Code("take", 3, (), (2,), partial(_read, "take"), _taken)
GATHER = Code("gather", 3, (), (2,), partial(_read, "gather"), _gathered)
ADD_ROWS = Code("add_rows", 4, (), (3,), _add_rows, _added)

__all__ = ["ADD_ROWS", "GATHER", "TAKE"]
