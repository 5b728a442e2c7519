"""Digests of arrays: a hash of the bytes and a few statistics, in one pass over the memory.

The hash is a sum, modulo 2**64, of one number for each 32-bit word of the whole array, which
depends on the word and on its place: so the digests of parts that lie anywhere in a whole (shards,
micro-batches) add up to the digest of the whole, in any order. A word w at place k gives
``p ^ p >> 29`` where ``p = (w ^ low(key)) * (high(key) | 1)`` and ``key = (k + 1) * GOLDEN``
(D. Knuth, The Art of Computer Programming 3, 6.4: multiplicative hashing). Elements of 8 and 16
bits count as a word each. It tells accidents apart, not attacks.

The sketch is the sum of the elements, each with a sign that its place alone decides: it adds up
over parts as well, and of two arrays the sketches differ by about the norm of their difference (N.
Alon, Y. Matias, M. Szegedy, The Space Complexity of Approximating the Frequency Moments, 1996).
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...addresses import address
from ..loops import Text, functions

GOLDEN = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1
_STATE = np.dtype([
    ("hash", "u8"), ("nans", "i8"), ("low", "i8"), ("high", "i8"), ("squares", "f8"),
    ("sketch", "f8"),
])  # fmt: skip
_LANES = 16  # words of a step
_SIGN = 45  # which bit of what a place gives is the sign


class Digest(NamedTuple):
    """``hash`` of the bytes; ``low`` and ``high``: the extreme values that are no nan; ``squares``:
    the sum of their squares; ``nans``: how many are; ``sketch``: their sum with signs. Complex
    numbers count as two real ones."""

    hash: int
    low: float
    high: float
    squares: float
    nans: int
    sketch: float

    def __add__(self, other: object) -> Digest:
        """The digest of two parts of one whole."""
        if not isinstance(other, Digest):
            return NotImplemented
        return Digest(
            (self.hash + other.hash) & _ALL, min(self.low, other.low), max(self.high, other.high),
            self.squares + other.squares, self.nans + other.nans, self.sketch + other.sketch,
        )  # fmt: skip


EMPTY = Digest(0, float("inf"), float("-inf"), 0.0, 0, 0.0)


class _Kind(NamedTuple):
    """How elements of a type are read: LLVM's types, bits, and whether they are floating."""

    word: str  # of the memory
    value: str  # of the numbers
    bits: int
    floating: bool


_KINDS = {
    "float64": _Kind("i64", "double", 64, True),
    "float32": _Kind("i32", "float", 32, True),
    "float16": _Kind("i16", "half", 16, True),
    "bfloat16": _Kind("i16", "bfloat", 16, True),
    "int64": _Kind("i64", "i64", 64, False),
    "int32": _Kind("i32", "i32", 32, False),
    "int16": _Kind("i16", "i16", 16, False),
    "int8": _Kind("i8", "i8", 8, False),
    "uint8": _Kind("i8", "u8", 8, False),
}
_SAME = {"bool": "uint8", "complex64": "float32", "complex128": "float64"}


def _splat(kind: str, lanes: int, number: int | str) -> str:
    return f"<{', '.join([f'{kind} {number}'] * lanes)}>"


class _Pass:
    """The text of one step: ``lanes`` elements, folded into vectors that are carried."""

    def __init__(self, text: Text, kind: _Kind, lanes: int) -> None:
        self.text, self.kind, self.lanes = text, kind, lanes
        self.words = 2 * lanes if kind.bits == 64 else lanes  # of the hash
        self.types = [f"<{self.words} x i64>", *[f"<{lanes} x i64>"] * 3]
        self.types += [f"<{lanes} x double>"] * 2
        low, high = (1 << 63) - 1, -(1 << 63)
        self.start = [
            "zeroinitializer", "zeroinitializer", _splat("i64", lanes, low),
            _splat("i64", lanes, high), "zeroinitializer", "zeroinitializer",
        ]  # fmt: skip

    def go(self, source: str, place: str, carried: list[str]) -> list[str]:
        """Fold in the elements at ``source``, whose first word is number ``place``."""
        word = f"<{self.lanes} x {self.kind.word}>"
        raw = self.text.let(f"load {word}, ptr {source}, align 1")
        total, signs = self._hashed(raw, word, place, carried[0])
        return [total, *self._counted(raw, word, signs, carried[1:])]

    def _hashed(self, raw: str, word: str, place: str, total: str) -> tuple[str, str]:
        """The sum of the words' numbers; the bits that decide over the signs of the elements."""
        text, n = self.text, self.words
        wide = f"<{n} x i64>"
        if self.kind.bits == 64:
            raw, word = text.let(f"bitcast {word} {raw} to <{n} x i32>"), f"<{n} x i32>"
        numbers = text.let(f"zext {word} {raw} to {wide}")
        key = text.let(f"mul i64 {text.let(f'add i64 {place}, 1')}, {GOLDEN}")
        first = text.let(f"insertelement {wide} poison, i64 {key}, i32 0")
        keys = text.let(f"shufflevector {wide} {first}, {wide} poison, <{n} x i32> zeroinitializer")
        steps = ", ".join(f"i64 {k * GOLDEN & _ALL}" for k in range(n))
        keys = text.let(f"add {wide} {keys}, <{steps}>")
        low = text.let(f"and {wide} {keys}, {_splat('i64', n, 0xFFFFFFFF)}")
        high = text.let(f"lshr {wide} {keys}, {_splat('i64', n, 32)}")
        high = text.let(f"or {wide} {high}, {_splat('i64', n, 1)}")
        product = text.let(f"mul {wide} {text.let(f'xor {wide} {numbers}, {low}')}, {high}")
        shifted = text.let(f"lshr {wide} {product}, {_splat('i64', n, 29)}")
        total = text.let(f"add {wide} {total}, {text.let(f'xor {wide} {product}, {shifted}')}")
        chances = text.let(f"mul {wide} {low}, {high}")
        chances = text.let(f"shl {wide} {chances}, {_splat('i64', n, 63 - _SIGN)}")
        signs = text.let(f"and {wide} {chances}, {_splat('i64', n, -(1 << 63))}")
        if n != self.lanes:  # one word of two for an element
            every = ", ".join(f"i32 {2 * k}" for k in range(self.lanes))
            mask = f"<{self.lanes} x i32> <{every}>"
            signs = text.let(f"shufflevector {wide} {signs}, {wide} poison, {mask}")
        return total, signs

    def _counted(self, raw: str, word: str, signs: str, carried: list[str]) -> list[str]:
        text, n = self.text, self.lanes
        nans, low, high, squares, sketch = carried
        wide, real = f"<{n} x i64>", f"<{n} x double>"
        if self.kind.floating:
            order, value, is_nan = self._floating(raw, word)
            nans = text.let(f"add {wide} {nans}, {text.let(f'zext <{n} x i1> {is_nan} to {wide}')}")
            zero = text.let(f"select <{n} x i1> {is_nan}, {real} zeroinitializer, {real} {value}")
            below = text.let(f"select <{n} x i1> {is_nan}, {wide} {low}, {wide} {order}")
            above = text.let(f"select <{n} x i1> {is_nan}, {wide} {high}, {wide} {order}")
        else:
            extended = "zext" if self.kind.value == "u8" else "sext"
            same = self.kind.bits == 64
            order = raw if same else text.let(f"{extended} {word} {raw} to {wide}")
            zero = text.let(f"sitofp {wide} {order} to {real}")
            below = above = order
        less = text.let(f"icmp slt {wide} {below}, {low}")
        more = text.let(f"icmp sgt {wide} {above}, {high}")
        low = text.let(f"select <{n} x i1> {less}, {wide} {below}, {wide} {low}")
        high = text.let(f"select <{n} x i1> {more}, {wide} {above}, {wide} {high}")
        square = text.let(f"fmul {real} {zero}, {zero}")
        bits = text.let(f"xor {wide} {text.let(f'bitcast {real} {zero} to {wide}')}, {signs}")
        signed = text.let(f"bitcast {wide} {bits} to {real}")
        squares = text.let(f"fadd {real} {squares}, {square}")
        return [nans, low, high, squares, text.let(f"fadd {real} {sketch}, {signed}")]

    def _floating(self, raw: str, word: str) -> tuple[str, str, str]:
        """Integers in the order of the numbers, the numbers in double precision, which are nan."""
        text, n, real = self.text, self.lanes, f"<{self.lanes} x double>"
        value = text.let(f"bitcast {word} {raw} to <{n} x {self.kind.value}>")
        if self.kind.value == "bfloat":
            value = text.let(f"zext {word} {raw} to <{n} x i32>")
            value = text.let(f"shl <{n} x i32> {value}, {_splat('i32', n, 16)}")
            value = text.let(f"bitcast <{n} x i32> {value} to <{n} x float>")
            value = text.let(f"fpext <{n} x float> {value} to {real}")
        elif self.kind.value != "double":
            value = text.let(f"fpext <{n} x {self.kind.value}> {value} to {real}")
        is_nan = text.let(f"fcmp uno {real} {value}, {value}")
        bits = text.let(f"bitcast {real} {value} to <{n} x i64>")
        signs = text.let(f"ashr <{n} x i64> {bits}, {_splat('i64', n, 63)}")
        signs = text.let(f"lshr <{n} x i64> {signs}, {_splat('i64', n, 1)}")
        return text.let(f"xor <{n} x i64> {bits}, {signs}"), value, is_nan


def _text(kind: str) -> str:
    """``run(state, x, rows, n, bytes from row to row, place of the first word, places from row to
    row)``: fold rows of ``n`` elements that lie together into ``state``."""
    text, how = Text(), _KINDS[kind]
    lanes, size = (_LANES // 2 if how.bits == 64 else _LANES), how.bits // 8
    names = ["ptr %state", "ptr %x", "i64 %rows", "i64 %n", "i64 %over", "i64 %first", "i64 %step"]
    per = 2 if how.bits == 64 else 1
    with text.function("run", *names):
        whole = text.let(f"and i64 %n, -{lanes}")
        many, one = _Pass(text, how, lanes), _Pass(text, how, 1)
        with text.loop("0", "%rows", 1) as row:
            source = text.at("%x", (row, "%over"))
            place = text.let(f"add i64 %first, {text.let(f'mul i64 {row}, %step')}")
            _along(text, many, source, place, "0", whole, size, per)
            _along(text, one, source, place, whole, "%n", size, per)
    return str(text)


def _along(
    text: Text, step: _Pass, source: str, place: str, begin: str, end: str, size: int, per: int
) -> None:
    """Fold the elements from ``begin`` to ``end`` of one row into the state."""
    carried = list(zip(step.types, step.start, strict=True))
    with text.loop(begin, end, step.lanes, carried) as turn:
        word = text.let(f"add i64 {place}, {text.let(f'mul i64 {turn.at}, {per}')}")
        turn.new = step.go(text.at(source, (turn.at, str(size))), word, turn.values)
    for number, (kind, value) in enumerate(zip(step.types, turn.values, strict=True)):
        _join(text, number, kind, value)


_JOINS = ("add", "add", "smin", "smax", "fadd", "fadd")


def _join(text: Text, number: int, kind: str, value: str) -> None:
    """Put the lanes of one vector together with what the state has."""
    at = text.let(f"getelementptr i8, ptr %state, i64 {8 * number}")
    element = kind.split(" x ")[1][:-1]
    total = text.let(f"load {element}, ptr {at}, align 8")
    how, lanes = _JOINS[number], int(kind[1:].split(" x ")[0])
    for k in range(lanes):
        each = text.let(f"extractelement {kind} {value}, i32 {k}")
        if how in ("smin", "smax"):
            less = text.let(f"icmp {'slt' if how == 'smin' else 'sgt'} i64 {each}, {total}")
            total = text.let(f"select i1 {less}, i64 {each}, i64 {total}")
        else:
            total = text.let(f"{how} {element} {total}, {each}")
    text.add(f"store {element} {total}, ptr {at}, align 8")


@cache
def _code(kind: str) -> Callable | None:
    kinds = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 5]
    return functions(_text, kind)("run", kinds)


# --- what others call -----------------------------------------------------------------------------


class _State(threading.local):
    """What one thread's calls are folded into, and where it lies."""

    def __init__(self) -> None:
        self.memory = np.zeros((), _STATE)
        self.at = self.memory.ctypes.data
        view: Any = memoryview(self.memory.reshape(1).view(np.uint8).data)
        self.begin = lambda: _WORDS.pack_into(view, 0, 0, 0, _ALL >> 1, -(1 << 63), 0.0, 0.0)
        self.end = lambda: _WORDS.unpack_from(view)


_WORDS = struct.Struct("<Qqqqdd")
_LONG, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")
_state = _State()


def digest(x: np.ndarray, start: int = 0, strides: tuple[int, ...] | None = None) -> Digest:
    """The digest of ``x``. Where it is a part of a whole: ``start``, the place of its first element
    there, and ``strides``: places from one element to the next along each axis of the whole, in
    elements. What numpy cannot take apart (objects) is a ``TypeError``."""
    how = _plan(x.dtype)
    if how is not None and strides is None and x.flags.c_contiguous:
        kind, run, floating, per = how
        if not x.size:
            return EMPTY
        _state.begin()
        run(_state.at, address(x), 1, x.size, 0, start * per, 0)
        return _result(_state.end(), floating)
    kind = _SAME.get(x.dtype.name, x.dtype.name)
    if x.dtype.hasobject:
        raise TypeError(f"digest: an array of {x.dtype} has no bytes of its own")
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    numbers = 2 if x.dtype.kind == "c" else 1
    if x.dtype.kind == "c":
        x = np.ascontiguousarray(x).view(kind).reshape(*x.shape, 2)
        strides = None if strides is None else (*(2 * s for s in strides), 1)
    elif kind not in _KINDS:
        x, kind, numbers, strides = _as_bytes(x, strides)
    if strides is None:
        x = np.ascontiguousarray(x).reshape(1, -1)
        strides = (x.size, 1)
    return _folded(x, kind, start * numbers, strides)


@cache
def _plan(dtype: np.dtype) -> tuple[str, Callable, bool, int] | None:
    """How arrays of a type are folded as they lie; None where they are made others first."""
    kind = _SAME.get(dtype.name, dtype.name)
    if dtype.hasobject or dtype.kind == "c" or kind not in _KINDS or not dtype.isnative:
        return None
    per = 2 if _KINDS[kind].bits == 64 else 1
    return kind, _code(kind) or _plain(kind), _KINDS[kind].floating, per


def _as_bytes(x: np.ndarray, strides: tuple[int, ...] | None) -> tuple:
    """Types without statistics of their own (unsigned, 8-bit floating ...): their bytes."""
    size = x.dtype.itemsize
    raw = np.ascontiguousarray(x).view("uint8").reshape(*x.shape, size)
    return raw, "uint8", size, None if strides is None else (*(size * s for s in strides), 1)


def _folded(x: np.ndarray, kind: str, start: int, strides: tuple[int, ...]) -> Digest:
    _state.begin()
    x = np.ascontiguousarray(x)
    if x.ndim < 2 or strides[-1] != 1:  # rows of elements that are neighbours in the whole
        x, strides = x[..., None], (*strides, 1)
        if x.ndim < 2:
            x, strides = x[None], (0, *strides)
    if x.size:
        per = 2 if _KINDS[kind].bits == 64 else 1
        run = _code(kind) or _plain(kind)
        for at in np.ndindex(x.shape[:-2]):
            block = x[at]
            place = start + sum(i * s for i, s in zip(at, strides))
            rows, n = block.shape
            step = strides[-2] * per
            run(_state.at, address(block), rows, n, n * x.itemsize, place * per, step)
    return _result(_state.end(), _KINDS[kind].floating)


def _result(state: tuple, floating: bool) -> Digest:
    total, nans, low, high, squares, sketch = state
    if low > high:
        return Digest(total, EMPTY.low, EMPTY.high, 0.0, nans, 0.0)
    if not floating:
        return Digest(total, float(low), float(high), squares, nans, sketch)
    if sketch != sketch:
        sketch = EMPTY.low  # infinities of both signs
    return Digest(total, _number(low), _number(high), squares, nans, sketch)


def _number(order: int) -> float:
    """The number that has this place in the order of all."""
    bits = order if order >= 0 else order ^ (_ALL >> 1)
    return float(_DOUBLE.unpack(_LONG.pack(bits))[0])


# --- numpy ----------------------------------------------------------------------------------------


@cache
def _plain(kind: str) -> Callable:
    """The same by numpy, where there is no machine code."""
    how = _KINDS[kind]
    item = how.bits // 8

    def run(state: int, x: int, rows: int, n: int, over: int, first: int, step: int) -> None:
        to: Any = _bytes_at(state, _STATE.itemsize).view(_STATE)
        raw = _bytes_at(x, rows * n * item)
        for row, line in enumerate(raw.reshape(rows, n * item)):
            words = line.view("<u4" if item >= 4 else f"<u{item}").astype(np.uint64)
            signs = _fold_words(to, words, first + row * step)
            _fold_numbers(to, line, kind, how, signs[:: 2 if how.bits == 64 else 1])

    return run


def _bytes_at(address: int, count: int) -> np.ndarray:
    """The memory there."""
    memory: Any = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(memory, np.uint8)


def _fold_words(to: np.ndarray, words: np.ndarray, place: int) -> np.ndarray:
    """Which of the words' places give the sign."""
    with np.errstate(over="ignore"):
        first = np.uint64((place + 1) * GOLDEN & _ALL)
        keys = first + np.arange(words.size, dtype=np.uint64) * np.uint64(GOLDEN)
        high = (keys >> np.uint64(32)) | np.uint64(1)
        product = (words ^ (keys & np.uint64(0xFFFFFFFF))) * high
        to["hash"] += (product ^ (product >> np.uint64(29))).sum(dtype=np.uint64)
        return (((keys & np.uint64(0xFFFFFFFF)) * high) >> np.uint64(_SIGN)) & np.uint64(1) != 0


def _fold_numbers(
    to: np.ndarray, raw: np.ndarray, kind: str, how: _Kind, signs: np.ndarray
) -> None:  # fmt: skip
    if kind == "bfloat16":
        values: np.ndarray = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = raw.view(kind)
    if how.floating:
        bad = np.isnan(values)
        to["nans"] += int(bad.sum())
        values, signs = values[~bad].astype(np.float64), signs[~bad]
        bits = values.view(np.int64)
        order = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    else:
        order = values.astype(np.int64)
        values = values.astype(np.float64)
    if order.size:
        to["low"] = min(int(to["low"][0]), int(order.min()))
        to["high"] = max(int(to["high"][0]), int(order.max()))
        to["squares"] += float((values * values).sum())
        to["sketch"] += float(np.where(signs, -values, values).sum())


__all__ = ["EMPTY", "Digest", "digest"]
