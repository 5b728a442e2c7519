"""The functions by which Python calls generated code, as LLVM IR text.

Both have the form of a C built-in (``METH_FASTCALL``): ``PyObject *f(self, args, nargs)``.
``self`` is an int64 ndarray, the table of addresses that ``native.py`` fills: what the code needs
to know of the process, so that the code itself holds no address and can be kept in a file.

``fast(arrays and floats...)`` reads the arrays' headers itself. If every array is a plain ndarray
of the right type, aligned, C-contiguous and of a fitting size, it runs and returns the first array
that the kernel writes; otherwise, and where there is work for several threads, it does nothing and
returns None. ``general(desc)`` gets an int64
ndarray:

    [elements, row dims, cols, outer, D0..D7,  then per array: address, column stride, S0..S7,
     then the bits of each scalar as float64]

where ``outer`` is the product of all row dims but the last; strides are in bytes.

The headers read are those of CPython's PyFloat and numpy's PyArrayObject, which numpy keeps stable.
Long runs release the GIL.
"""

from __future__ import annotations

from ..lang.kernel import ITEMSIZE, Array, Kernel, functions, rows_apart, sees_row

# Slots of the table. Type descriptors follow, then addresses of functions (``emit.EXTERNAL``).
NDARRAY, FLOAT, NONE, INCREF, SAVE, RESTORE, GIL_FROM, SPLIT_FROM, FIRST_DTYPE = range(9)
DTYPES = (
    "bool int8 uint8 int16 int32 int64 float16 bfloat16 float32 float64".split()
)  # their order in the table
FUNCTIONS = FIRST_DTYPE + len(DTYPES)
MAX_DIMS = 8
DESC_HEAD = 4 + MAX_DIMS
DESC_ARRAY = 2 + MAX_DIMS
_ENDLESS = 2**63 - 1  # rows

# Offsets in PyObject, PyFloatObject and PyArrayObject (64-bit builds of CPython with the GIL).
TYPE, _FLOAT_VALUE = 8, 16
_DATA, _ND, _DIMS, DESCR, FLAGS = 16, 24, 32, 56, 64
READABLE, _WRITABLE = 0x001 | 0x100, 0x001 | 0x100 | 0x400  # C-contiguous, aligned, writeable

SIZE = """
declare i64 @llvm.smax.i64(i64, i64)

define internal i64 @size(ptr %array) #0 {
entry:
  %nd.at = getelementptr i8, ptr %array, i64 24
  %nd = load i32, ptr %nd.at
  %dims.at = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %dims.at
  %scalar = icmp eq i32 %nd, 0
  br i1 %scalar, label %one, label %loop
one:
  ret i64 1
loop:
  %k = phi i32 [ 0, %entry ], [ %k.next, %loop ]
  %n = phi i64 [ 1, %entry ], [ %n.next, %loop ]
  %dim.at = getelementptr i64, ptr %dims, i32 %k
  %dim = load i64, ptr %dim.at
  %n.next = mul i64 %n, %dim
  %k.next = add i32 %k, 1
  %more = icmp slt i32 %k.next, %nd
  br i1 %more, label %loop, label %done
done:
  ret i64 %n.next
}
"""


def work(kernel: Kernel) -> int:
    """What an element costs, as times what it takes to fetch and store it."""
    return 1 + functions(kernel) // 2


def wrappers(kernel: Kernel, signature: list[str]) -> list[str]:
    """The text of ``fast`` and ``general`` for a ``core`` of this signature."""
    return [SIZE, _Fast(kernel, signature).write(), _General(kernel, signature).write()]


class Wrapper:
    """What both have in common: the table, the call under the GIL or without it, the return."""

    before = ""  # the block that ``release`` ends

    def __init__(self, kernel: Kernel, signature: list[str]) -> None:
        self.kernel, self.signature = kernel, signature
        self.lines: list[str] = []
        self.cycles: dict[str, str] = {}  # of objects, their rows
        self.count = 0

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def read(self, kind: str, base: str, offset: int | str) -> str:
        return self.op(f"load {kind}, ptr {self.op(f'getelementptr i8, ptr {base}, i64 {offset}')}")

    def slot(self, kind: str, which: int) -> str:
        return self.read(kind, "%table", 8 * which)

    def all(self, checks: list[str]) -> str:
        """Whether all hold."""
        every = checks[0]
        for c in checks[1:]:
            every = self.op(f"and i1 {every}, {c}")
        return every

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def begin(self, name: str) -> None:
        self.lines.append(f"define ptr @{name}(ptr %self, ptr %args, i64 %nargs) #0 {{")
        self.label("entry")
        self.lines.append("  %table.at = getelementptr i8, ptr %self, i64 16")
        self.lines.append("  %table = load ptr, ptr %table.at")
        self.lines.append(f"  %functions = getelementptr i64, ptr %table, i64 {FUNCTIONS}")

    def release(self, size: str) -> None:
        """Let other threads run from here on if there is enough work to pay for it."""
        small = self.op(f"icmp slt i64 {size}, {self.slot('i64', GIL_FROM)}")
        self.lines.append(f"  br i1 {small}, label %run, label %save")
        self.label("save")
        save = self.slot("ptr", SAVE)
        self.lines.append(f"  %state.saved = call ptr {save}()")
        self.lines.append("  br label %run")
        self.label("run")
        before = "%" + self.before
        self.lines.append(f"  %state = phi ptr [ null, {before} ], [ %state.saved, %save ]")

    def acquire(self) -> None:
        self.lines.append("  %held = icmp eq ptr %state, null")
        self.lines.append("  br i1 %held, label %out, label %restore")
        self.label("restore")
        restore = self.slot("ptr", RESTORE)
        self.lines += [f"  call void {restore}(ptr %state)", "  br label %out"]
        self.label("out")

    def give(self, obj: str) -> None:
        self.lines += [f"  call void {self.slot('ptr', INCREF)}(ptr {obj})", f"  ret ptr {obj}"]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n}\n"


class _Fast(Wrapper):
    """Checks the arguments in two steps: their types, then, reading array headers, the rest."""

    before = "go"

    def write(self) -> str:
        kernel = self.kernel
        self.begin("fast")
        right = self.op(f"icmp eq i64 %nargs, {len(kernel.params)}")
        self.lines.append(f"  br i1 {right}, label %types, label %refuse")
        self.label("types")
        objects = self._types()
        self.label("headers")
        arrays = [(p, o) for p, o in zip(kernel.params, objects) if isinstance(p, Array)]
        rows, cols, total = self._headers(arrays)
        self.label("go")
        self.release(total)
        self._run(rows, cols, objects)
        self.acquire()
        self.lines.append("  br label %leave")
        self.label("leave")
        result = next(o for p, o in arrays if p.writes)
        self.give(result)
        self.label("refuse")
        self.give(self.slot("ptr", NONE))
        return self.text()

    def _types(self) -> list[str]:
        ndarray, real = self.slot("i64", NDARRAY), self.slot("i64", FLOAT)
        objects, checks = [], []
        for i, p in enumerate(self.kernel.params):
            obj = self.read("ptr", "%args", 8 * i)
            want = ndarray if isinstance(p, Array) else real
            checks.append(self.op(f"icmp eq i64 {self.read('i64', obj, TYPE)}, {want}"))
            objects.append(obj)
        self.lines.append(f"  br i1 {self.all(checks)}, label %headers, label %refuse")
        return objects

    def _headers(self, arrays: list[tuple[Array, str]]) -> tuple[str, str, str]:
        """Check types of elements, flags and sizes; returns rows, columns and elements."""
        checks = []
        for p, obj in arrays:
            descr = self.slot("i64", FIRST_DTYPE + DTYPES.index(p.dtype))
            checks.append(self.op(f"icmp eq i64 {self.read('i64', obj, DESCR)}, {descr}"))
            mask = _WRITABLE if p.writes else READABLE
            flags = self.op(f"and i32 {self.read('i32', obj, FLAGS)}, {mask}")
            checks.append(self.op(f"icmp eq i32 {flags}, {mask}"))
        sizes = {obj: self.op(f"call i64 @size(ptr {obj})") for _, obj in arrays}
        first = next(obj for p, obj in arrays if p.space == "full" and not p.cyclic)
        total = sizes[first]
        rows, cols = ("1", total) if self.kernel.flat else self._split(first, total)
        need = {"full": total, "row": rows, "col": cols, "one": "1"}
        for p, obj in arrays:
            if p.cyclic:
                checks.append(self._turns(obj, sizes[obj], cols, total))
                continue
            size = self._lines(p, rows, cols) if p.every else need[p.space]
            checks.append(self.op(f"icmp eq i64 {sizes[obj]}, {size}"))
        if rows_apart(self.kernel) and not (self.kernel.flat and sees_row(self.kernel)):
            amount = self.op(f"mul i64 {total}, {work(self.kernel)}")
            checks.append(self.op(f"icmp slt i64 {amount}, {self.slot('i64', SPLIT_FROM)}"))
        fits = self.all(checks)
        self.lines.append(f"  br i1 {fits}, label %some, label %refuse")
        self.label("some")
        nothing = self.op(f"icmp eq i64 {total}, 0")
        self.lines.append(f"  br i1 {nothing}, label %leave, label %go")
        return rows, cols, total

    def _lines(self, p: Array, rows: str, cols: str) -> str:
        """The elements of an array with a line for some rows each."""
        lines = self.op(f"udiv i64 {self.op(f'add i64 {rows}, {p.every - 1}')}, {p.every}")
        return self.op(f"mul i64 {lines}, {cols}")

    def _turns(self, obj: str, size: str, cols: str, total: str) -> str:
        """Whether an array is some whole rows, and all of them are whole turns of it."""
        self.cycles[obj] = self.op(f"udiv i64 {size}, {self._nonzero(cols)}")
        rest = self.op(f"urem i64 {total}, {self._nonzero(size)}")
        over = self.op(f"urem i64 {size}, {self._nonzero(cols)}")
        return self.op(f"icmp eq i64 {self.op(f'or i64 {rest}, {over}')}, 0")

    def _nonzero(self, n: str) -> str:
        return self.op(f"call i64 @llvm.smax.i64(i64 {n}, i64 1)")

    def _split(self, first: str, total: str) -> tuple[str, str]:
        """Rows and columns of the first full array: its last axis is the columns."""
        nd = self.read("i32", first, _ND)
        flat = self.op(f"icmp eq i32 {nd}, 0")
        last = self.op(f"sub i32 {nd}, 1")
        safe = self.op(f"select i1 {flat}, i32 0, i32 {last}")
        dims = self.read("ptr", first, _DIMS)
        dims = self.op(f"select i1 {flat}, ptr %table, ptr {dims}")
        at = self.op(f"getelementptr i64, ptr {dims}, i32 {safe}")
        dim = self.op(f"load i64, ptr {at}")
        cols = self.op(f"select i1 {flat}, i64 1, i64 {dim}")
        divisor = self.op(f"call i64 @llvm.smax.i64(i64 {cols}, i64 1)")
        return self.op(f"udiv i64 {total}, {divisor}"), cols

    def _run(self, rows: str, cols: str, objects: list[str]) -> None:
        values = ["%functions", rows, cols]
        scalars = []
        for p, obj in zip(self.kernel.params, objects):
            if not isinstance(p, Array):
                scalars.append(self.read("double", obj, _FLOAT_VALUE))
                continue
            size = ITEMSIZE[p.dtype]
            step = "0"
            if p.space == "full" or p.every:
                step = self.op(f"mul i64 {cols}, {size}")
            elif p.space == "row":
                step = str(size)
            values += [self.read("ptr", obj, _DATA), step, str(size)]
            values += [self._nonzero(self.cycles[obj])] if p.cyclic else []
        kinds = [s.split()[0] for s in self.signature]
        inside = ", ".join(f"{k} {v}" for k, v in zip(kinds, values + scalars))
        self.lines.append(f"  call void @core({inside})")


class _General(Wrapper):
    """Rows over several axes: the last row axis goes to ``core``, the others are walked here."""

    before = "entry"

    def write(self) -> str:
        self.begin("general")
        obj = self.read("ptr", "%args", 0)
        self.lines.append(
            f"  %desc = load ptr, ptr {self.op(f'getelementptr i8, ptr {obj}, i64 16')}"
        )
        total, dims, self.cols, outer = (self.read("i64", "%desc", 8 * k) for k in range(4))
        self.last = self.op(f"sub i64 {dims}, 1")
        self.release(total)
        self.lines += [
            "  br label %outer",
            "outer:",
            "  %o = phi i64 [ 0, %run ], [ %o.next, %call ]",
            f"  %k.first = sub i64 {self.last}, 1",
            "  br label %test",
        ]
        self._decode()
        self.label("call")
        self._call()
        self.lines += [
            "  %o.next = add i64 %o, 1",
            f"  %o.more = icmp slt i64 %o.next, {outer}",
            "  br i1 %o.more, label %outer, label %after",
            "after:",
        ]
        self.acquire()
        self.give(self.slot("ptr", NONE))
        return self.text()

    def _start(self, i: int) -> int:
        """The byte where array ``i`` begins in the description."""
        return 8 * (DESC_HEAD + i * DESC_ARRAY)

    def _decode(self) -> None:
        """Take ``o`` apart into one index per outer axis, adding up each array's offset."""
        arrays = range(len(self.kernel.arrays))
        self.label("test")
        self.lines += [
            "  %k = phi i64 [ %k.first, %outer ], [ %k.next, %digit ]",
            "  %rem = phi i64 [ %o, %outer ], [ %rem.next, %digit ]",
        ]
        for i in arrays:
            self.lines.append(f"  %off{i} = phi i64 [ 0, %outer ], [ %off{i}.next, %digit ]")
        self.lines.append("  %k.more = icmp sge i64 %k, 0")
        self.lines.append("  br i1 %k.more, label %digit, label %call")
        self.label("digit")
        dims = self.op(f"getelementptr i8, ptr %desc, i64 {8 * (DESC_HEAD - MAX_DIMS)}")
        size = self.op(f"load i64, ptr {self.op(f'getelementptr i64, ptr {dims}, i64 %k')}")
        digit = self.op(f"urem i64 %rem, {size}")
        self.lines.append(f"  %rem.next = udiv i64 %rem, {size}")
        for i in arrays:
            stride = self._stride(i, "%k")
            self.lines.append(
                f"  %off{i}.next = add i64 %off{i}, {self.op(f'mul i64 {digit}, {stride}')}"
            )
        self.lines += ["  %k.next = sub i64 %k, 1", "  br label %test"]

    def _stride(self, i: int, k: str) -> str:
        strides = self.op(f"getelementptr i8, ptr %desc, i64 {self._start(i) + 16}")
        return self.op(f"load i64, ptr {self.op(f'getelementptr i64, ptr {strides}, i64 {k}')}")

    def _call(self) -> None:
        dims = self.op(f"getelementptr i8, ptr %desc, i64 {8 * (DESC_HEAD - MAX_DIMS)}")
        rows = self.op(
            f"load i64, ptr {self.op(f'getelementptr i64, ptr {dims}, i64 {self.last}')}"
        )
        values = ["%functions", rows, self.cols]
        for i, array in enumerate(self.kernel.arrays):
            base = self.read("ptr", "%desc", self._start(i))
            here = self.op(f"getelementptr i8, ptr {base}, i64 %off{i}")
            values += [
                here,
                self._stride(i, self.last),
                self.read("i64", "%desc", self._start(i) + 8),
            ]
            values += [str(_ENDLESS)] if array.cyclic else []  # (its strides say how it repeats)
        end = self._start(len(self.kernel.arrays))
        values += [
            self.read("double", "%desc", end + 8 * k) for k in range(len(self.kernel.scalars))
        ]
        kinds = [s.split()[0] for s in self.signature]
        inside = ", ".join(f"{k} {v}" for k, v in zip(kinds, values))
        self.lines.append(f"  call void @core({inside})")
