"""Random numbers by counter, and dropout: Philox 4x32-10 (Salmon and others 2011).

    UNIFORM  NORMAL  EXPONENTIAL   (out, seed, offset)
    INTEGERS                       (out int64, seed, offset, low, count)   low .. low + count - 1
    BERNOULLI                      (p, out, seed, offset)    out: bool, or of the type of p
    BERNOULLI_NUMBER               (out, seed, offset, p)
    DROPOUT                        (x, out, mask bool, seed, offset, keep, scale)
    DROPOUT_AGAIN                  (x, out, seed, offset, keep, scale)     the same mask, not kept

An element depends on its place, ``seed`` and ``offset`` alone: on no launch, device or layout.
Draws with different offsets are independent; one draw takes one offset. A counter serves four
elements (two of 64 bits).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....errors import ShapeError
from ..structs import C_STORED, Value
from .checks import PROBABILITY, probabilities
from .code import Code, Field, Number, Operand, Pointer, Step, Steps, blocks, expect, filled

FLOATS = ("float32", "float64", "float16", "bfloat16")
PHILOX = """
struct dt_words { unsigned w[4]; };
DT_FN dt_words dt_philox(dt_u64 group, dt_u64 offset, dt_u64 seed) {
  unsigned c0 = (unsigned)group, c1 = (unsigned)(group >> 32);
  unsigned c2 = (unsigned)offset, c3 = (unsigned)(offset >> 32);
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
  for (int k = 0; k < 10; ++k) {
    const unsigned h0 = __umulhi(0xd2511f53u, c0), l0 = 0xd2511f53u * c0;
    const unsigned h1 = __umulhi(0xcd9e8d57u, c2), l1 = 0xcd9e8d57u * c2;
    c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
    k0 += 0x9e3779b9u; k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}
// [0, 1) in steps of 2**-bits; (0, 1]; 53 bits of two words.
DT_FN float dt_unit(unsigned w, int bits) {
  return (float)(w >> (32 - bits)) / (float)(1u << bits);
}
DT_FN float dt_above(unsigned w) { return fmaf((float)w, 0x1p-32f, 0x1p-33f); }
DT_FN dt_u64 dt_join(unsigned high, unsigned low) { return (dt_u64)high << 32 | low; }
DT_FN double dt_unit_wide(unsigned h, unsigned l) {
  return (double)(dt_join(h, l) >> 11) * 0x1p-53;
}
DT_FN double dt_above(unsigned h, unsigned l) { return dt_unit_wide(h, l) + 0x1p-53; }
"""
_BODY = """
  const dt_u64 g = (dt_u64)blockIdx.x * 256u + threadIdx.x, at = g * $each;
  if (at >= a.n) return;
  const int left = a.n - at < $each ? (int)(a.n - at) : $each;
  const dt_words r = dt_philox(g, a.offset, a.seed);
  $drawn
"""
_WRITE = """
  $stored* const out = ($stored*)a.out + at;
  if (left == $each && (a.out & 15) == 0) dt_store<$each>(out, v);
  else
    for (int j = 0; j < left; ++j) out[j] = v[j];
"""


def _launch(
    name: str, drawn: str, each: int, n: int, pointers: dict[str, Pointer], numbers: dict[str, str]
) -> Steps:
    """One thread for each counter. ``numbers``: kinds of those after seed and offset, by name."""
    if n == 0:
        return Steps(())
    kinds = {"seed": "u64", "offset": "u64", **numbers}
    fields = [Field(p, "u64") for p in pointers] + [Field("n", "u64")]
    fields += [Field(k, kind) for k, kind in kinds.items()]
    values: dict[str, Value] = {**pointers, "n": n, **{k: Number(i) for i, k in enumerate(kinds)}}
    body = filled(_BODY, each=each, drawn=drawn)
    grid = blocks(n, 256 * each)
    return Steps((Step(name, body, tuple(fields), values, grid, helpers=(PHILOX,)),))


# -- draws -----------------------------------------------------------------------------------------

_UNIFORM_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # so that rounding does not give 1
_FILL = {  # of single and of double precision
    "uniform": (
        "for (int j = 0; j < 4; ++j) v[j] = dt_to_$dtype(dt_unit(r.w[j], $bits));",
        "v[0] = dt_unit_wide(r.w[0], r.w[1]); v[1] = dt_unit_wide(r.w[2], r.w[3]);",
    ),
    "normal": (
        """for (int j = 0; j < 4; j += 2) {
    const float radius = sqrtf(-2.0f * logf(dt_above(r.w[j])));
    const float turn = dt_unit(r.w[j + 1], 24) * 2.0f;
    v[j] = dt_to_$dtype(radius * cospif(turn));
    v[j + 1] = dt_to_$dtype(radius * sinpif(turn));
  }""",
        """const double radius = sqrt(-2.0 * log(dt_above(r.w[0], r.w[1])));
  const double turn = dt_unit_wide(r.w[2], r.w[3]) * 2.0;
  v[0] = radius * cospi(turn);
  v[1] = radius * sinpi(turn);""",
    ),
    "exponential": (
        "for (int j = 0; j < 4; ++j) v[j] = dt_to_$dtype(-logf(dt_above(r.w[j])));",
        "v[0] = -log(dt_above(r.w[0], r.w[1])); v[1] = -log(dt_above(r.w[2], r.w[3]));",
    ),
}


def _draw(name: str, operands: tuple[Operand, ...]) -> Steps:
    (out,) = operands
    expect(name, "out", out, FLOATS)
    double = out.dtype == "float64"
    each, stored = (2 if double else 4), C_STORED[out.dtype]
    fill = filled(_FILL[name][double], dtype=out.dtype, bits=_UNIFORM_BITS.get(out.dtype, 0))
    drawn = f"{stored} v[{each}];\n  {fill}{filled(_WRITE, stored=stored, each=each)}"
    return _launch(f"{name}_{out.dtype}", drawn, each, out.size, {"out": Pointer(0)}, {})


def _integers(operands: tuple[Operand, ...]) -> Steps:
    (out,) = operands
    expect("integers", "out", out, ("int64",))
    drawn = "dt_i64 v[2];\n  for (int j = 0; j < 2; ++j)"
    drawn += "v[j] = a.low + (dt_i64)__umul64hi(dt_join(r.w[2 * j], r.w[2 * j + 1]), a.count);"
    drawn += filled(_WRITE, stored="dt_i64", each=2)
    more = {"low": "i64", "count": "u64"}
    return _launch("integers", drawn, 2, out.size, {"out": Pointer(0)}, more)


def philox(groups: np.ndarray, seed: int, offset: int) -> np.ndarray:
    """The four words of each counter, as uint32 of shape (len(groups), 4)."""
    low = np.uint64(0xFFFFFFFF)
    c = [groups & low, groups >> np.uint64(32)]
    c += [np.full_like(groups, offset & 0xFFFFFFFF), np.full_like(groups, offset >> 32)]
    key = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high = np.uint64(32)
        c = [
            (b >> high) ^ c[1] ^ np.uint64(key[0]),
            b & low,
            (a >> high) ^ c[3] ^ np.uint64(key[1]),
            a & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1).astype(np.uint32)


def _words(n: int, each: int, seed: int, offset: int) -> np.ndarray:
    return philox(np.arange(-(-n // each), dtype=np.uint64), int(seed), int(offset))


def _joined(words: np.ndarray) -> np.ndarray:
    wide = words.astype(np.uint64)
    return (wide[:, 0::2] << np.uint64(32)) | wide[:, 1::2]


def _singles(kind: str, words: np.ndarray, dtype: str) -> np.ndarray:
    if kind == "uniform":
        bits = _UNIFORM_BITS[dtype]
        return (words >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    above = words.astype(np.float32).astype(np.float64) * 2.0**-32 + 2.0**-33
    above = above.astype(np.float32)
    if kind == "exponential":
        return -np.log(above)
    radius = np.sqrt(np.float32(-2) * np.log(above[:, 0::2]))
    turn = (words[:, 1::2] >> np.uint32(8)).astype(np.float64) * 2.0**-23 * np.pi
    parts = [radius * np.cos(turn).astype(np.float32), radius * np.sin(turn).astype(np.float32)]
    return np.stack(parts, axis=2)


def _doubles(kind: str, words: np.ndarray) -> np.ndarray:
    unit = (_joined(words) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    if kind == "uniform":
        return unit
    if kind == "exponential":
        return -np.log(unit + 2.0**-53)
    radius, turn = np.sqrt(-2 * np.log(unit[:, 0] + 2.0**-53)), unit[:, 1] * 2 * np.pi
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)


def _draw_by_numpy(kind: str, out: np.ndarray, seed: int, offset: int) -> None:
    double = out.dtype == np.float64
    words = _words(out.size, 2 if double else 4, seed, offset)
    values = _doubles(kind, words) if double else _singles(kind, words, out.dtype.name)
    out[...] = values.reshape(-1)[: out.size].reshape(out.shape).astype(out.dtype)


def _integers_by_numpy(out: np.ndarray, seed: int, offset: int, low: int, count: int) -> None:
    drawn = _joined(_words(out.size, 2, seed, offset)).reshape(-1)[: out.size]
    a, b, s = drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF), np.uint64(32)
    c, d = np.uint64(count >> 32), np.uint64(count & 0xFFFFFFFF)
    middle = a * d + (b * d >> s)  # the high word of the product of 128 bits
    high = a * c + (middle >> s) + ((b * c + (middle & np.uint64(0xFFFFFFFF))) >> s)
    out[...] = (high.astype(np.int64) + np.int64(low)).reshape(out.shape)


UNIFORM, NORMAL, EXPONENTIAL = (
    Code(name, 1, ("u64", "u64"), (0,), partial(_draw, name), partial(_draw_by_numpy, name))
    for name in _FILL
)
INTEGERS = Code("integers", 1, ("u64", "u64", "i64", "u64"), (0,), _integers, _integers_by_numpy)


# -- coins -----------------------------------------------------------------------------------------


def _coins(operands: tuple[Operand, ...], number: bool = False) -> Steps:
    p, out = (operands[0], operands[-1])
    expect("bernoulli", "out", out, tuple(C_STORED))
    one = f"dt_to_{out.dtype}"
    each, kind, pointers = 4, "float", {"out": Pointer(len(operands) - 1)}
    if number:
        limit, more, check = "a.p", {"p": "f32"}, ""
    else:
        expect("bernoulli", "p", p, ("float32", "float64"))
        kind, more, check = C_STORED[p.dtype], {}, PROBABILITY
        limit, pointers["p"] = f"(({kind}*)a.p)[at + j]", Pointer(0)
        each = 2 if kind == "double" else 4
    unit = "dt_unit_wide(r.w[2 * j], r.w[2 * j + 1])" if each == 2 else "dt_unit(r.w[j], 24)"
    stored = C_STORED[out.dtype]
    drawn = f"{stored} v[{each}];\n  for (int j = 0; j < {each}; ++j) {{\n"
    drawn += f"    const {kind} p = j < left ? {limit} : 0;\n    {check}\n"
    drawn += f"    v[j] = {one}(j < left && {unit} < p);\n  }}"
    drawn += filled(_WRITE, stored=stored, each=each)
    name = f"bernoulli_{'number' if number else p.dtype}_{out.dtype}"
    return _launch(name, drawn, each, out.size, pointers, more)


def _unit(n: int, double: bool, seed: int, offset: int) -> np.ndarray:
    words = _words(n, 2 if double else 4, seed, offset)
    unit = _doubles("uniform", words) if double else _singles("uniform", words, "float32")
    return unit.reshape(-1)[:n]


def _coins_by_numpy(p: np.ndarray, out: np.ndarray, seed: int, offset: int) -> None:
    probabilities(p)
    unit = _unit(out.size, p.dtype == np.float64, seed, offset)
    out[...] = unit.reshape(out.shape) < p


def _coins_of_number(out: np.ndarray, seed: int, offset: int, p: float) -> None:
    unit = _unit(out.size, False, seed, offset)
    out[...] = unit.reshape(out.shape) < np.float32(p)


BERNOULLI = Code("bernoulli", 2, ("u64", "u64"), (1,), _coins, _coins_by_numpy)
BERNOULLI_NUMBER = Code(
    "bernoulli_number",
    1,
    ("u64", "u64", "f32"),
    (0,),
    partial(_coins, number=True),
    _coins_of_number,
)


# -- dropout ---------------------------------------------------------------------------------------


def _dropout(operands: tuple[Operand, ...]) -> Steps:
    x, out, *mask = operands
    expect("dropout", "x", x, FLOATS)
    expect("dropout", "out", out, (x.dtype,))
    if {o.shape for o in operands} != {x.shape}:
        shapes = ", ".join(str(o.shape) for o in operands)
        raise ShapeError(f"dropout: shapes {shapes} differ; they must be the same")
    stored, wide = C_STORED[x.dtype], "double" if x.dtype == "float64" else "float"
    pointers = {"x": Pointer(0), "out": Pointer(1)}
    drawn = f"""const {stored}* const x = (const {stored}*)a.x + at;
  const bool whole = left == 4 && ((a.x | a.out) & 15) == 0;
  {stored} v[4];
  bool kept[4];
  if (whole) dt_fetch<4>(v, x);
  else
    for (int j = 0; j < left; ++j) v[j] = x[j];
  for (int j = 0; j < 4; ++j) {{
    kept[j] = dt_unit(r.w[j], 24) < a.keep;
    v[j] = dt_to_{x.dtype}(kept[j] && j < left ? dt_from_{x.dtype}(v[j]) * ({wide})a.scale : 0);
  }}"""
    drawn += filled(_WRITE, stored=stored, each=4)
    if mask:
        expect("dropout", "mask", mask[0], ("bool",))
        pointers["mask"] = Pointer(2)
        drawn += "  for (int j = 0; j < left; ++j) ((unsigned char*)a.mask)[at + j] = kept[j];\n"
    more = {"keep": "f32", "scale": "f64"}
    name = f"dropout{'' if mask else '_again'}_{x.dtype}"
    return _launch(name, drawn, 4, x.size, pointers, more)


def _dropout_by_numpy(
    x: np.ndarray, out: np.ndarray, mask: np.ndarray, seed: int, offset: int, keep: float,
    scale: float,
) -> None:  # fmt: skip
    _coins_of_number(mask, seed, offset, keep)
    wide: Any = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        out[...] = np.where(mask, x.astype(wide) * wide(scale), wide(0)).astype(out.dtype)


def _again_by_numpy(
    x: np.ndarray, out: np.ndarray, seed: int, offset: int, keep: float, scale: float
) -> None:
    _dropout_by_numpy(x, out, np.empty(x.shape, bool), seed, offset, keep, scale)


_KEPT = ("u64", "u64", "f32", "f64")
DROPOUT = Code("dropout", 3, _KEPT, (1, 2), _dropout, _dropout_by_numpy)
DROPOUT_AGAIN = Code("dropout_again", 2, _KEPT, (1,), _dropout, _again_by_numpy)

__all__ = [
    "BERNOULLI",
    "BERNOULLI_NUMBER",
    "DROPOUT",
    "DROPOUT_AGAIN",
    "EXPONENTIAL",
    "INTEGERS",
    "NORMAL",
    "PHILOX",
    "UNIFORM",
    "philox",
]
