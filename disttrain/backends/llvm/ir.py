"""Kernels as LLVM IR text.

``module(kernel, access, target)`` gives a module with two functions that Python can call as
built-in functions: ``fast`` takes contiguous ndarrays and floats, checks them and runs; ``general``
takes a description of any strides (``wrap.py`` writes both). Both call ``core``, two nested loops
over rows and columns, written here. The vector instructions are explicit, so nothing depends on
what an optimizer recognizes; the last columns are done under a mask.

``access`` says how each array moves along a row: ``c`` consecutive elements, ``b`` one element for
the whole row, ``s`` any stride. This file only writes text: it does not load LLVM.
"""

from __future__ import annotations

from collections.abc import Callable

from ..lang.expr import Expr, const, walk
from ..lang.kernel import (
    COMPUTE,
    FLOATS,
    ITEMSIZE,
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Store,
    Types,
    copies_of,
    resolve,
)
from . import row_sums
from .emit import LL, STORED, Emitter, Target, constant
from .wrap import wrappers

_ZERO = const(0.0)


def default_access(kernel: Kernel) -> dict[str, str]:
    """How arrays move along a row when all are contiguous."""
    return {a.name: "c" if a.space in ("full", "col") else "b" for a in kernel.arrays}


Wrap = Callable[[Kernel, list[str]], list[str]]


def module(kernel: Kernel, access: dict[str, str], target: Target, wrap: Wrap = wrappers) -> str:
    """The whole module as text. ``wrap``: what makes the functions that call ``core``."""
    core = Core(kernel, access, target)
    body = core.write()
    parts = [body, *wrap(kernel, core.signature()), *sorted(core.e.declarations)]
    width = max(256, target.vector_bits)
    attributes = f'"min-legal-vector-width"="{width}" "prefer-vector-width"="{width}" nounwind'
    return "\n".join(parts) + f"\n\nattributes #0 = {{ {attributes} }}\n"


def lanes_of(kernel: Kernel) -> int:
    """Lanes of every vector: 16 if some array has elements of at most four bytes, else 8."""
    narrow = any(ITEMSIZE[a.dtype] <= 4 and a.dtype != "bool" for a in kernel.arrays)
    return 16 if narrow else 8


class Core:
    """Writes ``core(functions, rows, cols, [array, row stride, column stride]..., scalars...)``.
    Behind the strides of a cyclic array is the number of its rows."""

    def __init__(self, kernel: Kernel, access: dict[str, str], target: Target) -> None:
        self.kernel, self.access = kernel, access
        self.e = Emitter(lanes_of(kernel), target)
        self.types = Types(kernel)
        self.arrays = {a.name: (i, a) for i, a in enumerate(kernel.arrays)}
        self.row: dict[Expr, str] = {}  # values that hold for the whole row
        self.cols: dict[Expr, str] = {}  # values at the current columns
        self.at = ""  # the current column
        self.mask = ""  # lanes inside the row; empty: all
        self.block = "entry"
        self.loops = 0

    def signature(self) -> list[str]:
        """The parameters of ``core`` as (type, name) text."""
        out = ["ptr %functions", "i64 %rows", "i64 %cols"]
        for i, a in self.arrays.values():
            out += [f"ptr %a{i}", f"i64 %a{i}.rs", f"i64 %a{i}.cs"]
            out += [f"i64 %a{i}.n"] if a.cyclic else []
        return out + [f"double %s{i}" for i in range(len(self.kernel.scalars))]

    def write(self) -> str:
        e = self.e
        self._scalars()
        e.lines += [
            "  br label %row",
            "row:",
            "  %r = phi i64 [ 0, %entry ], [ %r.next, %REPLACE ]",
        ]
        for i, a in self.arrays.values():
            line = e.op(f"udiv i64 %r, {a.every}") if a.every else "%r"
            line = e.op(f"urem i64 %r, %a{i}.n") if a.cyclic else line
            e.lines.append(f"  %a{i}.off = mul i64 {line}, %a{i}.rs")
            e.lines.append(f"  %a{i}.row = getelementptr i8, ptr %a{i}, i64 %a{i}.off")
        self.block = "row"
        for step in self.kernel.steps:
            self._step(step)
        e.lines += [
            "  %r.next = add i64 %r, 1",
            "  %r.more = icmp slt i64 %r.next, %rows",
            "  br i1 %r.more, label %row, label %end",
            "end:",
            "  ret void",
        ]
        text = "\n".join(e.lines).replace("%REPLACE", f"%{self.block}")
        head = f"define internal void @core({', '.join(self.signature())}) #0 {{\nentry:\n"
        return f"{head}{text}\n}}\n"

    def _scalars(self) -> None:
        e = self.e
        for i, s in enumerate(self.kernel.scalars):
            kind, name = COMPUTE[s.dtype], f"%s{i}"
            if kind == "float32":
                name = e.op(f"fptrunc double {name} to float")
            elif kind != "float64":
                name = e.op(f"fptosi double {name} to {LL[kind]}")
            self.row[Expr("var", (), s.name)] = e.broadcast(name, LL[kind])

    def _step(self, step: Loop | Let | Put) -> None:
        if isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, Let):
            name = Expr("var", (), step.name)
            value, kind = self._value(step.value)
            self.types.names[step.name] = kind
            self.row[name] = value
        else:
            self._put(step)

    def _put(self, s: Put) -> None:
        i, array = self.arrays[s.array]
        e, kind = self.e, COMPUTE[array.dtype]
        value = self._value(s.value, kind)[0]
        if s.add:
            value = self._sum(self._row_load(i, array), value, kind)
        stored = STORED[array.dtype]
        narrow = e.narrow(value, array.dtype)
        one = e.op(f"extractelement <{e.lanes} x {stored}> {narrow}, i64 0")
        e.lines.append(f"  store {stored} {one}, ptr %a{i}.row, align {ITEMSIZE[array.dtype]}")
        for expr in [x for x in self.row if any(n.attr == s.array for n in walk(x))]:
            del self.row[expr]  # computed from what the array held before

    def _sum(self, a: str, b: str, kind: str) -> str:
        return self.e.op(f"{'fadd' if kind in FLOATS else 'add'} {self.e.vec(kind)} {a}, {b}")

    # -- values ----------------------------------------------------------------------------------

    def _value(self, expr: Expr, kind: str = "") -> tuple[str, str]:
        """The vector that holds ``expr`` and its type (``kind`` where one is asked for)."""
        for node in walk(expr):
            self._node(node)
        own = resolve(self.types[expr])
        kind = kind or own
        if expr.op == "const":
            return self.e.splat(expr.attr, kind), kind
        return self.e.convert(self._known(expr), own, kind), kind

    def _known(self, node: Expr) -> str:
        return self.row[node] if node in self.row else self.cols[node]

    def _node(self, node: Expr) -> None:
        if node.op == "const" or node in self.row or node in self.cols:
            return
        values = self.row if self._holds(node) else self.cols
        if node.op == "var":
            values[node] = self._element(*self.arrays[node.attr])
        elif node.op == "index":
            values[node] = self._positions()
        elif node.op == "load":
            values[node] = self._load(node)
        else:
            args = [a.attr if a.op == "const" else self._known(a) for a in node.args]
            kinds = [resolve(self.types[a]) for a in node.args]
            values[node] = self.e.node(node, args, kinds, self.types)

    def _holds(self, node: Expr) -> bool:
        """Whether ``node`` is the same for all columns, so that it is computed before a loop."""
        return not self.at or not self._moves(node)

    def _moves(self, expr: Expr) -> bool:
        return any(
            n.op == "index" or (n.op == "var" and self.access.get(n.attr, "b") != "b")
            for n in walk(expr)
            if n not in self.row
        )

    def _row_load(self, i: int, array: Array) -> str:
        stored = STORED[array.dtype]
        one = self.e.op(f"load {stored}, ptr %a{i}.row, align {ITEMSIZE[array.dtype]}")
        return self.e.widen(self.e.broadcast(one, stored), array.dtype)

    def _element(self, i: int, array: Array) -> str:
        if self.access[array.name] == "b":
            return self._row_load(i, array)
        e, stored, size = self.e, STORED[array.dtype], ITEMSIZE[array.dtype]
        t = f"<{e.lanes} x {stored}>"
        where = self._address(i, array)
        if self.access[array.name] == "s":
            got = self._masked("gather", t, f"<{e.lanes} x ptr>", where, size)
        elif self.mask:
            got = self._masked("load", t, "ptr", where, size)
        else:
            got = e.op(f"load {t}, ptr {where}, align {size}")
        return e.widen(got, array.dtype)

    def _address(self, i: int, array: Array) -> str:
        """Where the current columns are: a pointer, or a vector of them for a strided array."""
        e = self.e
        if self.access[array.name] == "c":
            stored = STORED[array.dtype]
            return e.op(f"getelementptr {stored}, ptr %a{i}.row, i64 {self.at}")
        step = e.broadcast(f"%a{i}.cs", "i64")
        offsets = e.op(f"mul {e.vec('int64')} {self._positions()}, {step}")
        return e.op(f"getelementptr i8, ptr %a{i}.row, {e.vec('int64')} {offsets}")

    def _masked(self, how: str, t: str, kind: str, where: str, align: int) -> str:
        """Load (or gather, from a vector of pointers) the lanes of the mask; zero in the others."""
        e = self.e
        mask = self.mask or "splat (i1 true)"
        pointer = f"v{e.lanes}p0" if how == "gather" else "p0"
        name = f"@llvm.masked.{how}.{_suffix(t)}.{pointer}"
        e.declarations.add(f"declare {t} {name}({kind}, i32, {e.b}, {t})")
        inside = f"{kind} {where}, i32 {align}, {e.b} {mask}, {t} zeroinitializer"
        return e.op(f"call {t} {name}({inside})")

    def _positions(self) -> str:
        e = self.e
        lanes = ", ".join(f"i64 {k}" for k in range(e.lanes))
        start = e.broadcast(self.at, "i64")
        return e.op(f"add {e.vec('int64')} {start}, <{lanes}>")

    def _load(self, node: Expr) -> str:
        """One element of the row at a computed position; nan (or 0) where out of range."""
        i, array = self.arrays[node.attr]
        e, stored, size = self.e, STORED[array.dtype], ITEMSIZE[array.dtype]
        position = self._value(node.args[0], "int64")[0]
        at = e.op(f"extractelement {e.vec('int64')} {position}, i64 0")
        inside = e.op(f"icmp ult i64 {at}, %cols")
        safe = e.op(f"select i1 {inside}, i64 {at}, i64 0")
        step = str(size) if self.access[array.name] == "c" else f"%a{i}.cs"
        offset = e.op(f"mul i64 {safe}, {step}")
        pointer = e.op(f"getelementptr i8, ptr %a{i}.row, i64 {offset}")
        one = e.op(f"load {stored}, ptr {pointer}, align {size}")
        value = e.widen(e.broadcast(one, stored), array.dtype)
        kind = COMPUTE[array.dtype]
        outside = e.splat(float("nan") if kind in FLOATS else 0, kind)
        return e.select(e.broadcast(inside, "i1"), value, outside, kind)

    # -- loops -----------------------------------------------------------------------------------

    def _loop(self, step: Loop) -> None:
        self.loops += 1
        e, name = self.e, f"l{self.loops}"
        reduces = [s for s in step.body if isinstance(s, Reduce)]
        unroll = copies_of(step)
        wide = e.lanes * unroll
        self._hoist(step)
        kinds = {s.name: resolve(self.types[s.value]) for s in reduces}
        start = {s.name: _identity(s.op, kinds[s.name]) for s in reduces}
        blocks = None
        if row_sums.needed(step, kinds):
            blocks = row_sums.Blocks(e, name, list(kinds), wide)
        before, main = self.block, f"{name}.main"
        e.lines += [
            f"  %{name}.end = and i64 %cols, -{wide}",
            f"  %{name}.any = icmp sgt i64 %{name}.end, 0",
            f"  br i1 %{name}.any, label %{blocks.begin if blocks else main}, label %{name}.mid",
        ]
        if blocks:
            blocks.start(before)
        made = self._main(step, name, unroll, kinds, start, blocks.begin if blocks else before)
        if blocks:
            blocks.close({r: [made[r, u] for u in range(unroll)] for r in kinds})
            main = blocks.end
        e.lines.append(f"{name}.mid:")
        e.lines.append(f"  %{name}.from = phi i64 [ 0, %{before} ], [ %{name}.next, %{main} ]")
        sums = self._combine(reduces, name, unroll, kinds, start, made, (before, main))
        done = self._tail(step, name, kinds, sums)
        self.block = f"{name}.whole" if blocks else f"{name}.done"
        done = blocks.join(done) if blocks else done
        self.at = self.mask = ""
        for s in reduces:
            self.types.names[s.name] = kinds[s.name]
            total = self._across(s.op, done[s.name], kinds[s.name])
            self.row[Expr("var", (), s.name)] = total

    def _hoist(self, step: Loop) -> None:
        """Compute what does not move with the column before the loop."""
        written = {s.array for s in step.body if isinstance(s, Store)}
        for s in step.body:
            for node in walk(s.value):
                reads = {n.attr for n in walk(node) if n.op in ("var", "load")}
                if node.op != "const" and not self._moves(node) and not reads & written:
                    self._node(node)

    def _main(
        self,
        step: Loop,
        name: str,
        unroll: int,
        kinds: dict[str, str],
        start: dict[str, str],
        before: str,
    ) -> dict[tuple[str, int], str]:
        """The loop over whole vectors; returns the name of each partial result."""
        e = self.e
        whole = before.endswith(".block")
        first, stop, end = (f"%{name}.first", "stop", "behind") if whole else ("0", "end", "mid")
        e.lines += [
            f"{name}.main:",
            f"  %{name}.i = phi i64 [ {first}, %{before} ], [ %{name}.next, %{name}.main ]",
        ]
        here = len(e.lines)
        results: dict[tuple[str, int], str] = {}
        self.mask = ""
        for u in range(unroll):
            self.at = e.op(f"add i64 %{name}.i, {u * e.lanes}") if u else f"%{name}.i"
            accumulators = {r: f"%{name}.{r}.{u}" for r in kinds}
            for r, value in self._body(step, accumulators, kinds).items():
                results[r, u] = value
        phis = [
            f"  %{name}.{r}.{u} = phi {e.vec(kinds[r])} [ {start[r]}, %{before} ], "
            f"[ {value}, %{name}.main ]"
            for (r, u), value in results.items()
        ]
        e.lines[here:here] = phis
        e.lines += [
            f"  %{name}.next = add i64 %{name}.i, {e.lanes * unroll}",
            f"  %{name}.more = icmp slt i64 %{name}.next, %{name}.{stop}",
            f"  br i1 %{name}.more, label %{name}.main, label %{name}.{end}",
        ]
        return results

    def _combine(
        self,
        reduces: list[Reduce],
        name: str,
        unroll: int,
        kinds: dict[str, str],
        start: dict[str, str],
        main: dict[tuple[str, int], str],
        ways: tuple[str, str],
    ) -> dict[str, str]:
        """One partial result per reduction, from those of the unrolled copies. ``ways``:
        the blocks that lead here past the main loop and behind it."""
        e, phis = self.e, {}
        for s in reduces:
            for u in range(unroll):
                phis[s.name, u] = e.op(
                    f"phi {e.vec(kinds[s.name])} [ {start[s.name]}, %{ways[0]} ], "
                    f"[ {main[s.name, u]}, %{ways[1]} ]"
                )
        out = {}
        for s in reduces:
            total = phis[s.name, 0]
            for u in range(1, unroll):
                total = self._fold(s.op, total, phis[s.name, u], kinds[s.name])
            out[s.name] = total
        return out

    def _tail(
        self, step: Loop, name: str, kinds: dict[str, str], sums: dict[str, str]
    ) -> dict[str, str]:
        """The columns that are left, one vector at a time under a mask."""
        e = self.e
        e.lines += [
            f"  %{name}.left = icmp slt i64 %{name}.from, %cols",
            f"  br i1 %{name}.left, label %{name}.tail, label %{name}.done",
            f"{name}.tail:",
            f"  %{name}.j = phi i64 [ %{name}.from, %{name}.mid ], [ %{name}.jn, %{name}.tail ]",
        ]
        here = len(e.lines)
        remaining = e.op(f"sub i64 %cols, %{name}.j")
        short = e.op(f"trunc i64 {remaining} to i32")
        order = ", ".join(f"i32 {k}" for k in range(e.lanes))
        self.mask = e.op(f"icmp sgt {e.vi} {e.broadcast(short, 'i32')}, <{order}>")
        self.at = f"%{name}.j"
        results = self._body(step, {r: f"%{name}.{r}.t" for r in kinds}, kinds)
        e.lines[here:here] = [
            f"  %{name}.{r}.t = phi {e.vec(kinds[r])} [ {sums[r]}, %{name}.mid ], "
            f"[ {results[r]}, %{name}.tail ]"
            for r in kinds
        ]
        e.lines += [
            f"  %{name}.jn = add i64 %{name}.j, {e.lanes}",
            f"  %{name}.again = icmp slt i64 %{name}.jn, %cols",
            f"  br i1 %{name}.again, label %{name}.tail, label %{name}.done",
            f"{name}.done:",
        ]
        return {
            r: e.op(
                f"phi {e.vec(kinds[r])} [ {sums[r]}, %{name}.mid ], [ {results[r]}, %{name}.tail ]"
            )
            for r in kinds
        }

    def _body(
        self, step: Loop, accumulators: dict[str, str], kinds: dict[str, str]
    ) -> dict[str, str]:
        """The statements at the current columns; returns the new value of each accumulator."""
        self.cols = {}
        out: dict[str, str] = {}
        writes = []
        for s in step.body:
            if isinstance(s, Store):
                writes.append((s, self._stored_value(s)))
                continue
            kind = kinds[s.name]
            if s.op == "sum" and s.value.op == "fma" and s.value.args[2] == _ZERO:
                out[s.name] = self._fused(s, accumulators[s.name], kind)
                continue
            value = self._value(s.value, kind)[0]
            if self.mask:
                value = self.e.select(self.mask, value, _identity(s.op, kind), kind)
            out[s.name] = self._fold(s.op, accumulators[s.name], value, kind)
        for s, value in writes:
            self._store(s, value)
        return out

    def _fused(self, s: Reduce, total: str, kind: str) -> str:
        """``total`` plus ``a * b`` of ``fma(a, b, 0)``, rounded once."""
        a, b = (self._value(part, kind)[0] for part in s.value.args[:2])
        value = self.e.fma(a, b, total, kind)
        return self.e.select(self.mask, value, total, kind) if self.mask else value

    def _stored_value(self, s: Store) -> str:
        i, array = self.arrays[s.array]
        kind = COMPUTE[array.dtype]
        value = self._value(s.value, kind)[0]
        return self._sum(self._element(i, array), value, kind) if s.add else value

    def _store(self, s: Store, value: str) -> None:
        i, array = self.arrays[s.array]
        e, size = self.e, ITEMSIZE[array.dtype]
        narrow, where = e.narrow(value, array.dtype), self._address(i, array)
        t = f"<{e.lanes} x {STORED[array.dtype]}>"
        if self.access[array.name] == "c" and not self.mask:
            e.lines.append(f"  store {t} {narrow}, ptr {where}, align {size}")
            return
        strided = self.access[array.name] == "s"
        kind = f"<{e.lanes} x ptr>" if strided else "ptr"
        name = f"@llvm.masked.{'scatter' if strided else 'store'}.{_suffix(t)}."
        name += f"v{e.lanes}p0" if strided else "p0"
        e.declarations.add(f"declare void {name}({t}, {kind}, i32, {e.b})")
        mask = self.mask or "splat (i1 true)"
        inside = f"{t} {narrow}, {kind} {where}, i32 {size}, {e.b} {mask}"
        e.lines.append(f"  call void {name}({inside})")

    def _fold(self, op: str, total: str, value: str, kind: str) -> str:
        if op == "sum":
            return self._sum(total, value, kind)
        return self.e.extreme(op, total, value, kind)

    def _across(self, op: str, x: str, kind: str) -> str:
        """Fold the lanes in a butterfly, which leaves the same result in each of them."""
        e, step = self.e, self.e.lanes // 2
        t = e.vec(kind)
        while step:
            pick = ", ".join(f"i32 {k ^ step}" for k in range(e.lanes))
            other = e.op(f"shufflevector {t} {x}, {t} poison, <{e.lanes} x i32> <{pick}>")
            x = self._fold(op, x, other, kind)
            step //= 2
        return x


def _suffix(t: str) -> str:
    """``<16 x float>`` as it is written in the name of an intrinsic: ``v16f32``."""
    lanes, kind = t.strip("<>").split(" x ")
    return f"v{lanes}" + {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)


def _identity(op: str, kind: str) -> str:
    """What changes nothing under the reduction, as a constant vector."""
    if op == "sum":
        value: float = -0.0 if kind in FLOATS else 0
    elif kind in FLOATS:
        value = float("inf") if op == "min" else -float("inf")
    else:
        bits = 31 if kind == "int32" else 63
        value = 2**bits - 1 if op == "min" else -(2**bits)
    return f"splat ({LL[kind]} {constant(value, kind)})"
