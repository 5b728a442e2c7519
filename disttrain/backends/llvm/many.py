"""One kernel on several sets of arrays by one call from Python, as LLVM IR text.

    many(desc, g0, g1, ...)

``desc`` is an int64 ndarray: the number of sets, the count, the bits of each scalar as float64,
then per set the elements, the address of its counter (0 where it has none), and the address of
each array. The array that the kernel does not write to is another one in each call: ``g0`` is that
of the first set; what stands for it in ``desc`` is written anew.

If every ``g`` is a plain ndarray of the right type, aligned, C-contiguous and of its set's size,
and every counter (a float32) holds the count, the sets are done in their order, each counter is one
more, and ``desc`` is returned; otherwise nothing is done and None is returned.
"""

from __future__ import annotations

from ..lang.kernel import ITEMSIZE, Array, Kernel
from .wrap import DESCR, DTYPES, FIRST_DTYPE, FLAGS, NDARRAY, NONE, READABLE, SIZE, TYPE, Wrapper

HEAD = 2  # words before the scalars


def given(kernel: Kernel) -> int:
    """Which of the arrays comes with the call."""
    (found,) = [i for i, a in enumerate(kernel.arrays) if not a.writes]
    return found


def width(kernel: Kernel) -> int:
    """Words of a set."""
    return 2 + len(kernel.arrays)


def wrappers(kernel: Kernel, signature: list[str]) -> list[str]:
    """The text of ``many`` for a ``core`` of this signature."""
    return [SIZE, _Many(kernel, signature).write()]


class _Many(Wrapper):
    before = "looked"

    def write(self) -> str:
        self.begin("many")
        self.desc = self.read("ptr", "%args", 0)
        self.at = self.read("ptr", self.desc, 16)
        self.sets = self.read("i64", self.at, 0)
        self.told = self.read("double", self.at, 8)
        self.counted = self.op(f"fptrunc double {self.told} to float")
        needed = self.op(f"add i64 {self.sets}, 1")
        right = self.op(f"icmp eq i64 %nargs, {needed}")
        self.lines.append(f"  br i1 {right}, label %look, label %refuse")
        self._look()
        self.release("%sum")
        self._go()
        self.acquire()
        self.give(self.desc)
        self.label("refuse")
        self.give(self.slot("ptr", NONE))
        return self.text()

    def _set(self, k: str) -> str:
        """Where set ``k`` begins."""
        start = 8 * (HEAD + len(self.kernel.scalars))
        far = self.op(f"mul i64 {k}, {8 * width(self.kernel)}")
        far = self.op(f"add i64 {far}, {start}")
        return self.op(f"getelementptr i8, ptr {self.at}, i64 {far}")

    def _look(self) -> None:
        """Check all arrays and counters before anything is written."""
        kernel = self.kernel
        which = given(kernel)
        array = kernel.arrays[which]
        self.label("look")
        self.lines += [
            "  %k = phi i64 [ 0, %entry ], [ %k.next, %fits ]",
            "  %sum = phi i64 [ 0, %entry ], [ %sum.next, %fits ]",
        ]
        more = self.op(f"icmp slt i64 %k, {self.sets}")
        self.lines.append(f"  br i1 {more}, label %type, label %looked")
        self.label("type")
        far = self.op("mul i64 %k, 8")
        obj = self.read("ptr", "%args", self.op(f"add i64 {far}, 8"))
        kind = self.op(f"icmp eq i64 {self.read('i64', obj, TYPE)}, {self.slot('i64', NDARRAY)}")
        self.lines.append(f"  br i1 {kind}, label %header, label %refuse")
        self.label("header")
        base = self._set("%k")
        total = self.read("i64", base, 0)
        descr = self.slot("i64", FIRST_DTYPE + DTYPES.index(array.dtype))
        flags = self.op(f"and i32 {self.read('i32', obj, FLAGS)}, {READABLE}")
        checks = [
            self.op(f"icmp eq i64 {self.read('i64', obj, DESCR)}, {descr}"),
            self.op(f"icmp eq i32 {flags}, {READABLE}"),
            self.op(f"icmp eq i64 {self.op(f'call i64 @size(ptr {obj})')}, {total}"),
            self._counter_holds(base),
        ]
        self.lines.append(f"  br i1 {self.all(checks)}, label %fits, label %refuse")
        self.label("fits")
        place = self.op(f"getelementptr i8, ptr {base}, i64 {8 * (2 + which)}")
        self.lines += [
            f"  store ptr {self.read('ptr', obj, 16)}, ptr {place}",
            "  %k.next = add i64 %k, 1",
            f"  %sum.next = add i64 %sum, {total}",
            "  br label %look",
        ]
        self.label("looked")

    def _counter_holds(self, base: str) -> str:
        counter = self.read("ptr", base, 8)
        none = self.op(f"icmp eq ptr {counter}, null")
        safe = self.op(f"select i1 {none}, ptr {self.at}, ptr {counter}")
        now = self.op(f"load float, ptr {safe}")
        same = self.op(f"fcmp oeq float {now}, {self.counted}")
        return self.op(f"or i1 {none}, {same}")

    def _go(self) -> None:
        """Run the sets, one after the other."""
        kernel = self.kernel
        scalars = [self.read("double", self.at, 8 * (HEAD + i)) for i in range(len(kernel.scalars))]
        after = self.op(f"fadd float {self.counted}, 1.0")
        self.lines.append("  br label %go")
        self.label("go")
        self.lines.append("  %j = phi i64 [ 0, %run ], [ %j.next, %next ]")
        more = self.op(f"icmp slt i64 %j, {self.sets}")
        self.lines.append(f"  br i1 {more}, label %set, label %done")
        self.label("set")
        base = self._set("%j")
        values = ["%functions", "1", self.read("i64", base, 0)]
        for i, array in enumerate(kernel.arrays):
            values += [self.read("ptr", base, 8 * (2 + i)), "0", str(ITEMSIZE[array.dtype])]
        kinds = [s.split()[0] for s in self.signature]
        inside = ", ".join(f"{k} {v}" for k, v in zip(kinds, values + scalars))
        self.lines.append(f"  call void @core({inside})")
        counter = self.read("ptr", base, 8)
        none = self.op(f"icmp eq ptr {counter}, null")
        self.lines.append(f"  br i1 {none}, label %next, label %counts")
        self.label("counts")
        self.lines += [f"  store float {after}, ptr {counter}", "  br label %next"]
        self.label("next")
        self.lines += ["  %j.next = add i64 %j, 1", "  br label %go"]
        self.label("done")


def fits(kernel: Kernel) -> bool:
    """Whether a kernel can be called so."""
    apart = [p for p in kernel.params if isinstance(p, Array) and not p.writes]
    return kernel.flat and len(apart) == 1 and all(a.space == "full" for a in kernel.arrays)


__all__ = ["HEAD", "fits", "given", "width", "wrappers"]
