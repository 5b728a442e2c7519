"""Threefry 2x32-20: random bits as a function of a key and a counter, with no state.

J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011: the
block of two 32-bit words that belongs to a key of two words and a counter of two. Arrays of keys
have the words in their last dimension.

    pairs(keys, n)      uint32 [m, n, 2]: the blocks of the counters 0 ... n - 1
    words(keys, n)      uint64 [m, n]: the same, the first word in the upper half
    mixed(keys, n)      uint32 [m, n]: the exclusive or of both
    unit(keys, n)       float32 [m, n]: the upper 23 bits of ``mixed``, as numbers in [0, 1)
    halves(keys, n)     uint32 [m, n]: counters are (i, h + i), h half of n rounded up, 0 past the
                        end; all first words stand before all second ones
    blocks(keys, counts)  uint32 [n, 2]: of each key and each counter

Vectors of sixteen words where code can be generated; numpy gives the same bits elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Any

import numpy as np

from .cached import kept
from .objfile import ObjectError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_LANES = 16
_NAMES = ("pairs", "words", "mixed", "unit", "halves")


# --- machine code ---------------------------------------------------------------------------------


class _Lines:
    """Text of IR, with a fresh name for each value; ``i``: the place that it is about."""

    def __init__(self, label: str) -> None:
        self.lines: list[str] = []
        self.label, self.i = label, f"%{label}i"

    def let(self, text: str) -> str:
        name = f"%{self.label}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(text)


def _kind(lanes: int, word: str = "i32") -> str:
    return f"<{lanes} x {word}>" if lanes > 1 else word


def _constant(value: int, lanes: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * lanes)}>" if lanes > 1 else str(value)


def _splat(to: _Lines, value: str, lanes: int) -> str:
    if lanes == 1:
        return value
    kind = _kind(lanes)
    one = to.let(f"insertelement {kind} undef, i32 {value}, i32 0")
    return to.let(f"shufflevector {kind} {one}, {kind} undef, <{lanes} x i32> zeroinitializer")


def _rounds(to: _Lines, key: tuple[str, str, str], a: str, b: str, lanes: int) -> tuple[str, str]:
    """The block of a counter (a, b): five times four rounds, a word of the key after each."""
    kind = _kind(lanes)
    rotate = f"@llvm.fshl.{f'v{lanes}' if lanes > 1 else ''}i32"
    a, b = to.let(f"add {kind} {a}, {key[0]}"), to.let(f"add {kind} {b}, {key[1]}")
    for step in range(1, 6):
        for r in _ROTATIONS[(step - 1) % 2]:
            by = f"{kind} {_constant(r, lanes)}"
            a = to.let(f"add {kind} {a}, {b}")
            b = to.let(f"call {kind} {rotate}({kind} {b}, {kind} {b}, {by})")
            b = to.let(f"xor {kind} {a}, {b}")
        a = to.let(f"add {kind} {a}, {key[step % 3]}")
        b = to.let(f"add {kind} {b}, {key[(step + 1) % 3]}")
        b = to.let(f"add {kind} {b}, {_constant(step, lanes)}")
    return a, b


def _counter(to: _Lines, name: str, lanes: int) -> tuple[str, str]:
    """The counters of the places from ``to.i`` on."""
    kind = _kind(lanes)
    low = _splat(to, to.let(f"trunc i64 {to.i} to i32"), lanes)
    if lanes > 1:
        steps = ", ".join(f"i32 {k}" for k in range(lanes))
        low = to.let(f"add {kind} {low}, <{steps}>")
    if name == "halves":
        half = _splat(to, to.let("trunc i64 %h to i32"), lanes)
        high = to.let(f"add {kind} {low}, {half}")
        if lanes == 1:  # the last of an odd number
            high = to.let(f"select i1 {_inside(to)[0]}, i32 {high}, i32 0")
        return low, high
    shifted = to.let(f"lshr i64 {to.i}, 32")
    return _splat(to, to.let(f"trunc i64 {shifted} to i32"), lanes), low


def _inside(to: _Lines) -> tuple[str, str]:
    """Whether a second word has a place in the second half, and which."""
    there = to.let(f"add i64 {to.i}, %h")
    return to.let(f"icmp slt i64 {there}, %n"), there


def _store(to: _Lines, kind: str, value: str, base: str, at: str, element: str) -> None:
    place = to.let(f"getelementptr {element}, ptr {base}, i64 {at}")
    to.do(f"store {kind} {value}, ptr {place}, align 4")


def _kept(to: _Lines, name: str, a: str, b: str, lanes: int) -> None:
    """Put down the blocks (a, b) of the places from ``to.i`` on."""
    kind = _kind(lanes)
    if name in ("pairs", "words"):
        a, b = (b, a) if name == "words" else (a, b)  # the lower half of a word lies first
        at = to.let(f"shl i64 {to.i}, 1")
        if lanes == 1:
            _store(to, "i32", a, "%row", at, "i32")
            _store(to, "i32", b, "%row", to.let(f"add i64 {at}, 1"), "i32")
            return
        order = ", ".join(f"i32 {k}, i32 {lanes + k}" for k in range(lanes))
        both = to.let(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>")
        _store(to, _kind(2 * lanes), both, "%row", at, "i32")
    elif name == "halves":
        _store(to, kind, a, "%row", to.i, "i32")
        inside, there = _inside(to)
        if lanes > 1:
            _store(to, kind, b, "%row", there, "i32")
            return
        # of an odd number the last second word has no place: the first one is stored once more
        at = to.let(f"select i1 {inside}, i64 {there}, i64 {to.i}")
        _store(to, kind, to.let(f"select i1 {inside}, i32 {b}, i32 {a}"), "%row", at, "i32")
    elif name == "mixed":
        _store(to, kind, to.let(f"xor {kind} {a}, {b}"), "%row", to.i, "i32")
    else:
        real = _kind(lanes, "float")
        bits = to.let(f"lshr {kind} {to.let(f'xor {kind} {a}, {b}')}, {_constant(9, lanes)}")
        bits = to.let(f"or {kind} {bits}, {_constant(0x3F800000, lanes)}")
        one = "<" + ", ".join(["float -1.0"] * lanes) + ">" if lanes > 1 else "-1.0"
        value = to.let(f"fadd {real} {to.let(f'bitcast {kind} {bits} to {real}')}, {one}")
        _store(to, real, value, "%row", to.i, "float")


def _key(to: _Lines, first: str, second: str) -> tuple[str, str, str]:
    both = to.let(f"xor i32 {first}, {second}")
    return first, second, to.let(f"xor i32 {both}, {_PARITY}")


def _body(name: str, lanes: int, label: str) -> str:
    """What one turn of a loop does."""
    to = _Lines(label)
    k0, k1, k2 = (_splat(to, k, lanes) for k in ("%k0", "%k1", "%k2"))
    a, b = _rounds(to, (k0, k1, k2), *_counter(to, name, lanes), lanes)
    _kept(to, name, a, b, lanes)
    return "\n  ".join(to.lines)


_LOOPS = """
define void @{name}(ptr %keys, i64 %m, i64 %n, ptr %out) {{
entry:
  %up = add i64 %n, 1
  %half = lshr i64 %up, 1
  %h = select i1 {halved}, i64 %half, i64 %n
  br label %rows
rows:
  %j = phi i64 [0, %entry], [%j1, %done]
  %row = phi ptr [%out, %entry], [%row1, %done]
  %any = icmp slt i64 %j, %m
  br i1 %any, label %one, label %end
one:
  %at0 = shl i64 %j, 1
  %p0 = getelementptr i32, ptr %keys, i64 %at0
  %k0 = load i32, ptr %p0, align 4
  %p1 = getelementptr i32, ptr %p0, i64 1
  %k1 = load i32, ptr %p1, align 4
  %kx = xor i32 %k0, %k1
  %k2 = xor i32 %kx, {parity}
  br label %wide
wide:
  %wi = phi i64 [0, %one], [%wnext, %turn]
  %wnext = add i64 %wi, {lanes}
  %reach = add i64 %wnext, {reach}
  %fits = icmp sle i64 %reach, %n
  br i1 %fits, label %turn, label %rest
turn:
  {wide}
  br label %wide
rest:
  %si = phi i64 [%wi, %wide], [%snext, %single]
  %more = icmp slt i64 %si, %h
  br i1 %more, label %single, label %done
single:
  {single}
  %snext = add i64 %si, 1
  br label %rest
done:
  %j1 = add i64 %j, 1
  %step = mul i64 %n, {size}
  %row1 = getelementptr i8, ptr %row, i64 %step
  br label %rows
end:
  ret void
}}
"""

_BLOCKS = """
define void @blocks(ptr %keys, ptr %counts, i64 %n, ptr %out) {{
entry:
  br label %rest
rest:
  %si = phi i64 [0, %entry], [%next, %single]
  %more = icmp slt i64 %si, %n
  br i1 %more, label %single, label %end
single:
  {single}
  %next = add i64 %si, 1
  br label %rest
end:
  ret void
}}
"""


def _loops(name: str) -> str:
    halved = name == "halves"
    return _LOOPS.format(
        name=name,
        halved="true" if halved else "false",
        parity=_PARITY,
        lanes=_LANES,
        reach="%h" if halved else 0,
        wide=_body(name, _LANES, "w"),
        single=_body(name, 1, "s"),
        size=8 if name in ("pairs", "words") else 4,
    )


def _each() -> str:
    to = _Lines("s")
    at = to.let("shl i64 %si, 1")
    words = []
    for base in ("%keys", "%counts"):
        place = to.let(f"getelementptr i32, ptr {base}, i64 {at}")
        words.append(to.let(f"load i32, ptr {place}, align 4"))
        place = to.let(f"getelementptr i32, ptr {place}, i64 1")
        words.append(to.let(f"load i32, ptr {place}, align 4"))
    a, b = _rounds(to, _key(to, words[0], words[1]), words[2], words[3], 1)
    _store(to, "i32", a, "%out", at, "i32")
    _store(to, "i32", b, "%out", to.let(f"add i64 {at}, 1"), "i32")
    return _BLOCKS.format(single="\n  ".join(to.lines))


def _text() -> str:
    """The module: ``name(keys, number of keys, n, out)``, and ``blocks``."""
    wide = _kind(_LANES)
    declared = (
        "declare i32 @llvm.fshl.i32(i32, i32, i32)\n"
        f"declare {wide} @llvm.fshl.v{_LANES}i32({wide}, {wide}, {wide})\n"
    )
    return declared + "".join(map(_loops, _NAMES)) + _each()


@functools.cache
def _compiled() -> dict[str, Any] | None:
    """The functions, callable without the GIL; None where they cannot be made. (Threads that come
    at once may each make them.)"""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "AMD64"):
        return None
    text = _text()
    try:
        places = kept(text, lambda: text, _nothing)
    except (ImportError, ObjectError, RuntimeError):
        return None
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    each = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    made = {name: ctypes.CFUNCTYPE(None, *kinds)(places[name]) for name in _NAMES}
    return made | {"blocks": ctypes.CFUNCTYPE(None, *each)(places["blocks"])}


def _nothing(name: str) -> int:
    raise ObjectError(f"random bits call no function, and {name} is called")


# --- numpy, and what has its operators ------------------------------------------------------------


def plain_block(key: tuple[Any, Any], a: Any, b: Any) -> tuple[Any, Any]:
    """The block of counters by operators of uint32 arrays that broadcast (of a device, too)."""
    words = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    a, b = a + words[0], b + words[1]
    for step in range(1, 6):
        for r in _ROTATIONS[(step - 1) % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(r)) | (b >> np.uint32(32 - r)))
        a = a + words[step % 3]
        b = b + words[(step + 1) % 3] + np.uint32(step)
    return a, b


def plain(name: str, keys: Any, n: int, xp: Any = np) -> Any:
    """What the function of that name gives, by operators of arrays of ``xp``."""
    key = keys[:, :1], keys[:, 1:]
    at = xp.arange(n, dtype=np.uint64)[None]
    if name == "halves":
        half = (n + 1) // 2
        low = at[:, :half].astype(np.uint32)
        high = xp.where(low + np.uint32(half) < n, low + np.uint32(half), np.uint32(0))
        return xp.concatenate(plain_block(key, low, high.astype(np.uint32)), axis=1)[:, :n]
    high, low = (at >> np.uint64(32)).astype(np.uint32), at.astype(np.uint32)
    a, b = plain_block(key, high, low)
    if name == "pairs":
        return xp.stack([a, b], axis=-1)
    if name == "words":
        return (a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64)
    bits = a ^ b
    if name == "mixed":
        return bits
    return ((bits >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


# --- what others call -----------------------------------------------------------------------------

_TYPES = {"words": np.uint64, "unit": np.float32}


def _run(name: str, keys: np.ndarray, n: int) -> np.ndarray:
    functions = _compiled()
    if functions is None:
        with np.errstate(over="ignore"):
            return plain(name, keys, n)
    keys = np.ascontiguousarray(keys, np.uint32)
    shape = (len(keys), n, 2) if name == "pairs" else (len(keys), n)
    out = np.empty(shape, _TYPES.get(name, np.uint32))
    functions[name](keys.ctypes.data, len(keys), n, out.ctypes.data)
    return out


pairs, words, mixed, unit, halves = (functools.partial(_run, name) for name in _NAMES)


def blocks(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The block (uint32 [n, 2]) of each key [n, 2] and the counter [n, 2] at its place."""
    functions = _compiled()
    if functions is None:
        with np.errstate(over="ignore"):
            a, b = plain_block((keys[:, 0], keys[:, 1]), counts[:, 0], counts[:, 1])
        return np.stack([a, b], axis=-1)
    keys = np.ascontiguousarray(keys, np.uint32)
    counts, out = np.ascontiguousarray(counts, np.uint32), np.empty(keys.shape, np.uint32)
    functions["blocks"](keys.ctypes.data, counts.ctypes.data, len(keys), out.ctypes.data)
    return out
