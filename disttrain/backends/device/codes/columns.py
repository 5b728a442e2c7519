"""Windows of images as columns of matrices, and columns added back.

    COLUMNS    (x (n, c, d, h, w), out (n, c * taps, places), *numbers)
    UNCOLUMNS  (columns (n, c * taps, places), out (n, c, d, h, w), *numbers)

The numbers are kernel, results, stride, padding and dilation, three each (``numbers``): images of
fewer dimensions have ones in front. ``COLUMNS`` reads ``x`` of any strides, zeros outside of it;
``UNCOLUMNS`` adds up for each place of the image what lies on it, kernel position after kernel
position, in float32 or wider.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from ....errors import ShapeError
from ..structs import C_STORED, Number, Value
from .code import Code, Field, Operand, Pointer, Step, Steps, blocks, expect, filled, itemsize

_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "dt_u64", 16: "uint4"}
_NUMBERS = tuple(f"{what}{i}" for what in "komps" for i in range(3))
_KINDS = ("i64",) * 15
_OPEN = """
  const dt_u64 stride = (dt_u64)gridDim.x * 256u;
  for (dt_u64 e = (dt_u64)blockIdx.x * 256u + threadIdx.x; e < a.total; e += stride) {
    dt_i64 at = (dt_i64)e;
"""
_COLUMNS = """
    const dt_i64 o2 = at % a.o2; at /= a.o2;
    const dt_i64 o1 = at % a.o1; at /= a.o1;
    const dt_i64 o0 = at % a.o0; at /= a.o0;
    const dt_i64 k2 = at % a.k2; at /= a.k2;
    const dt_i64 k1 = at % a.k1; at /= a.k1;
    const dt_i64 k0 = at % a.k0; at /= a.k0;
    const dt_i64 c = at % a.c, n = at / a.c;
    const dt_i64 i0 = o0 * a.m0 - a.p0 + k0 * a.s0;
    const dt_i64 i1 = o1 * a.m1 - a.p1 + k1 * a.s1;
    const dt_i64 i2 = o2 * a.m2 - a.p2 + k2 * a.s2;
    $word v = {};
    if (i0 >= 0 && i0 < a.n0 && i1 >= 0 && i1 < a.n1 && i2 >= 0 && i2 < a.n2)
      v = *(const $word*)(a.x + n * a.tn + c * a.tc + i0 * a.t0 + i1 * a.t1 + i2 * a.t2);
    (($word*)a.out)[e] = v;
  }
"""
_UNCOLUMNS = """
    const dt_i64 i2 = at % a.n2 + a.p2; at /= a.n2;
    const dt_i64 i1 = at % a.n1 + a.p1; at /= a.n1;
    const dt_i64 i0 = at % a.n0 + a.p0; at /= a.n0;
    const dt_i64 places = a.o0 * a.o1 * a.o2;
    $wide sum = 0;
    dt_i64 row = at * (a.k0 * a.k1 * a.k2);
    for (dt_i64 k0 = 0; k0 < a.k0; ++k0)
      for (dt_i64 k1 = 0; k1 < a.k1; ++k1)
        for (dt_i64 k2 = 0; k2 < a.k2; ++k2, ++row) {
          const dt_i64 r0 = i0 - k0 * a.s0, r1 = i1 - k1 * a.s1, r2 = i2 - k2 * a.s2;
          if (r0 < 0 || r1 < 0 || r2 < 0 || r0 % a.m0 || r1 % a.m1 || r2 % a.m2) continue;
          const dt_i64 o0 = r0 / a.m0, o1 = r1 / a.m1, o2 = r2 / a.m2;
          if (o0 >= a.o0 || o1 >= a.o1 || o2 >= a.o2) continue;
          const dt_i64 place = (o0 * a.o1 + o1) * a.o2 + o2;
          sum = dt_add(sum, dt_from_$dtype(((const $stored*)a.x)[row * places + place]));
        }
    (($stored*)a.out)[e] = dt_to_$dtype(sum);
  }
"""


def numbers(kernel: tuple, out: tuple, stride: tuple, padding: tuple, dilation: tuple) -> tuple:
    """The numbers of both codes, from those of images of one to three dimensions."""
    ones = (1,) * (3 - len(kernel))
    zeros = (0,) * len(ones)
    return (*ones, *kernel, *ones, *out, *ones, *stride, *zeros, *padding, *ones, *dilation)


def _make(name: str, operands: tuple[Operand, ...]) -> Steps:
    source, target = operands
    image, columns = (source, target) if name == "columns" else (target, source)
    if len(image.shape) != 5 or len(columns.shape) != 3 or image.shape[0] != columns.shape[0]:
        raise ShapeError(
            f"{name}: images of shape {image.shape} and columns of shape {columns.shape} do not "
            "belong together"
        )
    expect(name, "out", target, (source.dtype,))
    if not target.size:
        return Steps(())
    values: dict[str, Value] = {"x": Pointer(0), "out": Pointer(1), "total": target.size}
    values |= {name: Number(i) for i, name in enumerate(_NUMBERS)}
    values |= {f"n{i}": n for i, n in enumerate(image.shape[2:])} | {"c": image.shape[1]}
    if name == "columns":
        values |= dict(zip(("tn", "tc", "t0", "t1", "t2"), source.strides, strict=True))
        size = itemsize(source.dtype)
        body, tag = filled(_OPEN + _COLUMNS, word=_WORDS[size]), str(size)
    else:
        expect(name, "columns", source, tuple(t for t in C_STORED if t != "bool"))
        wide = {"float64": "double", "int64": "dt_i64"}.get(source.dtype, "float")
        wide = "int" if source.dtype in ("int8", "uint8", "int16", "int32") else wide
        stored, tag = C_STORED[source.dtype], source.dtype
        body = filled(_OPEN + _UNCOLUMNS, wide=wide, dtype=source.dtype, stored=stored)
    unsigned = ("x", "out", "total")
    fields = tuple(Field(v, "u64" if v in unsigned else "i64") for v in values)
    grid = min(blocks(target.size), 1 << 16)
    return Steps((Step(f"{name}_{tag}", body, fields, values, grid),))


def _taps(shape: tuple, given: tuple) -> Iterator[tuple[int, tuple, tuple]]:
    """Each kernel position: its number, the results that read inside of the image, and where."""
    kernel, out, stride, padding, dilation = (given[i : i + 3] for i in range(0, 15, 3))
    for number, tap in enumerate(itertools.product(*map(range, kernel))):
        of, at = [], []
        for n, k, m, s, p, d in zip(shape, tap, out, stride, padding, dilation):
            start = k * d - p
            first = max(0, -(start // s))
            last = min(m, (n - 1 - start) // s + 1)
            of.append(slice(first, max(first, last)))
            at.append(slice(first * s + start, max(first, last - 1) * s + start + 1, s))
            if last <= first:
                at[-1] = slice(0, 0)
        yield number, tuple(of), tuple(at)


def _columns(x: np.ndarray, out: np.ndarray, *given: int) -> None:
    n, c = x.shape[:2]
    there = out.reshape(n, c, -1, *given[3:6])
    there[...] = 0
    for number, of, at in _taps(x.shape[2:], given):
        there[(slice(None), slice(None), number, *of)] = x[(Ellipsis, *at)]


def _uncolumns(columns: np.ndarray, out: np.ndarray, *given: int) -> None:
    n, c = out.shape[:2]
    parts = columns.reshape(n, c, -1, *given[3:6])
    wide = np.float32 if out.dtype.itemsize <= 2 and out.dtype.kind in "fV" else out.dtype
    total = np.zeros(out.shape, wide)
    for number, of, at in _taps(out.shape[2:], given):
        total[(Ellipsis, *at)] += parts[(slice(None), slice(None), number, *of)].astype(wide)
    out[...] = total.astype(out.dtype)


COLUMNS = Code("columns", 2, _KINDS, (1,), partial(_make, "columns"), _columns, (0,))
UNCOLUMNS = Code("uncolumns", 2, _KINDS, (1,), partial(_make, "uncolumns"), _uncolumns)

__all__ = ["COLUMNS", "UNCOLUMNS", "numbers"]
