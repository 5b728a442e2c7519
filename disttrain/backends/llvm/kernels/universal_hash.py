"""NH, the universal hash of UMAC (J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC:
Fast and Secure Message Authentication", 1999; RFC 4418): blocks of 1024 bytes become 16 bytes each,
as fast as memory is read.

Of a block with the 32-bit words m and a key k of as many words it is the sum, modulo 2**64, of
``(m[i] + k[i]) * (m[j] + k[j])`` over pairs of words, whose inner sums are modulo 2**32. Two
different blocks have the same one for at most one key of 2**32; here there are two independent
keys. So whoever does not know the key cannot make such blocks; the results must not be shown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...addresses import address
from ..loops import Text, functions

BLOCK = 1024  # bytes
KEY = 2 * BLOCK  # bytes of a key
OUT = 16  # bytes that a block becomes
_STEP = 16  # words: the first half of them is paired with the second
_HALVES = ["<" + ", ".join(f"i32 {k}" for k in range(b, b + 8)) + ">" for b in (0, 8)]


def condensed(data: Any, key: bytes) -> np.ndarray:
    """What the blocks of ``data`` become: (blocks, 2) of 64 bits. Anything with a buffer, a whole
    number of blocks long; ``key``: ``KEY`` bytes."""
    x, k = np.frombuffer(data, np.uint8), np.frombuffer(key, np.uint8)
    assert x.size % BLOCK == 0 and k.size == KEY
    out = np.empty((x.size // BLOCK, 2), np.uint64)
    if x.size:
        run = _code() or _plain
        run(address(out), address(x), address(k), len(out))
    return out


@cache
def _code() -> Callable | None:
    return functions(_text)("run", [*[ctypes.c_void_p] * 3, ctypes.c_int64])


def _text() -> str:
    """``run(out, x, key, blocks)``."""
    text = Text()
    sums = [("<8 x i64>", "zeroinitializer")] * 2
    with (
        text.function("run", "ptr %out", "ptr %x", "ptr %key", "i64 %blocks"),
        text.loop("0", "%blocks", 1) as block,
    ):
        start = text.at("%x", (block, str(BLOCK)))
        keys = ["%key", text.at("%key", ("1", str(BLOCK)))]
        with text.loop("0", str(BLOCK), 4 * _STEP, sums) as turn:
            words = text.let(f"load <16 x i32>, ptr {text.at(start, (turn.at, '1'))}, align 1")
            turn.new = [
                _added(text, words, text.at(keys[k], (turn.at, "1")), turn.values[k])
                for k in range(2)
            ]
        into = text.at("%out", (block, str(OUT)))
        for k, value in enumerate(turn.values):
            total = text.let(f"call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> {value})")
            at = text.let(f"getelementptr i8, ptr {into}, i64 {8 * k}")
            text.add(f"store i64 {total}, ptr {at}, align 8")
    return "declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)\n" + str(text)


def _added(text: Text, words: str, key: str, total: str) -> str:
    """The sum with one step of a block."""
    keys = text.let(f"load <16 x i32>, ptr {key}, align 1")
    both = text.let(f"add <16 x i32> {words}, {keys}")
    a, b = (
        text.let(f"shufflevector <16 x i32> {both}, <16 x i32> poison, <8 x i32> {half}")
        for half in _HALVES
    )
    a, b = (text.let(f"zext <8 x i32> {v} to <8 x i64>") for v in (a, b))
    return text.let(f"add <8 x i64> {total}, {text.let(f'mul <8 x i64> {a}, {b}')}")


def _plain(out: int, x: int, key: int, blocks: int) -> None:
    """The same by numpy, where there is no machine code."""
    to, data, keys = (
        np.frombuffer((ctypes.c_char * n).from_address(at), kind)  # type: ignore[call-overload]
        for at, n, kind in ((out, blocks * OUT, "<u8"), (x, blocks * BLOCK, "<u4"),
                            (key, KEY, "<u4"))
    )  # fmt: skip
    words = data.reshape(blocks, 1, BLOCK // 4)
    both = (words + keys.reshape(1, 2, -1)).reshape(blocks, 2, -1, 2, _STEP // 2).astype(np.uint64)
    to.reshape(blocks, 2)[:] = (both[:, :, :, 0] * both[:, :, :, 1]).sum((2, 3), dtype=np.uint64)


__all__ = ["BLOCK", "KEY", "OUT", "condensed"]
