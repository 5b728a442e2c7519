"""CRC-32C (Castagnoli) of large data, block by block: as fast as memory where the processor helps.

RFC 3720 appendix B.4 defines the number. Vectors of the data are folded: each is multiplied,
without carries, by powers of x modulo the polynomial, and so becomes data that stands some vectors
later and has the same remainder; what is left in the end goes through the crc32 instruction (V.
Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel,
2009). Where code cannot be generated, numpy takes many pieces of the data through a table side by
side, and puts them together by the same algebra.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Any

import numpy as np

from .. import host
from .cached import kept
from .objfile import ObjectError

BLOCK = 1 << 18  # bytes that one checksum stands for
_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed
_VECTORS = 8  # that are folded side by side, since a product comes some cycles late
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
declare <{n} x i64> @{clmul}(<{n} x i64>, <{n} x i64>, i8)

define internal <{n} x i64> @folded(<{n} x i64> %v, <{n} x i64> %x) alwaysinline {{
  %low = call <{n} x i64> @{clmul}(<{n} x i64> %v, <{n} x i64> <{by}>, i8 0)
  %high = call <{n} x i64> @{clmul}(<{n} x i64> %v, <{n} x i64> <{by}>, i8 17)
  %both = xor <{n} x i64> %low, %high
  %r = xor <{n} x i64> %both, %x
  ret <{n} x i64> %r
}}

define internal i64 @words(i64 %crc, ptr %src, i64 %begin, i64 %end) alwaysinline {{
entry:
  br label %next
next:
  %at = phi i64 [%begin, %entry], [%at1, %each]
  %c = phi i64 [%crc, %entry], [%c1, %each]
  %more = icmp ult i64 %at, %end
  br i1 %more, label %each, label %done
each:
  %p = getelementptr i8, ptr %src, i64 %at
  %x = load i64, ptr %p, align 1
  %c1 = call i64 @llvm.x86.sse42.crc32.64.64(i64 %c, i64 %x)
  %at1 = add i64 %at, 8
  br label %next
done:
  ret i64 %c
}}

define internal i32 @piece(ptr %src, i64 %n) {{
entry:
  %left = alloca [{step} x i8], align 64
  %whole = and i64 %n, -{step}
  %long = icmp ugt i64 %whole, 0
  br i1 %long, label %first, label %tail
first:
  {first}
  %v0 = xor <{n} x i64> %l0, <{start}>
  br label %loop
loop:
  %at = phi i64 [{step}, %first], [%at1, %body]
  {phis}
  %more = icmp ult i64 %at, %whole
  br i1 %more, label %body, label %fold
body:
  {body}
  %at1 = add i64 %at, {step}
  br label %loop
fold:
  {stores}
  %crc = call i64 @words(i64 0, ptr %left, i64 0, i64 {step})
  br label %tail
tail:
  %state = phi i64 [4294967295, %entry], [%crc, %fold]
  %even = and i64 %n, -8
  %tailed = call i64 @words(i64 %state, ptr %src, i64 %whole, i64 %even)
  br label %bytes
bytes:
  %i = phi i64 [%even, %tail], [%i1, %last]
  %ic = phi i64 [%tailed, %tail], [%ic1, %last]
  %odd = icmp ult i64 %i, %n
  br i1 %odd, label %last, label %done
last:
  %p = getelementptr i8, ptr %src, i64 %i
  %byte = load i8, ptr %p, align 1
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

define void @sums(ptr %src, i64 %n, i64 %block, ptr %out) {{
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
  %sum = call i32 @piece(ptr %s, i64 %size)
  %o = getelementptr i32, ptr %out, i64 %k
  store i32 %sum, ptr %o, align 4
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}}
"""


def _text(bits: int) -> str:
    """The module: ``sums(data, bytes, block, sums)``, with vectors of ``bits``."""
    n, width, vectors = bits // 64, bits // 8, range(_VECTORS)
    step = _VECTORS * width
    kind = f"<{n} x i64>"
    # What 64 bits stand for moves on by a step: the product with a constant of 32 bits in the low
    # half comes out times x**33, and the first 8 bytes of 16 stand 64 bits higher than the others.
    pair = f"i64 {_power(8 * step + 31)}, i64 {_power(8 * step - 33)}"

    def loads(at: str, name: str, k: int) -> str:
        return (
            f"%{name}o{k} = add i64 {at}, {k * width}\n"
            f"  %{name}p{k} = getelementptr i8, ptr %src, i64 %{name}o{k}\n"
            f"  %{name}{k} = load {kind}, ptr %{name}p{k}, align 1"
        )

    def start(k: int) -> str:
        return "%v0" if k == 0 else f"%l{k}"

    folds = (f"%y{k} = call {kind} @folded({kind} %w{k}, {kind} %x{k})" for k in vectors)
    return _IR.format(
        n=n,
        step=step,
        clmul="llvm.x86.pclmulqdq" + ("" if bits == 128 else f".{bits}"),
        by=", ".join([pair] * (n // 2)),
        start=", ".join(["i64 4294967295", *["i64 0"] * (n - 1)]),
        first="\n  ".join(loads("0", "l", k) for k in vectors),
        phis="\n  ".join(
            f"%w{k} = phi {kind} [{start(k)}, %first], [%y{k}, %body]" for k in vectors
        ),
        body="\n  ".join([*(loads("%at", "x", k) for k in vectors), *folds]),
        stores="\n  ".join(
            f"%s{k} = getelementptr i8, ptr %left, i64 {k * width}\n"
            f"  store {kind} %w{k}, ptr %s{k}, align 16"
            for k in vectors
        ),
    )


def _bits(features: frozenset[str]) -> int:
    """Bits of the widest vectors that can be multiplied; 0 for none."""
    if not {"sse4_2", "pclmulqdq"} <= features:
        return 0
    if "vpclmulqdq" not in features:
        return 128
    return 512 if "avx512f" in features else 256 if "avx2" in features else 128


@functools.cache
def _compiled() -> Any:
    """The function, callable without the GIL; None where it cannot be made. Threads that come at
    once may each make one: a lock would stay closed in a process forked meanwhile."""
    bits = _bits(host.cpu().features)
    if not bits or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    text = _text(bits)
    try:
        places = kept(text, lambda: text, _nothing)
    except (ImportError, ObjectError, RuntimeError):
        return None
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(None, *kinds)(places["sums"])


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


def crc32c_blocks(data: np.ndarray, block: int = BLOCK) -> np.ndarray:
    """The checksum (uint32) of every ``block`` bytes of ``data``, a contiguous array of bytes; the
    last block may be shorter."""
    out = np.empty(-(-data.size // block), np.uint32)
    sums = _compiled()
    if sums is not None:
        sums(data.ctypes.data, data.size, block, out.ctypes.data)
        return out
    for k in range(out.size):
        out[k] = _plain(data[k * block : (k + 1) * block])
    return out


def crc32c_at(data: np.ndarray, address: int, begin: int, end: int) -> int:
    """The checksum of the bytes from ``begin`` to ``end`` of ``data``, which lies at ``address``:
    for who asks for many, one by one."""
    sums = _compiled()
    if sums is None:
        return _plain(data[begin:end])
    out = ctypes.c_uint32()
    sums(address + begin, end - begin, end - begin, ctypes.byref(out))
    return out.value


def is_fast() -> bool:
    """Whether machine code does it here, not numpy."""
    return _compiled() is not None
