"""The kernel language: loops over rows and columns with scalar expressions and reductions.

A ``Kernel`` is pure data. Its arrays are seen as rows of columns: ``full`` arrays have an element
for each (row, column), ``row`` arrays one per row, ``col`` arrays one per column, ``one`` arrays a
single one. For each row the steps run in order:

* ``Loop(body)``: one pass over the columns; its body has ``Store`` (write an element) and
  ``Reduce`` (fold an expression over the row into a named row value). At each column all values of
  the body are computed before any is written;
* ``Let(name, value)``: compute a row value from row values;
* ``Put(array, value)``: write a row value into a ``row`` or ``one`` array.

``Store`` into a ``col`` array and ``Put`` into a ``one`` array are of use with ``add=True``: they
then sum over the rows.

A ``flat`` kernel takes its arrays as one long row. Expressions name arrays, scalars, row values.
Integer types narrower than 32 bits are computed in int32, float16 and bfloat16 in float32.

Nothing here knows numpy or LLVM: ``interpret.py`` and ``backends/llvm`` read these descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .expr import BINARY, COMPARISONS, UNARY, Expr, trace, variables, walk

FLOATS = ("float32", "float64")
COMPUTE = {
    "bool": "bool",
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "int32": "int32",
    "int64": "int64",
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
COSTLY = frozenset("exp log log1p expm1 tanh erf sigmoid sin cos pow".split())
SPACES = ("full", "row", "col", "one")
REDUCTIONS = ("sum", "max", "min", "maxnum")


@dataclass(frozen=True, slots=True)
class Array:
    """An array parameter. ``writes``: the kernel stores into it. ``every``: of a ``col`` array that
    is added to, the rows that share one line of it; there is one line for all where it is 0.
    ``cyclic``: a ``full`` array that is read and begins anew where its rows end."""

    name: str
    dtype: str
    space: str = "full"
    writes: bool = False
    every: int = 0
    cyclic: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number parameter, passed as a Python float."""

    name: str
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Store:
    """``array[row, column] = value``, or ``+=``."""

    array: str
    value: Expr
    add: bool = False


@dataclass(frozen=True, slots=True)
class Reduce:
    """Fold ``value`` over the columns. ``maxnum`` passes over nan, and is -inf where there is
    nothing else; ``max`` and ``min`` keep it."""

    name: str
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass over the columns. ``copies``: of the body side by side, which decides the order in
    which sums are added up; 0: by its length (``copies_of``)."""

    body: tuple[Store | Reduce, ...]
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Let:
    """A named row value."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Put:
    """``array[row] = value``, or ``+=``."""

    array: str
    value: Expr
    add: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A named kernel; ``check`` says whether it has a meaning."""

    name: str
    params: tuple[Array | Scalar, ...]
    steps: tuple[Loop | Let | Put, ...]
    flat: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(p for p in self.params if isinstance(p, Array))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(p for p in self.params if isinstance(p, Scalar))

    def __str__(self) -> str:
        lines = [f"{'flat ' if self.flat else ''}kernel {self.name}"]
        for p in self.params:
            space = f" {p.space}" if isinstance(p, Array) else ""
            out = " out" if isinstance(p, Array) and p.writes else ""
            out += f" every {p.every}" if isinstance(p, Array) and p.every else ""
            out += " cyclic" if isinstance(p, Array) and p.cyclic else ""
            lines.append(f"  {p.name}: {p.dtype}{space}{out}")
        for step in self.steps:
            if isinstance(step, Loop):
                lines.append(f"  loop x {step.copies}" if step.copies else "  loop")
                lines += [f"    {_line(s)}" for s in step.body]
            else:
                lines.append(f"  {_line(step)}")
        return "\n".join(lines)


def _line(s: Store | Reduce | Let | Put) -> str:
    if isinstance(s, Reduce):
        return f"{s.name} = {s.op} {s.value!r}"
    if isinstance(s, Let):
        return f"{s.name} = {s.value!r}"
    return f"{s.array}[] {'+=' if s.add else '='} {s.value!r}"


def wide_type(dtype: str) -> str:
    """The floating type of statistics and scalars that go with arrays of ``dtype``."""
    return "float64" if dtype == "float64" else "float32"


def elementwise(
    name: str, fn: Callable[..., Expr] | Expr, inputs: tuple[Array | Scalar, ...], out: str
) -> Kernel:
    """The flat kernel ``out = fn(*inputs)``; ``out`` is the type name of its result."""
    value = fn if isinstance(fn, Expr) else trace(fn, *[p.name for p in inputs])
    params = (*inputs, Array("out", out, writes=True))
    return Kernel(name, params, (Loop((Store("out", value),)),), flat=True)


class Types:
    """The types of the expressions of one kernel.

    ``types[expr]`` is a computing type, or ``weak_int`` / ``weak_float`` for what is made of
    constants only (``resolve`` gives those a type).
    """

    def __init__(self, kernel: Kernel) -> None:
        self.names = {p.name: COMPUTE[p.dtype] for p in kernel.params}
        self.known: dict[Expr, str] = {}

    def __getitem__(self, expr: Expr) -> str:
        for node in walk(expr) if expr not in self.known else ():
            if node not in self.known:
                self.known[node] = self._infer(node)
        return self.known[expr]

    def _infer(self, node: Expr) -> str:
        op, kinds = node.op, [self.known[a] for a in node.args]
        if op == "var":
            return self.names[node.attr]
        if op == "const":
            number = "weak_int" if isinstance(node.attr, int) else "weak_float"
            return "bool" if isinstance(node.attr, bool) else number
        if op == "index":
            return "int64"
        if op == "load":
            return self.names[node.attr]
        if op == "cast":
            return COMPUTE[node.attr]
        if op in COMPARISONS:
            return "bool"
        if op == "where":
            return join(kinds[1], kinds[2])
        kind = kinds[0]
        for other in kinds[1:]:
            kind = join(kind, other)
        if op in ("neg", "abs", "floor", "ceil", "add", "sub", "mul", "max", "min", "fma"):
            return "int32" if kind == "bool" else kind
        return floating(kind)

    def operands(self, node: Expr) -> str:
        """The common type in which the arguments of ``node`` are computed."""
        kinds = [self[a] for a in node.args]
        if node.op == "where":
            kinds = kinds[1:]
        kind = kinds[0]
        for other in kinds[1:]:
            kind = join(kind, other)
        if self[node] in FLOATS:
            kind = join(kind, self[node])
        return resolve(kind)


def resolve(kind: str) -> str:
    """A weak type made definite."""
    return {"weak_int": "int64", "weak_float": "float32"}.get(kind, kind)


def floating(kind: str) -> str:
    """The floating type in which a function of a ``kind`` is computed."""
    return kind if kind in FLOATS or kind == "weak_float" else "float32"


_RANK = ("bool", "weak_int", "int32", "int64", "weak_float", "float32", "float64")


def join(a: str, b: str) -> str:
    """The type in which values of two types meet."""
    if {a, b} == {"bool", "weak_int"}:
        return "int64"
    pair = sorted((a, b), key=_RANK.index)
    if pair[1] == "weak_float" and pair[0] in ("bool", "int32", "int64"):
        return "float32"
    return pair[1]


def sees_row(kernel: Kernel) -> bool:
    """Whether a row is seen as a whole by the kernel, not element by element."""
    statements = [s for step in kernel.steps if isinstance(step, Loop) for s in step.body]
    once = any(isinstance(step, Put) for step in kernel.steps)
    folds = once or any(isinstance(s, Reduce) for s in statements)
    return folds or any(n.op in ("index", "load") for s in statements for n in walk(s.value))


def rows_apart(kernel: Kernel) -> bool:
    """Whether each row is written by itself: none adds to what another one has written."""
    return not any(a.writes and a.space in ("col", "one") for a in kernel.arrays)


def functions(kernel: Kernel) -> int:
    """How many elementary functions (of exp's price) are computed for an element."""
    loops = [step for step in kernel.steps if isinstance(step, Loop)]
    nodes = {node for loop in loops for s in loop.body for node in walk(s.value)}
    return sum(node.op in COSTLY for node in nodes)


def copies_of(step: Loop) -> int:
    """Copies of the body: enough to hide the delay of an addition, few where the body is long."""
    if step.copies:
        return step.copies
    nodes = {n for s in step.body for n in walk(s.value)}
    weight = sum(12 if n.op in COSTLY else 1 for n in nodes if n.op != "const")
    if any(isinstance(s, Reduce) for s in step.body):
        return 4 if weight <= 8 else 2
    return 2 if weight <= 8 else 1


def check(kernel: Kernel) -> None:
    """Assert that ``kernel`` has a meaning: names known before use, spaces used as they may be."""
    arrays = {a.name: a for a in kernel.arrays}
    known = {p.name for p in kernel.params}
    assert len(known) == len(kernel.params), f"{kernel.name}: two parameters of one name"
    for p in kernel.params:
        assert p.dtype in COMPUTE, f"{kernel.name}: {p.name} has no such type: {p.dtype}"
        assert p.name.isidentifier(), f"{kernel.name}: {p.name!r} is no name"
    for a in kernel.arrays:
        assert not a.every or (a.space == "col" and not kernel.flat), f"{kernel.name}: {a.name}"
        assert not a.cyclic or not (kernel.flat or a.writes), f"{kernel.name}: {a.name}"
    assert any(a.space == "full" and not a.cyclic for a in kernel.arrays), (
        f"{kernel.name}: no full array"
    )
    assert any(a.writes for a in kernel.arrays), f"{kernel.name}: writes nothing"
    if kernel.flat:
        assert all(a.space in ("full", "one") for a in kernel.arrays), f"{kernel.name}: flat"
    for step in kernel.steps:
        body = step.body if isinstance(step, Loop) else (step,)
        for s in body:
            _check_value(kernel, s.value, known)
            if isinstance(s, Store):
                assert arrays[s.array].writes and arrays[s.array].space in ("full", "col")
            elif isinstance(s, Put):
                assert arrays[s.array].writes and arrays[s.array].space in ("row", "one")
            elif isinstance(s, Reduce):
                assert s.op in REDUCTIONS, f"{kernel.name}: no reduction {s.op}"
            if isinstance(s, Let):
                known.add(s.name)
        known |= {s.name for s in body if isinstance(s, Reduce)}


def _check_value(kernel: Kernel, value: Expr, known: set[str]) -> None:
    for name in variables(value):
        assert name in known, f"{kernel.name}: {name} is used before it is computed"
    for node in walk(value):
        arity = 1 if node.op in UNARY else 2 if node.op in BINARY else len(node.args)
        assert len(node.args) == arity, f"{kernel.name}: {node.op} takes {arity} arguments"


__all__ = [
    "COSTLY",
    "Array",
    "Kernel",
    "Let",
    "Loop",
    "Put",
    "Reduce",
    "Scalar",
    "Store",
    "Types",
    "check",
    "copies_of",
    "elementwise",
    "functions",
    "rows_apart",
    "sees_row",
    "wide_type",
]
