"""Flat kernels as CUDA C: one function per loop, and one for what stands between loops.

Threads go over the elements in strides of the grid. Folds leave one partial result per block in
scratch memory, at ``part``; ``finish`` folds these, in one block, computes the row values that
follow, keeps them at ``vals`` for the next loop, and writes what ``Put`` says.
"""

from __future__ import annotations

from ...lang.expr import Expr, walk
from ...lang.kernel import COMPUTE, Array, Kernel, Let, Loop, Put, Reduce
from .forms import C_STORED, C_TYPES, MOST, THREADS, Field, Form
from .loops import Body, axis_fields, fold_type, identity, nan, offsets


class _Elements(Body):
    """Where the elements of a flat kernel's arrays are."""

    def _arguments(self) -> list[Field]:
        """The arrays and how far they go."""
        fields = [Field(f"p{i}", "u64") for i in range(len(self.arrays))]
        for i, a in enumerate(self.kernel.arrays):
            self.say(
                f"{C_STORED[a.dtype]}* const p{i} = ({C_STORED[a.dtype]}*)a.p{i};  // {a.name}"
            )
        self.say(f"const {self.index_type} n = ({self.index_type})a.n;")
        fields += [Field("n", "u64"), *axis_fields(self.form, [i for i, _ in self.full_arrays()])]
        return fields

    def moving(self, array: Array) -> bool:
        return array.space == "full"

    def full_arrays(self) -> list[tuple[int, Array]]:
        return [(i, a) for i, a in self.arrays.values() if a.space == "full"]

    def locate(self, names: list[str]) -> list[str]:
        numbered = [self.arrays[n] for n in names]
        lines = offsets(numbered, self.form.dims, self.form, "at + j")
        return lines + [f"char* const e{i} = (char*)p{i} + o{i};" for i, _ in numbered]

    def loaded(self, node: Expr) -> str:
        i, array = self.arrays[node.attr]
        at = self.value(node.args[0], "int64")[0]
        kind = COMPUTE[array.dtype]
        inside = self.fresh("bool", f"(dt_u64){at} < (dt_u64)n")
        outside = nan(kind)
        if self.form.dims:
            self.count += 1
            name = f"l{self.count}"
            self.say(f"const char* {name} = 0;", f"if ({inside}) {{")
            self.say(*offsets([(i, array)], self.form.dims, self.form, f"({self.index_type}){at}"))
            self.say(f"{name} = (const char*)p{i} + o{i};", "}")
            element = f"*(const {C_STORED[array.dtype]}*){name}"
        else:
            element = f"p{i}[{at}]"
        return f"{inside} ? dt_from_{array.dtype}({element}) : {outside}"


class Flat(_Elements):
    """Forms ``flat`` and ``many``."""

    def write(self) -> list[Field]:
        step = self.kernel.steps[self.form.step]
        assert isinstance(step, Loop)
        many = self.form.kind == "many"
        fields = self._many() if many else self._one()
        fields += self.scalars()
        fields += self._row_values(step)
        folds = self.begin_folds(step)
        self.hoist(
            [s.value for s in step.body], {s.array for s in step.body if not isinstance(s, Reduce)}
        )
        self._walk(step, many)
        if folds:
            fields.append(Field("part", "u64"))
            self._leave_parts(folds)
        return fields

    def _one(self) -> list[Field]:
        fields = self._arguments()
        if not self.form.dims:
            self._whole([f"a.p{i}" for i, _ in self.full_arrays()])
        return fields

    def _many(self) -> list[Field]:
        """A block belongs to one of the sets of arrays, the last whose ``start`` is not beyond."""
        self.say("int low = 0, high = (int)a.count;")
        self.say("while (high - low > 1) {", "const int middle = (low + high) >> 1;")
        self.say("if (a.start[middle] <= blockIdx.x) low = middle; else high = middle;", "}")
        for i, a in enumerate(self.kernel.arrays):
            kind = C_STORED[a.dtype]
            self.say(f"{kind}* const p{i} = ({kind}*)a.p{i}[low];  // {a.name}")
        self.say(f"const {self.index_type} n = ({self.index_type})a.n[low];")
        self._whole([f"a.p{i}[low]" for i in range(len(self.arrays))])
        fields = [Field(f"p{i}", "u64", MOST) for i in range(len(self.arrays))]
        return [
            *fields,
            Field("n", "u64", MOST),
            Field("start", "u32", MOST + 1),
            Field("count", "u32"),
        ]

    def _whole(self, pointers: list[str]) -> None:
        self.say(f"const bool whole = (({' | '.join(pointers)}) & 15) == 0;")

    def _row_values(self, step: Loop) -> list[Field]:
        """Take the row values that the loop needs from scratch memory."""
        used = [n.attr for s in step.body for n in walk(s.value) if n.op == "var"]
        used = [n for n in dict.fromkeys(used) if n in self.slots]
        for name in used:
            kind = C_TYPES[self.types.names[name]]
            where = f"(const {kind}*)(a.vals + {self.slots[name]} * 8)"
            self.row[Expr("var", (), name)] = self.fresh(self.types.names[name], f"*{where}")
        return [Field("vals", "u64")] if used else []

    def _walk(self, step: Loop, many: bool) -> None:
        v, kind = self.form.vector, self.index_type
        block = f"({kind})blockIdx.x" if not many else "(blockIdx.x - a.start[low])"
        blocks = f"({kind})gridDim.x" if not many else "(a.start[low + 1] - a.start[low])"
        self.say(
            "#pragma unroll 1", f"for ({kind} i = {block} * {THREADS}u + threadIdx.x; i * {v} < n;"
        )
        self.say(f"     i += {blocks} * {THREADS}u) {{")
        self.say(
            f"const {kind} at = i * {v};", f"const int left = n - at < {v} ? (int)(n - at) : {v};"
        )
        self.elements(step)
        self.say("}")

    def place(self, array: str) -> str:
        return f"p{self.arrays[array][0]} + at"

    def _leave_parts(self, folds: list[tuple[Reduce, str]]) -> None:
        warps = THREADS // 32
        for s, kind in folds:
            self.say(f"__shared__ {C_TYPES[kind]} shared_{s.name}[1][{warps}];")
        self.block_fold([(s, kind, self.lanes(s, kind)) for s, kind in folds], warps, "0")
        self.say("if (threadIdx.x == 0) {")
        for k, (s, kind) in enumerate(folds):
            where = f"((dt_u64){k} * gridDim.x + blockIdx.x) * 8"
            self.say(f"*({C_TYPES[kind]}*)(a.part + {where}) = b_{s.name};")
        self.say("}")


class Finish(_Elements):
    """Form ``finish``: the steps from ``form.step`` on, up to the next loop."""

    def write(self) -> list[Field]:
        fields = [
            *self._arguments(),
            *self.scalars(),
            Field("vals", "u64"),
            Field("part", "u64"),
            Field("parts", "u32"),
        ]
        self._load_earlier()
        made: list[str] = []
        before = self.kernel.steps[self.form.step - 1] if self.form.step else None
        if isinstance(before, Loop):
            made += self._fold(before)
        for step in self.kernel.steps[self.form.step :]:
            if isinstance(step, Loop):
                break
            if isinstance(step, Let):
                name, kind = self.value(step.value)
                self.row[Expr("var", (), step.name)] = name
                made.append(step.name)
            else:
                self._put(step)
        self.say("if (threadIdx.x == 0) {")
        for name in dict.fromkeys(made):
            kind = C_TYPES[self.types.names[name]]
            value = self.row[Expr("var", (), name)]
            self.say(f"*({kind}*)(a.vals + {self.slots[name]} * 8) = {value};")
        self.say("}")
        return fields

    def _load_earlier(self) -> None:
        """Take row values of earlier steps from memory, where one of these steps reads them."""
        known = set()
        for step in self.kernel.steps[: max(self.form.step - 1, 0)]:
            body = step.body if isinstance(step, Loop) else (step,)
            known |= {s.name for s in body if isinstance(s, (Let, Reduce))}
        wanted: list[str] = []
        for step in self.kernel.steps[self.form.step :]:
            if isinstance(step, Loop):
                break
            wanted += [n.attr for n in walk(step.value) if n.op == "var"]
        for name in dict.fromkeys(wanted):
            if name in known:
                kind = self.types.names[name]
                where = f"(const {C_TYPES[kind]}*)(a.vals + {self.slots[name]} * 8)"
                self.row[Expr("var", (), name)] = self.fresh(kind, f"*{where}")

    def _fold(self, loop: Loop) -> list[str]:
        warps, made = THREADS // 32, []
        folds = []
        for k, s in enumerate(s for s in loop.body if isinstance(s, Reduce)):
            kind = fold_type(self.types.names[s.name])
            c = C_TYPES[kind]
            self.say(
                f"__shared__ {c} shared_{s.name}[1][{warps}];",
                f"{c} f_{s.name} = {identity(s.op, kind)};",
            )
            self.say(f"for (unsigned i = threadIdx.x; i < a.parts; i += {THREADS})")
            where = f"*(const {c}*)(a.part + ((dt_u64){k} * a.parts + i) * 8)"
            self.say(f"f_{s.name} = dt_fold_{s.op}::of(f_{s.name}, {where});")
            folds.append((s, kind, f"f_{s.name}"))
            made.append(s.name)
        if folds:
            self.block_fold(folds, warps, "0")
        for s, kind, _ in folds:
            self.result(s, kind, f"b_{s.name}")
        return made

    def _put(self, s: Put) -> None:
        i, array = self.arrays[s.array]
        kind = COMPUTE[array.dtype]
        value = self.value(s.value, kind)[0]
        if s.add:
            old = self.value(Expr("var", (), s.array), kind)[0]
            value = f"dt_add({old}, {value})"
        new = self.fresh(kind, f"dt_from_{array.dtype}(dt_to_{array.dtype}({value}))")
        self.say("__syncthreads();", f"if (threadIdx.x == 0) *p{i} = dt_to_{array.dtype}({new});")
        self.forget(s.array)
        self.row[Expr("var", (), s.array)] = new


def fold_rows(kernel: Kernel, form: Form) -> tuple[list[str], list[Field]]:
    """Form ``fold``: ``array[c] += parts[0][c] + parts[1][c] + ...``, a column per 8 threads, whose
    results are added in a tree. ``stride``: bytes between the array's elements."""
    array = next(a for a in kernel.arrays if a.name == form.array)
    kind = C_TYPES[COMPUTE[array.dtype]]
    fields = [Field("p0", "u64"), Field("part", "u64"), Field("cols", "u64")]
    fields += [Field("parts", "u32"), Field("stride", "i64")]
    lines = [
        f"__shared__ {kind} sums[8][33];",
        "const unsigned lane = threadIdx.x & 31, y = threadIdx.x >> 5;",
        "const dt_u64 c = (dt_u64)blockIdx.x * 32 + lane;",
        f"{kind} sum = 0;",
        "if (c < a.cols)",
        "#pragma unroll 4",
        "for (unsigned i = y; i < a.parts; i += 8)",
        f"sum = dt_add(sum, ((const {kind}*)a.part)[(dt_u64)i * a.cols + c]);",
        "sums[y][lane] = sum;",
        "__syncthreads();",
        "if (y == 0 && c < a.cols) {",
        f"{kind} s[8];",
        "for (int i = 0; i < 8; ++i) s[i] = sums[i][lane];",
        "sum = dt_lanes<dt_fold_sum, 8>(s);",
        f"{C_STORED[array.dtype]}* const to = ({C_STORED[array.dtype]}*)(a.p0 + c * a.stride);",
        f"*to = dt_to_{array.dtype}(dt_add(dt_from_{array.dtype}(*to), sum));",
        "}",
    ]
    return lines, fields
