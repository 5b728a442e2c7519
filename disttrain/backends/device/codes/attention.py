"""Scaled dot product attention in tiles with an online softmax: scores are never in memory.

    attention(causal, masked, dropped)              (q, k, v, [mask,] out, lse, scale, [...])
    attention_backward(causal, masked, dropped)
                        (g, q, k, v, [mask,] out, lse, dq, dk, dv, scale, [...])

with ``dropped``: (..., seed, offset, keep). q, g and out are (B, H, L, D or E), k and v (B, G, S, D
or E) where G divides H; lse is (B, H, L) in float32 (float64 for such), the logarithm of the sums
of exp, -inf where a row sees nothing: its result is 0. A bool mask says what is seen, any other is
added to the scores; it is given as (B, H, L, S), with strides of 0 where it repeats. ``causal``
sees keys up to the query's own place. All but lse may lie with any strides, but for the last axis.

A team of threads has a query, each thread a part of its columns; keys and values go through shared
memory (Dao and others 2022, Milakov and Gimelshein 2018). The backward pass makes the scores anew,
by queries for dq and by keys for dk and dv, so that every sum has one order and needs no atomics.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ShapeError
from ..structs import C_STORED, Value
from . import attention_mma as mma
from . import attention_text as teams
from .code import (
    Code,
    Field,
    Number,
    Operand,
    Pointer,
    Step,
    Steps,
    blocks,
    expect,
    filled,
    itemsize,
)
from .randomness import FLOATS, PHILOX, philox

THREADS = 128
_MOST_SHARED = 96 << 10
_CORES = 128  # columns that tensor cores are used for
_COLUMNS = 1024  # of q or v, at most
_DROP = ("u64", "u64", "f32")


# -- how it runs -----------------------------------------------------------------------------------


class _Shape:
    """Sizes that all the kernels of one attention share."""

    def __init__(self, name: str, q: Operand, k: Operand, v: Operand) -> None:
        fine = len(q.shape) == len(k.shape) == len(v.shape) == 4 and k.shape[:3] == v.shape[:3]
        fine = fine and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
        if not fine or not k.shape[1] or q.shape[1] % k.shape[1]:
            raise ShapeError(
                f"{name}: q {q.shape}, k {k.shape}, v {v.shape}; needed are (B, H, L, D), "
                "(B, G, S, D), (B, G, S, E) where G divides H"
            )
        expect(name, "q", q, FLOATS)
        for what, o in (("k", k), ("v", v)):
            expect(name, what, o, (q.dtype,))
        self.batch, self.heads, self.length, self.d = q.shape
        self.groups, self.keys, self.e = k.shape[1], k.shape[2], v.shape[3]
        if max(self.d, self.e) > _COLUMNS:
            raise ShapeError(
                f"{name}: {max(self.d, self.e)} columns; at most {_COLUMNS} are handled"
            )
        self.dtype, double = q.dtype, q.dtype == "float64"
        self.wide = "float64" if double else "float32"
        self.team = 4
        while self.team < 32 and max(self.d, self.e) > self.team * (16 if double else 32):
            self.team *= 2
        step = self.team * 4
        self.pd, self.pe = (max(blocks(n, step), 1) * 4 for n in (self.d, self.e))
        self.tile = 32
        size = (self.pd + self.pe) * self.team * (8 if double else 4)
        while self.tile > 8 and self.tile * size > _MOST_SHARED:
            self.tile //= 2
        self.shared = self.tile * (size + 16)
        self.rows = THREADS // self.team  # queries (or keys) of a block
        self.shared_back = self.shared
        # Tensor cores multiply half types of few columns.
        self.cores = self.dtype in ("float16", "bfloat16") and max(self.d, self.e) <= _CORES
        self.dp, self.ep = (max(blocks(n, 16), 1) * 16 for n in (self.d, self.e))
        if self.cores:
            self.rows, wide = mma.ROWS, (self.dp + self.ep + 16) * 2
            self.shared = 2 * mma.TILE * wide
            self.shared_back = (mma.ROWS + mma.TILE) * wide + mma.TILE * 8

    def text(self, kind: str) -> str:
        """The function of that kind."""
        return getattr(mma if self.cores and kind != "DELTA" else teams, kind)

    def numbers(self) -> dict[str, Value]:
        """What every kernel's struct has, beside arrays."""
        return {
            "batch": self.batch,
            "heads": self.heads,
            "per": self.heads // self.groups,
            "length": self.length,
            "keys": self.keys,
            "d": self.d,
            "e": self.e,
        }


def _strides(name: str, o: Operand, what: str) -> dict[str, Value]:
    """Strides of the axes before the last, in elements; checks that the last is dense."""
    size = itemsize(o.dtype)
    if o.size and o.shape[-1] > 1 and o.strides[-1] != size:
        raise ShapeError(f"{name}: {what} has gaps in its last axis; make it contiguous first")
    return {f"{what}{k}": s // size for k, s in enumerate(o.strides[:-1])}


@dataclass(frozen=True, slots=True)
class _Way:
    """What of attention is wanted. ``mask``: its type, empty where there is none."""

    causal: bool
    dropped: bool
    mask: str = ""

    @property
    def tag(self) -> str:
        tags = ["causal"] * self.causal + ["dropped"] * self.dropped
        return "_".join(["", *tags, *([f"mask_{self.mask}"] if self.mask else [])])

    @property
    def text(self) -> str:
        """How a score is changed by the mask, as CUDA C."""
        if not self.mask:
            return teams.MASKS["none"]
        text = teams.MASKS["bool" if self.mask == "bool" else "added"]
        return filled(text, stored=C_STORED[self.mask], dtype=self.mask)


def _way(
    name: str, flags: tuple[bool, bool, bool], shape: _Shape, mask: Operand | None
) -> tuple[_Way, dict[str, Value]]:
    """What is wanted, and the mask's strides."""
    if mask is None:
        return _Way(flags[0], flags[2]), {}
    wanted = (shape.batch, shape.heads, shape.length, shape.keys)
    if mask.shape != wanted:
        raise ShapeError(f"{name}: mask is {mask.shape}; needed is {wanted}")
    expect(name, "mask", mask, ("bool", *FLOATS))
    steps = {f"m{k}": s // itemsize(mask.dtype) for k, s in enumerate(mask.strides)}
    return _Way(flags[0], flags[2], mask.dtype), steps  # type: ignore[return-value]


def _step(
    kind: str, shape: _Shape, way: _Way, values: dict[str, Value], grid: int, shared: int
) -> Step:  # fmt: skip
    """One kernel. Members that are no addresses are signed; the scale is a wide number."""
    names = {
        "stored": C_STORED[shape.dtype],
        "dtype": shape.dtype,
        "wide": "double" if shape.wide == "float64" else "float",
        "team": shape.team,
        "pd": shape.pd,
        "pe": shape.pe,
        "dp": shape.dp,
        "ep": shape.ep,
        "tile": shape.tile,
        "rows": shape.rows,
        "causal": int(way.causal),
        "dropped": int(way.dropped),
        "mask": way.text,
    }
    values = {**values, "scale": Number(0)}
    fields = [Field(v, "u64" if isinstance(p, Pointer) else "i64") for v, p in values.items()]
    fields[-1] = Field("scale", "f64")
    if way.dropped:
        for place, (what, number) in enumerate(zip(("seed", "offset", "keep"), _DROP), 1):
            values[what] = Number(place)
            fields.append(Field(what, number))
    size = f"{shape.pd}x{shape.pe}x{shape.team}"
    if shape.cores and kind != "DELTA":
        size = f"{shape.dp}x{shape.ep}_cores"
    name = f"attention_{kind.lower()}_{shape.dtype}_{size}{way.tag}"
    body = filled(shape.text(kind), **names)
    helpers = (PHILOX, teams.HELPERS)
    return Step(name, body, tuple(fields), values, grid, THREADS, helpers, shared)


def _forward(flags: tuple[bool, bool, bool], operands: tuple[Operand, ...]) -> Steps:
    q, k, v, *rest = operands
    mask = rest.pop(0) if flags[1] else None
    out, lse = rest
    shape = _Shape("attention", q, k, v)
    _same_kind("attention", shape, out, lse)
    if not out.size and not lse.size:
        return Steps(())
    way, strides = _way("attention", flags, shape, mask)
    values: dict[str, Value] = _pointers(["q", "k", "v", *(["mask"] if mask else []), "out", "lse"])
    for what, o in (("q", q), ("k", k), ("v", v), ("o", out)):
        strides |= _strides("attention", o, what)
    grid = shape.batch * shape.heads * blocks(shape.length, shape.rows)
    values = {**values, **shape.numbers(), **strides}
    return Steps((_step("FORWARD", shape, way, values, grid, shape.shared),))


def _pointers(names: list[str]) -> dict[str, Value]:
    return {name: Pointer(k) for k, name in enumerate(names)}


def _same_kind(name: str, shape: _Shape, out: Operand, lse: Operand) -> None:
    rows = (shape.batch, shape.heads, shape.length)
    expect(name, "out", out, (shape.dtype,))
    expect(name, "lse", lse, (shape.wide,))
    if out.shape != (*rows, shape.e) or lse.shape != rows:
        raise ShapeError(
            f"{name}: out is {out.shape}, lse {lse.shape}; needed are {(*rows, shape.e)}, {rows}"
        )


def _backward(flags: tuple[bool, bool, bool], operands: tuple[Operand, ...]) -> Steps:
    g, q, k, v, *rest = operands
    mask = rest.pop(0) if flags[1] else None
    out, lse, dq, dk, dv = rest
    name = "attention_backward"
    shape = _Shape(name, q, k, v)
    _same_kind(name, shape, out, lse)
    for what, o, like in (("g", g, out), ("dq", dq, q), ("dk", dk, k), ("dv", dv, v)):
        expect(name, what, o, (shape.dtype,))
        if o.shape != like.shape:
            raise ShapeError(f"{name}: {what} is {o.shape}; needed is {like.shape}")
    way, strides = _way(name, flags, shape, mask)
    names = ["g", "q", "k", "v", *(["mask"] if mask else []), "out", "lse", "dq", "dk", "dv"]
    pointers = _pointers(names)
    pairs = (("g", g), ("q", q), ("k", k), ("v", v), ("o", out), ("dq", dq), ("dk", dk), ("dv", dv))
    for what, o in pairs:
        strides |= _strides(name, o, what)
    values = {**pointers, "delta": Pointer(-1), **shape.numbers(), **strides}
    rows = shape.batch * shape.heads * shape.length
    steps = []
    if rows:
        steps.append(_step("DELTA", shape, way, values, blocks(rows, 4), 0))
        if shape.d:
            grid = shape.batch * shape.heads * blocks(shape.length, shape.rows)
            steps.append(_step("QUERIES", shape, way, values, grid, shape.shared_back))
    if shape.keys and shape.batch:
        grid = shape.batch * shape.groups * blocks(shape.keys, shape.rows)
        steps.append(_step("KEYS", shape, way, values, grid, shape.shared_back))
    return Steps(tuple(steps), -(-rows * (8 if shape.wide == "float64" else 4) // 256) * 256)


# -- what it means ---------------------------------------------------------------------------------


def _weights(
    flags: tuple[bool, bool, bool], q: np.ndarray, k: np.ndarray, mask: Any, scale: float,
    drop: tuple,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(softmax of the scores, logarithm of its sums, what dropout multiplies it by), in float64."""
    per = q.shape[1] // k.shape[1]
    keys = np.repeat(k.astype(np.float64), per, axis=1)
    scores = np.matmul(q.astype(np.float64), keys.swapaxes(2, 3)) * scale
    if mask is not None:
        added = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        scores = scores + added
    length, width = scores.shape[2:]
    if flags[0]:
        scores = np.where(np.arange(width) <= np.arange(length)[:, None], scores, -np.inf)
    most = scores.max(axis=3, initial=-np.inf, keepdims=True)
    shifted = np.exp(scores - np.where(most == -np.inf, 0.0, most))
    total = shifted.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.where(total == 0, -np.inf, most + np.log(total))
        p = np.where(total == 0, 0.0, shifted / total)
    times = np.ones(p.shape)
    if flags[2]:
        seed, offset, keep = drop
        rows, parts = math.prod(p.shape[:3]), blocks(width, 4)
        words = philox(np.arange(rows * parts, dtype=np.uint64), int(seed), int(offset))
        unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        unit = unit.reshape(*p.shape[:3], parts * 4)[..., :width]
        times = np.where(unit < np.float32(keep), 1.0 / np.float64(np.float32(keep)), 0.0)
    return p, lse[..., 0], times


def _forward_by_numpy(flags: tuple[bool, bool, bool], *args: Any) -> None:
    q, k, v, *rest = args
    mask = rest.pop(0) if flags[1] else None
    out, lse, scale, *drop = rest
    p, sums, times = _weights(flags, q, k, mask, scale, tuple(drop))
    values = np.repeat(v.astype(np.float64), q.shape[1] // k.shape[1], axis=1)
    out[...] = np.matmul(p * times, values).astype(out.dtype)
    lse[...] = sums


def _backward_by_numpy(flags: tuple[bool, bool, bool], *args: Any) -> None:
    g, q, k, v, *rest = args
    mask = rest.pop(0) if flags[1] else None
    out, _, dq, dk, dv, scale, *drop = rest
    p, _, times = _weights(flags, q, k, mask, scale, tuple(drop))
    groups, per = k.shape[1], q.shape[1] // k.shape[1]
    wide = [np.asarray(a, np.float64) for a in (g, q, k, v, out)]
    g, q, out = wide[0], wide[1], wide[4]
    keys, values = (np.repeat(a, per, axis=1) for a in wide[2:4])
    delta = (g * out).sum(axis=3, keepdims=True)
    ds = p * (np.matmul(g, values.swapaxes(2, 3)) * times - delta) * scale
    dq[...] = np.matmul(ds, keys).astype(dq.dtype)

    def joined(a: np.ndarray) -> np.ndarray:
        return a.reshape(a.shape[0], groups, per, *a.shape[2:]).sum(axis=2)

    dk[...] = joined(np.matmul(ds.swapaxes(2, 3), q)).astype(dk.dtype)
    dv[...] = joined(np.matmul((p * times).swapaxes(2, 3), g)).astype(dv.dtype)


@functools.cache
def attention(causal: bool = False, masked: bool = False, dropped: bool = False) -> Code:
    """The forward code; see above."""
    flags = (causal, masked, dropped)
    numbers, n = ("f64", *(_DROP if dropped else ())), 5 + masked
    return Code(
        "attention", n, numbers, (n - 2, n - 1), functools.partial(_forward, flags),
        functools.partial(_forward_by_numpy, flags), tuple(range(n - 1)),
    )  # fmt: skip


@functools.cache
def attention_backward(causal: bool = False, masked: bool = False, dropped: bool = False) -> Code:
    """The backward code; see above."""
    flags = (causal, masked, dropped)
    numbers, n = ("f64", *(_DROP if dropped else ())), 9 + masked
    strided = tuple(k for k in range(n) if k != n - 4)
    return Code(
        "attention_backward", n, numbers, (n - 3, n - 2, n - 1),
        functools.partial(_backward, flags), functools.partial(_backward_by_numpy, flags), strided,
    )  # fmt: skip


__all__ = ["attention", "attention_backward"]
