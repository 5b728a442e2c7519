"""What the code of flat kernels and of row kernels share: a thread's way over its elements.

A thread handles ``vector`` elements side by side: it fetches them, computes all, and stores them.
Elements beyond the end are computed on zeros and neither folded nor stored, so that there is one
path through the arithmetic. Which thread handles which element depends on the numbers of elements
alone, not on layouts or alignment: results are the same bits for every layout of the same values.
"""

from __future__ import annotations

from ...lang.expr import Expr, walk
from ...lang.kernel import COMPUTE, FLOATS, Array, Kernel, Let, Loop, Reduce, Store, Types, resolve
from .forms import C_STORED, C_TYPES, Field, Form
from .values import Values, convert, literal


def named_types(kernel: Kernel) -> tuple[Types, dict[str, int]]:
    """Types that know all row values, and each row value's slot in scratch memory."""
    types, slots = Types(kernel), dict[str, int]()
    for step in kernel.steps:
        named = step.body if isinstance(step, Loop) else (step,)
        kinds = [resolve(types[s.value]) for s in named]
        for s, kind in zip(named, kinds):
            if isinstance(s, (Let, Reduce)):
                types.names[s.name] = kind
                slots[s.name] = len(slots)
    return types, slots


def fold_type(kind: str) -> str:
    """In which type values of a computing type are folded."""
    return "int32" if kind == "bool" else kind


def identity(op: str, kind: str) -> str:
    """What changes nothing under the fold."""
    if op == "sum":
        return literal(-0.0 if kind in FLOATS else 0, kind)
    if kind in FLOATS:
        return literal(float("inf") if op == "min" else -float("inf"), kind)
    bits = 63 if kind == "int64" else 31
    return literal(2**bits - 1 if op == "min" else -(2**bits), kind)


def nan(kind: str) -> str:
    """What ``load`` gives where there is no element; 0 where the type has no nan."""
    return literal(float("nan") if kind in FLOATS else 0, kind)


class Body(Values):
    """One function's code. Subclasses say how threads go over elements and where these are."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        types, self.slots = named_types(kernel)
        super().__init__(types)
        self.kernel, self.form = kernel, form
        self.arrays = {a.name: (i, a) for i, a in enumerate(kernel.arrays)}
        self.index_type = "dt_u64" if form.wide else "unsigned"
        self.offset_type = "dt_i64" if form.wide else "int"
        self.held: set[str] = set()  # arrays whose elements of this row are in registers

    # -- what a subclass says ----------------------------------------------------------------------

    def write(self) -> list[Field]:
        """Write the code; returns the struct's fields."""
        raise NotImplementedError

    def moving(self, array: Array) -> bool:
        """Whether ``array`` has an element of its own for each column."""
        return array.space in ("full", "col")

    def keeps(self, array: str) -> bool:
        """Whether elements of ``array`` stay in registers from loop to loop."""
        return False

    def locate(self, names: list[str]) -> list[str]:
        """Statements that say where element ``at + j`` is: ``e{i}``, an address, for each."""
        raise NotImplementedError

    def place(self, array: str) -> str:
        """Where element ``at`` of a contiguous array is, as an address."""
        raise NotImplementedError

    def add_to_column(self, s: Store, value: str, kind: str) -> None:
        """Add to a sum over rows."""
        raise NotImplementedError

    # -- parts -------------------------------------------------------------------------------------

    def say(self, *lines: str) -> None:
        self.lines += lines

    def scalars(self) -> list[Field]:
        """Their fields; their values are known from here on."""
        fields = []
        for i, s in enumerate(self.kernel.scalars):
            kind = COMPUTE[s.dtype]
            fields.append(Field(f"s{i}", kind))
            name = f"s{i}"
            self.say(f"const {C_TYPES[kind]} {name} = a.{name};  // {s.name}")
            self.row[Expr("var", (), s.name)] = name
        return fields

    def moves(self, expr: Expr) -> bool:
        return any(
            n.op == "index"
            or (n.op == "var" and n.attr in self.arrays and self.moving(self.arrays[n.attr][1]))
            for n in walk(expr)
            if n not in self.row
        )

    def leaf(self, node: Expr) -> str:
        if node.op == "index":
            return "(dt_i64)(at + j)"
        if node.op == "load":
            return self.loaded(node)
        i, array = self.arrays[node.attr]
        if not self.moving(array):
            return f"dt_from_{array.dtype}({self.single(node.attr)})"
        return f"h{i}[k][j]" if node.attr in self.held else f"dt_from_{array.dtype}(r{i}[j])"

    def single(self, array: str) -> str:
        """The one element of an array that does not move with the columns."""
        return f"*p{self.arrays[array][0]}"

    def loaded(self, node: Expr) -> str:
        raise NotImplementedError

    # -- a thread's elements -----------------------------------------------------------------------

    def elements(self, step: Loop) -> None:
        """Fetch, compute and store the elements ``at`` to ``at + left``; folds go on in ``f_``."""
        v = self.form.vector
        reads = self._reads(step)
        self._fetch([n for n in reads if n not in self.held])
        for name in reads:
            if self.keeps(name) and name not in self.held:
                i, array = self.arrays[name]
                self.say(
                    f"for (int j = 0; j < {v}; ++j) h{i}[k][j] = dt_from_{array.dtype}(r{i}[j]);"
                )
                self.held.add(name)
        stores = [s for s in step.body if isinstance(s, Store)]
        full = [s for s in stores if self.arrays[s.array][1].space == "full"]
        for store in full:
            i, array = self.arrays[store.array]
            self.say(f"{C_STORED[array.dtype]} w{i}[{v}];")
        self.say("#pragma unroll", f"for (int j = 0; j < {v}; ++j) {{")
        self.cols = {}
        values = [(s, *self._value_of(s)) for s in step.body]
        for s, value, kind in values:
            if isinstance(s, Reduce):
                self.say(
                    f"if (j < left) f_{s.name}[j] = dt_fold_{s.op}::of(f_{s.name}[j], {value});"
                )
            elif self.arrays[s.array][1].space == "col":
                self.add_to_column(s, value, kind)
            else:
                i, array = self.arrays[s.array]
                self.say(f"w{i}[j] = dt_to_{array.dtype}({value});")
                if self.keeps(s.array):
                    self.say(f"h{i}[k][j] = dt_from_{array.dtype}(w{i}[j]);")
        self.cols = None
        self.say("}")
        self.held |= {s.array for s in full if self.keeps(s.array)}
        self._store([s.array for s in full])

    def _reads(self, step: Loop) -> list[str]:
        """The moving arrays whose elements are needed, each once."""
        names = [n.attr for s in step.body for n in walk(s.value) if n.op == "var"]
        names += [s.array for s in step.body if isinstance(s, Store) and s.add]
        there = [n for n in dict.fromkeys(names) if n in self.arrays]
        sums = [s.array for s in step.body if isinstance(s, Store) and s.add]
        there = [n for n in there if not (n in sums and self.arrays[n][1].space == "col")]
        return [n for n in there if self.moving(self.arrays[n][1])]

    def _value_of(self, s: Store | Reduce) -> tuple[str, str]:
        if isinstance(s, Reduce):
            kind = fold_type(self.types.names[s.name])
            return self.value(s.value, kind)
        array = self.arrays[s.array][1]
        kind = COMPUTE[array.dtype]
        value = self.value(s.value, kind)[0]
        if s.add and array.space == "full":
            old = self.value(Expr("var", (), s.array), kind)[0]
            value = f"dt_add({old}, {value})"
        return value, kind

    def _fetch(self, names: list[str]) -> None:
        if not names:
            return
        v = self.form.vector
        numbered = [self.arrays[n] for n in names]
        self.say(*[f"{C_STORED[a.dtype]} r{i}[{v}];" for i, a in numbered])
        if self.form.dims:
            self.say("#pragma unroll", f"for (int j = 0; j < {v}; ++j) {{")
            self.say(*[f"r{i}[j] = 0;" for i, _ in numbered], "if (j < left) {")
            self.say(*self.locate(names))
            self.say(*[f"r{i}[j] = *(const {C_STORED[a.dtype]}*)e{i};" for i, a in numbered])
            self.say("}", "}")
            return
        places = [self.place(n) for n in names]
        self.say(f"if (whole && left == {v}) {{")
        self.say(*[f"dt_fetch<{v}>(r{i}, {at});" for (i, _), at in zip(numbered, places)])
        self.say("} else {", "#pragma unroll", f"for (int j = 0; j < {v}; ++j) {{")
        self.say(*[f"r{i}[j] = 0;" for i, _ in numbered], "if (j < left) {")
        self.say(*[f"r{i}[j] = ({at})[j];" for (i, _), at in zip(numbered, places)])
        self.say("}", "}", "}")

    def _store(self, names: list[str]) -> None:
        if not names:
            return
        v = self.form.vector
        numbered = [self.arrays[n] for n in names]
        if self.form.dims:
            self.say("#pragma unroll", f"for (int j = 0; j < {v}; ++j) {{", "if (j < left) {")
            self.say(*self.locate(names))
            self.say(*[f"*({C_STORED[a.dtype]}*)e{i} = w{i}[j];" for i, a in numbered])
            self.say("}", "}")
            return
        places = [self.place(n) for n in names]
        self.say(f"if (whole && left == {v}) {{")
        self.say(*[f"dt_store<{v}>({at}, w{i});" for (i, _), at in zip(numbered, places)])
        self.say(
            "} else {", "#pragma unroll", f"for (int j = 0; j < {v}; ++j) {{", "if (j < left) {"
        )
        self.say(*[f"({at})[j] = w{i}[j];" for (i, _), at in zip(numbered, places)])
        self.say("}", "}", "}")

    # -- folds -------------------------------------------------------------------------------------

    def begin_folds(self, step: Loop) -> list[tuple[Reduce, str]]:
        """Declare a partial result per element of the vector, for each fold of the loop."""
        v = self.form.vector
        folds = [
            (s, fold_type(self.types.names[s.name])) for s in step.body if isinstance(s, Reduce)
        ]
        for s, kind in folds:
            self.say(f"{C_TYPES[kind]} f_{s.name}[{v}];", "#pragma unroll")
            self.say(f"for (int j = 0; j < {v}; ++j) f_{s.name}[j] = {identity(s.op, kind)};")
        return folds

    def lanes(self, s: Reduce, kind: str) -> str:
        """The thread's own result."""
        return f"dt_lanes<dt_fold_{s.op}, {self.form.vector}>(f_{s.name})"

    def block_fold(self, folds: list[tuple[Reduce, str, str]], warps: int, turn: str) -> None:
        """``b_{name}``: each fold's result over the block, in all its threads. ``folds`` has the
        thread's own value last; ``turn`` chooses one of two halves of shared memory."""
        for s, kind, value in folds:
            where = f"shared_{s.name}[{turn}]"
            self.say(f"dt_leave<dt_fold_{s.op}, {C_TYPES[kind]}>({value}, {where});")
        self.say("__syncthreads();")
        for s, kind, _ in folds:
            none = identity(s.op, kind)
            call = f"dt_take<dt_fold_{s.op}, {warps}, {C_TYPES[kind]}>"
            self.say(f"const {C_TYPES[kind]} b_{s.name} = {call}(shared_{s.name}[{turn}], {none});")

    def result(self, s: Reduce, kind: str, value: str) -> None:
        """Know a fold's result as a row value."""
        own = self.types.names[s.name]
        self.row[Expr("var", (), s.name)] = self.fresh(own, convert(value, kind, own))


def offsets(names: list[tuple[int, Array]], dims: int, form: Form, position: str) -> list[str]:
    """Statements for ``o{i}``: how many bytes from its start each array has ``position``, whose
    axes (sizes ``size``, strides ``t{i}``) are taken apart from the last to the first."""
    kind = "dt_i64" if form.wide else "int"
    index = "dt_u64" if form.wide else "unsigned"
    lines = [f"{index} q = {position};", *[f"{kind} o{i} = 0;" for i, _ in names]]
    for k in reversed(range(dims)):
        if k == 0:
            lines.append("{ const " + index + " c = q;")
        elif form.wide:
            lines.append(f"{{ const {index} d = q / a.size[{k}], c = q - d * a.size[{k}]; q = d;")
        else:
            divided = f"dt_div(q, a.mul[{k}], a.shift[{k}])"
            lines.append(f"{{ const {index} d = {divided}, c = q - d * a.size[{k}]; q = d;")
        lines += [f"o{i} += ({kind})c * a.t{i}[{k}];" for i, _ in names]
        lines.append("}")
    return lines


def axis_fields(form: Form, arrays: list[int]) -> list[Field]:
    """The members that ``offsets`` reads."""
    if not form.dims:
        return []
    fields = [Field("size", "u64" if form.wide else "u32", form.dims)]
    if not form.wide:
        fields += [Field("mul", "u32", form.dims), Field("shift", "u32", form.dims)]
    return fields + [Field(f"t{i}", "i64" if form.wide else "i32", form.dims) for i in arrays]
