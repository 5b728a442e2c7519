"""Row kernels as CUDA C: a team of threads for each row, one function for all steps.

A team is a warp, or a block where rows are long. It takes rows in strides of all teams. With
``items`` it keeps the elements that later loops read in registers, so that a row is read from
memory once; without, each loop reads it again. All threads of a team know all row values.

Sums over rows (``Put`` into a ``one`` array, ``Store`` into a ``col`` array, with ``add``) are
added up per team, in registers or, where rows are not kept, at the team's place in scratch memory;
form ``fold`` adds the teams' sums to the array. How many teams there are depends on the shape
alone.
"""

from __future__ import annotations

from ...lang.expr import Expr, walk
from ...lang.kernel import COMPUTE, Array, Kernel, Let, Loop, Put, Reduce, Store
from .forms import C_STORED, C_TYPES, Field, Form
from .loops import Body, axis_fields, nan, offsets


def kept_arrays(kernel: Kernel) -> list[str]:
    """The full arrays whose elements a loop reads after an earlier one has read or written them."""
    there, kept = set[str](), dict[str, None]()
    full = {a.name for a in kernel.arrays if a.space == "full"}
    for step in kernel.steps:
        if isinstance(step, Loop):
            reads = {n.attr for s in step.body for n in walk(s.value) if n.op == "var"} & full
            stores = {s.array for s in step.body if isinstance(s, Store)} & full
            adds = {s.array for s in step.body if isinstance(s, Store) and s.add} & full
            kept.update(dict.fromkeys(sorted((reads | adds) & there)))
            there |= reads | stores
    return list(kept)


def summed_arrays(kernel: Kernel) -> list[str]:
    """The arrays that sums over rows are added to."""
    statements = [
        s for step in kernel.steps for s in (step.body if isinstance(step, Loop) else (step,))
    ]
    spaces = {a.name: a.space for a in kernel.arrays}
    added = [s.array for s in statements if isinstance(s, (Store, Put)) and s.add]
    return [n for n in dict.fromkeys(added) if spaces[n] in ("col", "one") and not kernel.flat]


class Rows(Body):
    """Form ``rows``."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(kernel, form)
        self.kept = kept_arrays(kernel) if form.items else []
        self.summed = summed_arrays(kernel)
        self.loops = 0

    def write(self) -> list[Field]:
        fields = self._begin()
        form, kind = self.form, self.index_type
        folds = [s for step in self.kernel.steps if isinstance(step, Loop) for s in step.body]
        if form.team > 32:
            for s in folds:
                if isinstance(s, Reduce):
                    c = C_TYPES[
                        "int32" if self.types.names[s.name] == "bool" else self.types.names[s.name]
                    ]
                    self.say(f"__shared__ {c} shared_{s.name}[2][{form.team // 32}];")
            self.say("int turn = 0;")
        self._begin_sums()
        self.say(f"for ({kind} r = first; r < rows; r += teams) {{")
        self._row_places()
        for name in self.kept:
            i, array = self.arrays[name]
            self.say(f"{C_TYPES[COMPUTE[array.dtype]]} h{i}[{form.items}][{form.vector}];")
        for step in self.kernel.steps:
            if isinstance(step, Loop):
                self._loop(step)
            elif isinstance(step, Let):
                self.row[Expr("var", (), step.name)] = self.value(step.value)[0]
            else:
                self._put(step)
        if form.team > 32:
            self.say("turn ^= 1;")
        self.say("}")
        self._end_sums()
        return fields

    def _begin(self) -> list[Field]:
        form, kind = self.form, self.index_type
        fields = [Field(f"p{i}", "u64") for i in range(len(self.arrays))]
        self.say(f"const unsigned t = threadIdx.x % {form.team}u;")
        self.say(f"const {kind} teams = ({kind})gridDim.x * {form.teams}u;")
        self.say(
            f"const {kind} first = ({kind})blockIdx.x * {form.teams}u + threadIdx.x / {form.team}u;"
        )
        self.say(f"const {kind} rows = ({kind})a.rows, cols = ({kind})a.cols;")
        moving = [f"a.p{i}" for i, a in self.arrays.values() if self.moving(a)]
        if not form.dims:
            aligned = f"(({' | '.join(moving)}) & 15) == 0"
            self.say(f"const bool whole = {aligned} && cols % {form.vector} == 0;")
        fields += [Field("rows", "u64"), Field("cols", "u64")]
        fields += axis_fields(
            form, [i for i, a in self.arrays.values() if a.space in ("full", "row")]
        )
        if form.dims:
            wide = "i64" if form.wide else "i32"
            fields += [Field(f"c{i}", wide) for i, a in self.arrays.values() if self.moving(a)]
        fields += self.scalars()
        return fields + [Field(f"m{self.arrays[n][0]}", "u64") for n in self.summed]

    def _row_places(self) -> None:
        """``p{i}``: where the row begins (or its one element) in each array."""
        by_row = [(i, a) for i, a in self.arrays.values() if a.space in ("full", "row")]
        if self.form.dims:
            self.say(*offsets(by_row, self.form.dims, self.form, "r"))
        for i, a in self.arrays.values():
            stored = C_STORED[a.dtype]
            if self.form.dims:
                offset = f" + o{i}" if a.space in ("full", "row") else ""
                self.say(f"{stored}* const p{i} = ({stored}*)((char*)a.p{i}{offset});  // {a.name}")
            else:
                offset = {"full": " + (dt_i64)r * cols", "row": " + r"}.get(a.space, "")
                self.say(f"{stored}* const p{i} = ({stored}*)a.p{i}{offset};  // {a.name}")
        for expr in [x for x in self.row if self._belongs_to_row(x)]:
            del self.row[expr]

    def _belongs_to_row(self, x: Expr) -> bool:
        return x.op != "var" or x.attr not in {s.name for s in self.kernel.scalars}

    # -- loops -------------------------------------------------------------------------------------

    def _loop(self, step: Loop) -> None:
        form, v, kind = self.form, self.form.vector, self.index_type
        written = {s.array for s in step.body if isinstance(s, Store)}
        self.hoist([s.value for s in step.body], written)
        folds = self.begin_folds(step)
        if form.items:
            self.say("#pragma unroll", f"for (int k = 0; k < {form.items}; ++k) {{")
            self.say(f"const {kind} at = ({kind})(k * {form.team} + t) * {v}u;")
            self.say(f"const int left = at >= cols ? 0 : cols - at < {v} ? (int)(cols - at) : {v};")
        else:
            self.say(
                "#pragma unroll 1",
                f"for ({kind} at = t * {v}u; at < cols; at += {form.team * v}u) {{",
            )
            self.say(f"const int left = cols - at < {v} ? (int)(cols - at) : {v};")
        self.elements(step)
        self.say("}")
        if folds and form.team == 32:
            for s, c in folds:
                value = f"dt_warp<dt_fold_{s.op}, {C_TYPES[c]}>({self.lanes(s, c)})"
                self.result(s, c, value)
        elif folds:
            own = [(s, c, self.lanes(s, c)) for s, c in folds]
            self.block_fold(own, form.team // 32, "turn")
            for s, c in folds:
                self.result(s, c, f"b_{s.name}")
        if written & self._loaded_later(step):
            self.say("__syncwarp();" if form.team == 32 else "__syncthreads();")

    def _loaded_later(self, step: Loop) -> set[str]:
        later = self.kernel.steps[self.kernel.steps.index(step) + 1 :]
        values = [s.value for x in later for s in (x.body if isinstance(x, Loop) else (x,))]
        return {n.attr for value in values for n in walk(value) if n.op == "load"}

    def keeps(self, array: str) -> bool:
        return array in self.kept

    def place(self, array: str) -> str:
        return f"p{self.arrays[array][0]} + at"

    def locate(self, names: list[str]) -> list[str]:
        kind = self.offset_type
        return [
            f"char* const e{i} = (char*)p{i} + ({kind})(at + j) * a.c{i};"
            for i, _ in (self.arrays[n] for n in names)
        ]

    def loaded(self, node: Expr) -> str:
        i, array = self.arrays[node.attr]
        at = self.value(node.args[0], "int64")[0]
        kind = COMPUTE[array.dtype]
        inside = self.fresh("bool", f"(dt_u64){at} < (dt_u64)cols")
        element = f"p{i}[{at}]"
        if self.form.dims:
            element = f"*(const {C_STORED[array.dtype]}*)((const char*)p{i} + {at} * a.c{i})"
        return f"{inside} ? dt_from_{array.dtype}({element}) : {nan(kind)}"

    # -- row values and sums over rows -------------------------------------------------------------

    def _put(self, s: Put) -> None:
        i, array = self.arrays[s.array]
        kind = COMPUTE[array.dtype]
        value = self.value(s.value, kind)[0]
        if s.array in self.summed:
            self.say(f"m{i} = dt_add(m{i}, {value});")
            return
        if s.add:
            old = self.value(Expr("var", (), s.array), kind)[0]
            value = f"dt_add({old}, {value})"
        new = self.fresh(kind, f"dt_from_{array.dtype}(dt_to_{array.dtype}({value}))")
        leader = "t == 0" if array.space == "row" or self.kernel.flat else "t == 0 && r == rows - 1"
        if s.add:  # all threads have read what was there
            self.say("__syncwarp();" if self.form.team == 32 else "__syncthreads();")
        self.say(f"if ({leader}) *p{i} = dt_to_{array.dtype}({new});")
        self.forget(s.array)
        self.row[Expr("var", (), s.array)] = new

    def _begin_sums(self) -> None:
        for name in self.summed:
            i, array = self.arrays[name]
            kind = C_TYPES[COMPUTE[array.dtype]]
            if array.space == "one":
                self.say(f"{kind} m{i} = 0;")
            elif self.form.items:
                self.say(f"{kind} m{i}[{self.form.items}][{self.form.vector}];")
                self.say("#pragma unroll", f"for (int k = 0; k < {self.form.items}; ++k)")
                self.say(f"for (int j = 0; j < {self.form.vector}; ++j) m{i}[k][j] = 0;")
            else:
                self.say(f"{kind}* const m{i} = ({kind}*)a.m{i} + (dt_u64)first * cols;")

    def add_to_column(self, s: Store, value: str, kind: str) -> None:
        i, array = self.arrays[s.array]
        if not s.add:
            stored, to = C_STORED[array.dtype], f"p{i}[at + j]"
            if self.form.dims:
                to = f"*({stored}*)((char*)p{i} + ({self.offset_type})(at + j) * a.c{i})"
            self.say(f"if (j < left && r == rows - 1) {to} = dt_to_{array.dtype}({value});")
        elif self.form.items:
            self.say(f"m{i}[k][j] = dt_add(m{i}[k][j], {value});")
        else:
            old = f"r == first ? ({C_TYPES[kind]})0 : m{i}[at + j]"
            self.say(f"if (j < left) m{i}[at + j] = dt_add({old}, {value});")

    def _end_sums(self) -> None:
        for name in self.summed:
            i, array = self.arrays[name]
            kind, v = C_TYPES[COMPUTE[array.dtype]], self.form.vector
            if array.space == "one":
                self.say(f"if (t == 0) (({kind}*)a.m{i})[first] = m{i};")
            elif self.form.items:
                at = f"(k * {self.form.team} + t) * {v}u + j"
                self.say("#pragma unroll", f"for (int k = 0; k < {self.form.items}; ++k)")
                self.say("#pragma unroll", f"for (int j = 0; j < {v}; ++j) if ({at} < cols)")
                self.say(f"(({kind}*)a.m{i})[(dt_u64)first * cols + {at}] = m{i}[k][j];")

    def moving(self, array: Array) -> bool:
        return array.space in ("full", "col")
