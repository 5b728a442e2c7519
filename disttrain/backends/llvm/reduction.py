"""A large all_reduce through chunks as machine code: one pass over what is added, and no Python
between rounds.

``rounds`` does what ``chunks`` of the shared-memory transport does for other operators, types and
machines, and says how; the two may be mixed in one group. It goes on until a peer is late for
longer than a moment, or somebody is asleep; its caller waits or wakes, and calls it again. Numbers
are added in an order that is handed in as steps (the tree of ``comm/calls/reduce_ops.py``), so that
results have the same bits. (Stores past the caches do not help: what is overwritten was read a
moment before.)

Knows memory and words in it. Where code cannot be made there is none, and who asks uses numpy.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable

from .. import host
from .cached import kept
from .objfile import ObjectError

NUM_SLOTS = 3  # of a ring
LINE = 64  # elements; slices begin at multiples of so many
MOST = 16  # arrays; for more there is no code
DONE, WAIT, RING = range(3)  # why ``rounds`` returns: nothing is left, a peer is late, one sleeps

# The words of what ``rounds`` is told and keeps. At ``TABLE`` are the addresses of all members'
# rings, then those of the others' flags; ``STAGE`` says whether the round's flag is set already.
_FIELDS = (
    *("ROUND", "STAGE", "TOTAL", "ARRAY", "NBYTES", "STEP", "ME", "FLAG", "START"),
    *("SPINS", "YIELDS", "FOR_ALL", "FOR_ANY", "TABLE"),
)
ROUND, STAGE, TOTAL, ARRAY, NBYTES, STEP, ME, FLAG, START = range(9)
SPINS, YIELDS, FOR_ALL, FOR_ANY, TABLE = range(9, 14)
_NUMBERS = {name: k for k, name in enumerate(_FIELDS)}
KINDS = {"float32": ("float", 4), "float64": ("double", 8)}
_UNROLLED = 2  # vectors of each array that are added in one go

Steps = tuple[tuple[int, int, int], ...]

# Each of the arrays in a table of addresses becomes the sum of all.
_SUM = """
define internal void @sum(ptr %table, i64 %n, double %scale) {{
entry:
  {pointers}
  {scale}
  %one = insertelement {vector} poison, {kind} %factor, i32 0
  %factors = shufflevector {vector} %one, {vector} poison, {zeros}
  %whole = and i64 %n, -{step}
  br label %loop
loop:
  %at = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %at, %whole
  br i1 %more, label %body, label %rest
body:
  {body}
  %next = add i64 %at, {step}
  br label %loop
rest:
  %i = phi i64 [%whole, %loop], [%i1, %single]
  %some = icmp ult i64 %i, %n
  br i1 %some, label %single, label %done
single:
  {single}
  %i1 = add i64 %i, {itemsize}
  br label %rest
done:
  ret void
}}
"""

_ROUNDS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.x86.sse2.pause()
declare i32 @sched_yield()

define internal i64 @cut(i64 %n, i64 %member) alwaysinline {{
  %up = add i64 %n, {line_less}
  %lines = udiv i64 %up, {line}
  %per = mul i64 %lines, {own_line}
  %at = mul i64 %per, %member
  %found = call i64 @llvm.umin.i64(i64 %at, i64 %n)
  ret i64 %found
}}

define internal i64 @begin(ptr %d, i64 %chunk) alwaysinline {{
  %step.at = getelementptr i64, ptr %d, i64 {STEP}
  %step = load i64, ptr %step.at
  %lo = mul i64 %chunk, %step
  ret i64 %lo
}}

define internal i64 @length(ptr %d, i64 %chunk) alwaysinline {{
  %step.at = getelementptr i64, ptr %d, i64 {STEP}
  %step = load i64, ptr %step.at
  %nbytes.at = getelementptr i64, ptr %d, i64 {NBYTES}
  %nbytes = load i64, ptr %nbytes.at
  %lo = mul i64 %chunk, %step
  %left = sub i64 %nbytes, %lo
  %found = call i64 @llvm.umin.i64(i64 %left, i64 %step)
  ret i64 %found
}}

define internal void @move(ptr %d, i64 %chunk, i1 %out) {{
entry:
  %me.at = getelementptr i64, ptr %d, i64 {ME}
  %me = load i64, ptr %me.at
  %array.at = getelementptr i64, ptr %d, i64 {ARRAY}
  %array = load ptr, ptr %array.at
  %rings = getelementptr i64, ptr %d, i64 {TABLE}
  %ring.at = getelementptr i64, ptr %rings, i64 %me
  %ring = load ptr, ptr %ring.at
  %lo = call i64 @begin(ptr %d, i64 %chunk)
  %n = call i64 @length(ptr %d, i64 %chunk)
  %k = urem i64 %chunk, {SLOTS}
  %slot.lo = call i64 @begin(ptr %d, i64 %k)
  %slot = getelementptr i8, ptr %ring, i64 %slot.lo
  %part = getelementptr i8, ptr %array, i64 %lo
  %a = call i64 @cut(i64 %n, i64 %me)
  %beyond = add i64 %me, 1
  %b = call i64 @cut(i64 %n, i64 %beyond)
  %last = sub i64 %n, %b
  %slot.last = getelementptr i8, ptr %slot, i64 %b
  %part.last = getelementptr i8, ptr %part, i64 %b
  br i1 %out, label %leave, label %enter
enter:
  call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %part, i64 %a, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %slot.last, ptr %part.last, i64 %last, i1 false)
  ret void
leave:
  call void @llvm.memcpy.p0.p0.i64(ptr %part, ptr %slot, i64 %a, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %part.last, ptr %slot.last, i64 %last, i1 false)
  ret void
}}

define internal void @reduce(ptr %d, i64 %chunk, double %scale) {{
entry:
  %table = alloca [{n} x ptr], align 8
  %me.at = getelementptr i64, ptr %d, i64 {ME}
  %me = load i64, ptr %me.at
  %array.at = getelementptr i64, ptr %d, i64 {ARRAY}
  %array = load ptr, ptr %array.at
  %lo = call i64 @begin(ptr %d, i64 %chunk)
  %n = call i64 @length(ptr %d, i64 %chunk)
  %k = urem i64 %chunk, {SLOTS}
  %slot = call i64 @begin(ptr %d, i64 %k)
  %a = call i64 @cut(i64 %n, i64 %me)
  %beyond = add i64 %me, 1
  %b = call i64 @cut(i64 %n, i64 %beyond)
  %from = add i64 %slot, %a
  {fill}
  %own.lo = add i64 %lo, %a
  %own = getelementptr i8, ptr %array, i64 %own.lo
  %own.at = getelementptr ptr, ptr %table, i64 %me
  store ptr %own, ptr %own.at
  %count = sub i64 %b, %a
  call void @sum(ptr %table, i64 %count, double %scale)
  ret void
}}

define i64 @rounds(ptr %d, double %scale) {{
entry:
  {fields}
  %flags = getelementptr i64, ptr %d, i64 {flags}
  %last = add i64 %TOTAL, 2
  %limit = add i64 %SPINS, %YIELDS
  %again = icmp ne i64 %STAGE, 0
  br i1 %again, label %after, label %meet
meet:
  %c = phi i64 [%ROUND, %entry], [%c.next, %onward]
  %first = icmp eq i64 %c, 0
  %need = add i64 %START, %c
  br i1 %first, label %work, label %peer
peer:
  %p = phi i64 [0, %meet], [%p.next, %come]
  %tried = phi i64 [0, %meet], [%tries, %come]
  %all = icmp eq i64 %p, {others}
  br i1 %all, label %work, label %which
which:
  %flag.at = getelementptr ptr, ptr %flags, i64 %p
  %flag = load ptr, ptr %flag.at
  br label %look
look:
  %tries = phi i64 [%tried, %which], [%tries.next, %pause]
  %word = load atomic i64, ptr %flag acquire, align 8
  %there = icmp uge i64 %word, %need
  br i1 %there, label %come, label %wait
wait:
  %tries.next = add i64 %tries, 1
  %spins = icmp ult i64 %tries, %SPINS
  br i1 %spins, label %pause, label %give
give:
  %patient = icmp ult i64 %tries, %limit
  br i1 %patient, label %yield, label %late
yield:
  %ignored = call i32 @sched_yield()
  br label %pause
pause:
  call void @llvm.x86.sse2.pause()
  br label %look
come:
  %p.next = add i64 %p, 1
  br label %peer
late:
  store i64 %c, ptr %ROUND.at
  store i64 0, ptr %STAGE.at
  ret i64 {WAIT}
work:
  %goes.in = icmp ult i64 %c, %TOTAL
  br i1 %goes.in, label %in, label %inside
in:
  call void @move(ptr %d, i64 %c, i1 false)
  br label %inside
inside:
  %before = sub i64 %c, 1
  %one = icmp ult i64 %before, %TOTAL
  br i1 %one, label %add, label %say
add:
  call void @reduce(ptr %d, i64 %before, double %scale)
  br label %say
say:
  %mine = inttoptr i64 %FLAG to ptr
  %said = add i64 %need, 1
  store atomic i64 %said, ptr %mine release, align 8
  %crowded = icmp ne i64 %FOR_ALL, 0
  br i1 %crowded, label %listen, label %after
listen:
  fence seq_cst
  %for_all.at = inttoptr i64 %FOR_ALL to ptr
  %for_any.at = inttoptr i64 %FOR_ANY to ptr
  %for_all = load atomic i64, ptr %for_all.at monotonic, align 8
  %for_any = load atomic i64, ptr %for_any.at monotonic, align 8
  %sleepers = or i64 %for_all, %for_any
  %sleep = icmp ne i64 %sleepers, 0
  br i1 %sleep, label %ring, label %after
ring:
  store i64 %c, ptr %ROUND.at
  store i64 1, ptr %STAGE.at
  ret i64 {RING}
after:
  %r = phi i64 [%ROUND, %entry], [%c, %say], [%c, %listen]
  %early = icmp ult i64 %r, 2
  br i1 %early, label %onward, label %out
out:
  %gone = sub i64 %r, 2
  call void @move(ptr %d, i64 %gone, i1 true)
  br label %onward
onward:
  %c.next = add i64 %r, 1
  %end = icmp eq i64 %c.next, %last
  br i1 %end, label %done, label %meet
done:
  ret i64 {DONE}
}}
"""


def _text(kind: str, n: int, steps: Steps, bits: int) -> str:
    """The module for ``n`` arrays of one type, with vectors of ``bits``."""
    return _sum(kind, n, steps, bits) + _rounds(kind, n)


def _sum(kind: str, n: int, steps: Steps, bits: int) -> str:
    name, itemsize = KINDS[kind]
    width, lanes = bits // 8, bits // 8 // itemsize
    vector, pointers, body = f"<{lanes} x {name}>", [], []
    for k in range(n):
        pointers.append(f"%a{k} = getelementptr ptr, ptr %table, i64 {k}")
        pointers.append(f"%p{k} = load ptr, ptr %a{k}, align 8")
    for u in range(_UNROLLED):
        body.append(f"%at{u} = add i64 %at, {u * width}")
        body += _joined(f"u{u}", n, steps, f"%at{u}", f"{vector} %factors", itemsize)
    narrow = "fptrunc double %scale to float" if name == "float" else "fadd double %scale, 0.0"
    return _SUM.format(
        vector=vector,
        kind=name,
        zeros=f"<{lanes} x i32> zeroinitializer",
        pointers="\n  ".join(pointers),
        scale=f"%factor = {narrow}",
        step=_UNROLLED * width,
        body="\n  ".join(body),
        single="\n  ".join(_joined("s", n, steps, "%i", f"{name} %factor", itemsize)),
        itemsize=itemsize,
    )


def _joined(name: str, n: int, steps: Steps, at: str, factor: str, itemsize: int) -> list[str]:
    """Load from all arrays at an offset, add, scale, store into all. ``factor``: with its type."""
    kind = factor.rpartition(" ")[0]
    lines, values, last = [], {}, 0
    for k in range(n):
        lines.append(f"%{name}q{k} = getelementptr i8, ptr %p{k}, i64 {at}")
        lines.append(f"%{name}v{k} = load {kind}, ptr %{name}q{k}, align {itemsize}")
        values[k] = f"%{name}v{k}"
    for j, (left, right, place) in enumerate(steps):
        lines.append(f"%{name}r{j} = fadd {kind} {values[left]}, {values[right]}")
        values[place], last = f"%{name}r{j}", place
    lines.append(f"%{name}x = fmul {factor}, {values[last]}")
    for k in range(n):
        lines.append(f"store {kind} %{name}x, ptr %{name}q{k}, align {itemsize}")
    return lines


def _rounds(kind: str, n: int) -> str:
    fields, fill = [], []
    for name in (*_FIELDS[:3], *_FIELDS[7:-1]):
        fields.append(f"%{name}.at = getelementptr i64, ptr %d, i64 {_NUMBERS[name]}")
        fields.append(f"%{name} = load i64, ptr %{name}.at")
    for k in range(n):
        fill += [
            f"%r{k}.at = getelementptr i64, ptr %d, i64 {TABLE + k}",
            f"%r{k} = load ptr, ptr %r{k}.at",
            f"%s{k} = getelementptr i8, ptr %r{k}, i64 %from",
            f"%t{k} = getelementptr ptr, ptr %table, i64 {k}",
            f"store ptr %s{k}, ptr %t{k}",
        ]
    line = LINE * KINDS[kind][1]
    return _ROUNDS.format(
        **_NUMBERS,
        SLOTS=NUM_SLOTS,
        DONE=DONE,
        WAIT=WAIT,
        RING=RING,
        line=n * line,
        line_less=n * line - 1,
        own_line=line,
        n=n,
        others=n - 1,
        flags=TABLE + n,
        fields="\n  ".join(fields),
        fill="\n  ".join(fill),
    )


# ``rounds(address of the words, scale)`` says why it has returned; runs without the GIL.
Rounds = Callable[[int, float], int]


@functools.cache
def reduction(kind: str, n: int, steps: Steps) -> Rounds | None:
    """The code for ``n`` arrays of dtype ``kind``, added in ``steps`` (left, right, result); None
    where there is none. Takes a few milliseconds where it is in the cache of kernels, 200 else.
    """
    here = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    if kind not in KINDS or not 2 <= n <= MOST or not here:
        return None
    text = _text(kind, n, steps, host.vector_bits(host.cpu().features))
    try:
        places = kept(text, lambda: text, _of_c)
    except (ImportError, ObjectError, RuntimeError):
        return None
    kinds = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_double)
    rounds: Rounds = ctypes.CFUNCTYPE(*kinds)(places["rounds"])
    return rounds


def _of_c(name: str) -> int:
    """The address of a function that LLVM has decided to call."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ObjectError(f"the C library has no function {name}") from None
