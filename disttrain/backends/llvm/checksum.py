"""CRC-32C (Castagnoli) of large data, block by block: as fast as memory where the processor helps.

RFC 3720 appendix B.4 defines the number. Three lanes run side by side through the processor's
crc32 instruction (its result comes three cycles late, so one lane alone would wait) and are put
together by a carry-less multiplication, as in V. Gopal et al., "Fast CRC Computation for iSCSI
Polynomial Using CRC32 Instruction" (Intel, 2011). Where code cannot be generated, numpy takes many
pieces of the data through a table side by side, and puts them together by the same algebra.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from typing import Any

import numpy as np

from .. import host
from . import cache
from .compiler import compile_ir
from .native import why_unavailable
from .objfile import ObjectError, load

BLOCK = 1 << 20  # bytes that one checksum stands for
_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed
_LANE = 5448  # bytes; three lanes lie no multiple of a page apart, and 64 rounds fill a block
_PIECES = 2048  # pieces that numpy takes side by side
_ALL = 0xFFFFFFFF


# --- the algebra: polynomials over GF(2), the highest power in the lowest bit ---------------------


def _times_x(value: int) -> int:
    return (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)


def _product(a: int, b: int) -> int:
    out = 0
    while a:
        if a & 0x80000000:
            out ^= b
        a, b = (a << 1) & _ALL, _times_x(b)
    return out


@functools.cache
def _power(bits: int) -> int:
    """x to the ``bits``, modulo the polynomial."""
    out, square = 0x80000000, 0x40000000
    while bits:
        if bits & 1:
            out = _product(out, square)
        square, bits = _product(square, square), bits >> 1
    return out


# --- machine code ---------------------------------------------------------------------------------

_IR = """
declare i64 @llvm.x86.sse42.crc32.64.64(i64, i64)
declare i32 @llvm.x86.sse42.crc32.32.8(i32, i8)
declare <2 x i64> @llvm.x86.pclmulqdq(<2 x i64>, <2 x i64>, i8)

define internal i64 @moved(i64 %crc, i64 %by) alwaysinline {{
  %a = insertelement <2 x i64> zeroinitializer, i64 %crc, i32 0
  %b = insertelement <2 x i64> zeroinitializer, i64 %by, i32 0
  %p = call <2 x i64> @llvm.x86.pclmulqdq(<2 x i64> %a, <2 x i64> %b, i8 0)
  %low = extractelement <2 x i64> %p, i32 0
  %r = call i64 @llvm.x86.sse42.crc32.64.64(i64 0, i64 %low)
  ret i64 %r
}}

define internal i64 @word(i64 %crc, ptr %src, ptr %dst, i64 %at) alwaysinline {{
  %from = getelementptr i8, ptr %src, i64 %at
  %x = load i64, ptr %from, align 1
  {store_word}
  %r = call i64 @llvm.x86.sse42.crc32.64.64(i64 %crc, i64 %x)
  ret i64 %r
}}

define internal i32 @piece(ptr %src, ptr %dst, i64 %n) {{
entry:
  %rounds = udiv i64 %n, {three}
  br label %round
round:
  %r = phi i64 [0, %entry], [%r1, %fold]
  %crc = phi i64 [4294967295, %entry], [%folded, %fold]
  %base = mul i64 %r, {three}
  %more = icmp ult i64 %r, %rounds
  br i1 %more, label %lane, label %words
lane:
  %k = phi i64 [%base, %round], [%k1, %lane]
  %a = phi i64 [%crc, %round], [%a1, %lane]
  %b = phi i64 [0, %round], [%b1, %lane]
  %c = phi i64 [0, %round], [%c1, %lane]
  %kb = add i64 %k, {lane}
  %kc = add i64 %k, {two}
  %a1 = call i64 @word(i64 %a, ptr %src, ptr %dst, i64 %k)
  %b1 = call i64 @word(i64 %b, ptr %src, ptr %dst, i64 %kb)
  %c1 = call i64 @word(i64 %c, ptr %src, ptr %dst, i64 %kc)
  %k1 = add i64 %k, 8
  %end = add i64 %base, {lane}
  %again = icmp ult i64 %k1, %end
  br i1 %again, label %lane, label %fold
fold:
  %am = call i64 @moved(i64 %a1, i64 {by_two})
  %bm = call i64 @moved(i64 %b1, i64 {by_one})
  %ab = xor i64 %am, %bm
  %folded = xor i64 %ab, %c1
  %r1 = add i64 %r, 1
  br label %round
words:
  %w = phi i64 [%base, %round], [%w1, %each]
  %wc = phi i64 [%crc, %round], [%wc1, %each]
  %w1 = add i64 %w, 8
  %fits = icmp ule i64 %w1, %n
  br i1 %fits, label %each, label %bytes
each:
  %wc1 = call i64 @word(i64 %wc, ptr %src, ptr %dst, i64 %w)
  br label %words
bytes:
  %i = phi i64 [%w, %words], [%i1, %last]
  %ic = phi i64 [%wc, %words], [%ic1, %last]
  %left = icmp ult i64 %i, %n
  br i1 %left, label %last, label %done
last:
  %p = getelementptr i8, ptr %src, i64 %i
  %byte = load i8, ptr %p, align 1
  {store_byte}
  %ic32 = trunc i64 %ic to i32
  %ic1n = call i32 @llvm.x86.sse42.crc32.32.8(i32 %ic32, i8 %byte)
  %ic1 = zext i32 %ic1n to i64
  %i1 = add i64 %i, 1
  br label %bytes
done:
  %o = trunc i64 %ic to i32
  %out = xor i32 %o, -1
  ret i32 %out
}}

define void @sums(ptr %src, ptr %dst, i64 %n, i64 %block, ptr %out) {{
entry:
  br label %loop
loop:
  %at = phi i64 [0, %entry], [%next, %body]
  %k = phi i64 [0, %entry], [%k1, %body]
  %more = icmp ult i64 %at, %n
  br i1 %more, label %body, label %done
body:
  %next = add i64 %at, %block
  %left = sub i64 %n, %at
  %short = icmp ult i64 %left, %block
  %size = select i1 %short, i64 %left, i64 %block
  %s = getelementptr i8, ptr %src, i64 %at
  %d = getelementptr i8, ptr %dst, i64 %at
  %sum = call i32 @piece(ptr %s, ptr %d, i64 %size)
  %o = getelementptr i32, ptr %out, i64 %k
  store i32 %sum, ptr %o, align 4
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}}
"""


def _text(copy: bool) -> str:
    """The module: ``sums(source, destination, bytes, block, sums)``, which copies if asked."""
    word = "%to = getelementptr i8, ptr %dst, i64 %at\n  store i64 %x, ptr %to, align 1"
    byte = "%q = getelementptr i8, ptr %dst, i64 %i\n  store i8 %byte, ptr %q, align 1"
    return _IR.format(
        lane=_LANE,
        two=2 * _LANE,
        three=3 * _LANE,
        # The product comes out one bit low, and crc32 multiplies by x**32 once more.
        by_one=_power(8 * _LANE - 33),
        by_two=_power(16 * _LANE - 33),
        store_word=word if copy else "",
        store_byte=byte if copy else "",
    )


@functools.cache
def _compiled(copy: bool) -> Any:
    """The function, callable without the GIL; None where it cannot be made."""
    if why_unavailable() or not {"sse4_2", "pclmulqdq"} <= set(host.cpu().features):
        return None
    text = _text(copy)
    key = hashlib.sha256(f"{text}\n{host.cpu().model}".encode()).hexdigest()
    folder = cache.directory()
    code = cache.read(folder, key)
    try:
        if code is None:
            code = compile_ir(text)
            cache.write(folder, key, code)
        loaded = load(code, _nothing)
    except (ImportError, ObjectError, RuntimeError):
        return None
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function = ctypes.CFUNCTYPE(None, *kinds)(loaded.functions["sums"])
    return function, loaded  # whoever holds the function holds its memory


_making = threading.Lock()


def _nothing(name: str) -> int:
    raise ObjectError(f"a checksum calls no function, and {name} is called")


# --- numpy ----------------------------------------------------------------------------------------


@functools.cache
def _table() -> np.ndarray:
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


def _moved(crc: np.ndarray, num_bytes: int) -> np.ndarray:
    """Every checksum as if ``num_bytes`` zeros followed."""
    by, out = _power(8 * num_bytes), np.zeros_like(crc)
    for bit in range(31, -1, -1):
        out ^= np.where((crc >> np.uint32(bit)) & 1, np.uint32(by), np.uint32(0))
        by = _times_x(by)
    return out


def _plain(data: np.ndarray) -> int:
    """The checksum of one block, by numpy."""
    table, size = _table(), data.size // _PIECES
    crc = _ALL
    if size:
        lanes = data[: size * _PIECES].reshape(_PIECES, size)
        run: np.ndarray = np.zeros(_PIECES, np.uint32)
        run[0] = _ALL
        for column in np.ascontiguousarray(lanes.T):
            run = table[(run ^ column) & 0xFF] ^ (run >> np.uint32(8))
        while run.size > 1:
            run = _moved(run[::2], size) ^ run[1::2]
            size *= 2
        crc = int(run[0])
    for byte in data[data.size - data.size % _PIECES :].tolist():
        crc = int(table[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc ^ _ALL


# --- what others call -----------------------------------------------------------------------------


def crc32c_blocks(
    data: np.ndarray, block: int = BLOCK, into: np.ndarray | None = None
) -> np.ndarray:
    """The checksum (uint32) of every ``block`` bytes of ``data``, the last one perhaps shorter.

    ``data`` is a contiguous array of bytes. ``into``: another one of that size that gets a copy of
    it on the way, at nearly no cost beyond that of the copy.
    """
    out = np.empty(-(-data.size // block), np.uint32)
    with _making:
        made = _compiled(into is not None)
    if made is not None:
        target = 0 if into is None else into.ctypes.data
        made[0](data.ctypes.data, target, data.size, block, out.ctypes.data)
        return out
    for k in range(out.size):
        out[k] = _plain(data[k * block : (k + 1) * block])
    if into is not None:
        into[:] = data
    return out


def is_fast() -> bool:
    """Whether machine code does it here, not numpy."""
    with _making:
        return _compiled(False) is not None
