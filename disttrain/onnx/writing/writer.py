"""What rules write with: nodes, constants, and sizes as values.

A rule is called as ``rule(w, *args, **params)``: ``args`` are ``Ref``s, numbers or None, ``w.outs``
says which shapes and types the results have, and it gives a ``Ref`` (of several results a tuple;
what is costly or has no counterpart may be a function that is called where the result is used).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from .sizes import Arithmetic, node_of
from .types import (
    BOOL,
    INT64,
    Ref,
    Unmapped,
    element_type,
    is_number,
    same_shape,
    same_size,
    static,
)

# Operators that ONNX or runtimes have for no integers of fewer than 32 bits, or of 16 bits.
_OF_32_BITS = frozenset("MatMul Pow Trilu Neg".split())
_NOT_OF_16 = frozenset("Max Min Where Clip Pad ReduceMax ReduceMin".split())


def _is_narrow(kind: str, a: Ref) -> bool:
    """Whether an operator needs an operand as numbers of 32 bits."""
    if a.dtype.kind not in "iu" or a.dtype.itemsize > 2 or (kind == "Neg" and a.dtype.kind == "i"):
        return False
    return kind in _OF_32_BITS or (kind in _NOT_OF_16 and a.dtype.itemsize == 2)


@functools.lru_cache(4096)
def _is_lacking(kind: str, opset: int, place: int, dtype: np.dtype) -> bool:
    """Whether an operator of this version does not take bfloat16, or float16, at a place."""
    if dtype.kind not in "fV" or dtype.itemsize != 2:
        return False
    try:
        schema = onnx.defs.get_schema(kind, opset)
    except onnx.defs.SchemaError:
        return False
    inputs = schema.inputs
    if not inputs:
        return False
    one = inputs[min(place, len(inputs) - 1)]
    word = "tensor(bfloat16)" if dtype.kind == "V" else "tensor(float16)"
    return word not in one.types


@dataclass
class Op:
    """A node of the model; ``module`` is the path of the module that asked for it."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    module: str = ""
    line: str = ""


@dataclass
class Body:
    """A graph inside of a node: a branch, or a turn of a loop."""

    ops: list[Op]
    inputs: list[Ref]
    outputs: list[Ref]


@dataclass
class Writer:
    """A graph of a model on its way. ``opset``: the version of the operator set; ``sources``: what
    sizes are read from, by their texts (a value, a dimension); ``values``: numbers of constants and
    parameters, by name."""

    opset: int
    sources: dict[str, tuple[Ref, int]] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    outs: Sequence[Any] = ()  # the results that a rule is asked for: values with shape and dtype
    alone: bool = True  # whether nothing uses any result but the first
    products: dict[str, tuple] = field(default_factory=dict)  # by name: (x, weight, bias)
    module: str = ""
    line: str = ""
    scope: str = ""  # in front of the names that rules make
    hint: dict[str, int] = field(default_factory=dict)  # a size for each symbol
    taken: set[str] = field(default_factory=set)
    unmade: dict[str, str] = field(default_factory=dict)  # values that nobody may use, and why
    ends: set[str] = field(default_factory=set)  # what the model's inputs and results are called
    fixed: set[str] = field(default_factory=set)  # constants that are no parameters, by name
    later: dict[str, Callable[[], Any]] = field(
        default_factory=dict
    )  # what is made of known values
    convert: Any = None  # writes a graph of the program: (graph, w, refs) -> its results
    _numbers: dict[tuple, Ref] = field(default_factory=dict)
    _sizes: dict[str, Ref] = field(default_factory=dict)

    # --- names ------------------------------------------------------------------------------
    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        name, n = base, 1
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        return name

    # --- nodes ------------------------------------------------------------------------------
    def node(
        self, kind: str, *inputs: Any, outputs: int = 1, dtype: Any = None, shape: Any = None,
        **attributes: Any,
    ) -> Any:  # fmt: skip
        """A node of operator ``kind``: its result, or several. ``dtype``: of the results, where it
        is not that of the first input. Inputs may be None."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        refs = [(i, a) for i, a in enumerate(given) if isinstance(a, Ref)]
        narrow = next((a.dtype for i, a in refs if _is_narrow(kind, a)
                       or _is_lacking(kind, self.opset, i, a.dtype)), None)  # fmt: skip
        if narrow is not None:
            wide = np.dtype(np.int32 if narrow.kind in "iu" else np.float32)
            given = [
                self.cast(a, wide) if isinstance(a, Ref) and a.dtype == narrow else a for a in given
            ]
            own = dtype is None or np.dtype(dtype) == narrow
            made = self.node(kind, *given, outputs=outputs, dtype=wide if own else dtype,
                             shape=shape, **attributes)  # fmt: skip
            if not own:
                return made
            many = made if isinstance(made, tuple) else (made,)
            found = tuple(self.cast(r, narrow) for r in many)
            return found[0] if outputs == 1 else found
        kinds = [dtype] if dtype is not None else [a.dtype for a in given if isinstance(a, Ref)]
        made = [
            Ref(self.fresh(f"{self.scope}{kind.lower()}"), np.dtype(kinds[0]), shape)
            for _ in range(outputs)
        ]
        names = [a.name if isinstance(a, Ref) else "" for a in given]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.ops.append(Op(kind, names, [r.name for r in made], kept, self.module, self.line))
        return made[0] if outputs == 1 else tuple(made)

    def needs(self, opset: int, what: str) -> None:
        """Refuse where the operator set is older."""
        if self.opset < opset:
            raise Unmapped(f"{what} needs opset_version={opset} or newer")

    # --- constants --------------------------------------------------------------------------
    def constant(self, value: Any, dtype: Any = None) -> Ref:
        """A constant; equal ones are one."""
        array = np.asarray(value, dtype)
        element_type(array.dtype)
        key = array.dtype.str, array.dtype.name, array.shape, array.tobytes()
        if key not in self._numbers:
            name = self.fresh("const")
            self.values[name] = array
            self.fixed.add(name)
            self._numbers[key] = Ref(name, array.dtype, array.shape)
        return self._numbers[key]

    def named(self, base: str, array: np.ndarray) -> Ref:
        """A constant with a name of its own: what is made of a parameter."""
        same = self.values.get(base) if base in self.fixed else None
        if same is not None and same.dtype == array.dtype and np.array_equal(same, array):
            return Ref(base, array.dtype, array.shape)
        name = self.fresh(base)
        self.values[name] = array
        self.fixed.add(name)
        return Ref(name, array.dtype, array.shape)

    def known(self, a: Any) -> np.ndarray | None:
        """The numbers of a constant or a parameter, or of what is made of these; else None."""
        if not isinstance(a, Ref):
            return None
        if a.name in self.later:
            made = self.later[a.name]()
            self.later[a.name] = lambda: made
            return made
        return self.values.get(a.name)

    def inside(self) -> Writer:
        """For a graph inside of a node: it sees what is written so far."""
        scope = self.fresh(f"{self.scope}body") + "."
        return replace(self, ops=[], scope=scope, _sizes=dict(self._sizes))

    def operand(self, x: Any, dtype: Any) -> Ref:
        """A tensor, or a number as a constant of this type."""
        if isinstance(x, Ref):
            return x
        if isinstance(x, (bool, int, float, np.generic)) and not hasattr(x, "evaluate"):
            return self.constant(np.asarray(x).astype(dtype))
        if isinstance(x, complex):
            raise Unmapped("complex numbers, which operators of ONNX do not take")
        return self.cast(self.size(x), dtype)

    def cast(self, a: Ref, dtype: Any) -> Ref:
        """``a`` in another element type."""
        dtype = np.dtype(dtype)
        if a.dtype == dtype:
            return a
        return self.node("Cast", a, dtype=dtype, shape=a.shape, to=element_type(dtype))

    # --- sizes ------------------------------------------------------------------------------
    def size(self, n: Any) -> Ref:
        """A size as a value: an int64 of no dimension."""
        if is_number(n):
            return self.constant(int(n), INT64)
        return Arithmetic(self, self.sources, self._sizes).of(node_of(str(n)))

    def _in_a_row(self, n: Any) -> Ref:
        """A size as a value of one dimension."""
        text = str(n)
        if text not in self.sources:
            return self.unsqueeze(self.size(n), (0,))
        key = f"[{text}]"
        if key not in self._sizes:
            source, dim = self.sources[text]
            self._sizes[key] = self.node("Shape", source, dtype=INT64, start=dim, end=dim + 1)
        return self._sizes[key]

    def ints(self, sizes: Sequence[Any]) -> Ref:
        """Sizes as one value: int64 numbers in a row."""
        if static(sizes):
            return self.constant([int(n) for n in sizes], INT64)
        parts: list[Ref] = []
        for run, plain in _runs(sizes):
            if plain:
                parts.append(self.constant([int(n) for n in run], INT64))
            else:
                parts += [self._in_a_row(n) for n in run]
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def hinted(self, n: Any) -> int:
        """What a size is for some input."""
        return int(n) if is_number(n) else int(n.evaluate(self.hint))

    # --- what many rules need ---------------------------------------------------------------
    def reshape(self, a: Ref, shape: Sequence[Any]) -> Ref:
        """``a`` in another shape, read from ``a`` itself where that does."""
        shape = tuple(shape)
        if a.shape is not None and same_shape(a.shape, shape):
            return a
        wanted, free = list(shape), 0 not in shape
        if free and a.shape is not None:
            for i, n in enumerate(shape[: len(a.shape)]):
                if not is_number(n) and same_size(n, a.shape[i]):
                    wanted[i] = 0
        open_ones = [i for i, n in enumerate(wanted) if not is_number(n)]
        if free and open_ones and -1 not in shape:
            wanted[max(open_ones, key=lambda i: len(str(wanted[i])))] = -1
        allow = None if free or not static(wanted) else 1
        return self.node("Reshape", a, self.ints(wanted), shape=shape, allowzero=allow)

    def unsqueeze(self, a: Ref, axes: Sequence[int]) -> Ref:
        """New dimensions of size 1."""
        if a.name in self.fixed:
            return self.constant(np.expand_dims(self.values[a.name], tuple(axes)))
        return self.node("Unsqueeze", a, self.constant(list(axes), INT64))

    def squeeze(self, a: Ref, axes: Sequence[int]) -> Ref:
        """Without dimensions of size 1."""
        return self.node("Squeeze", a, self.constant(list(axes), INT64))

    def transpose(self, a: Ref, dims: Sequence[int]) -> Ref:
        """Its dimensions in another order."""
        dims = list(dims)
        if dims == list(range(len(dims))):
            return a
        shape = None if a.shape is None else tuple(a.shape[d] for d in dims)
        return self.node("Transpose", a, perm=dims, shape=shape)

    def expand(self, a: Ref, shape: Sequence[Any]) -> Ref:
        """``a`` repeated to ``shape``."""
        shape = tuple(shape)
        if a.shape is not None and same_shape(a.shape, shape):
            return a
        return self.node("Expand", a, self.ints(shape), shape=shape)

    def full(self, shape: Sequence[Any], value: Any, dtype: Any) -> Ref:
        """A tensor of one number."""
        if static(shape):
            return self.constant(np.full(tuple(map(int, shape)), value, dtype))
        return self.expand(self.constant(value, dtype), shape)

    def slice(self, a: Ref, dim: int, start: Any, stop: Any, step: int = 1) -> Ref:
        """A part of one dimension."""
        given = [self.ints([n]) for n in (start, stop, dim, step)]
        return self.node("Slice", a, *(given if step != 1 else given[:3]))

    def reduce(self, kind: str, a: Ref, dims: Sequence[int], keepdim: Any) -> Ref:
        """A reduction; since when each takes its axes as a value differs."""
        since = 13 if kind == "ReduceSum" else 18
        how: dict[str, Any] = {"keepdims": int(bool(keepdim))}
        if not dims:  # of no dimension: of all, in ONNX's words
            return a
        if self.opset >= since:
            return self.node(kind, a, self.constant(list(dims), INT64), **how)
        return self.node(kind, a, axes=list(dims), **how)

    def bool_of(self, a: Ref) -> Ref:
        """Whether elements are not zero."""
        return self.cast(a, BOOL)

    def where(self, condition: Ref, a: Any, b: Any, dtype: Any) -> Ref:
        """Elements of ``a`` or ``b``."""
        return self.node(
            "Where", condition, self.operand(a, dtype), self.operand(b, dtype), dtype=dtype
        )

    def one(self, name: str, *args: Any, **params: Any) -> Any:
        """What another primitive's rule gives."""
        return RULES[name](self, *args, **params)


def _runs(sizes: Sequence[Any]) -> list[tuple[list, bool]]:
    """Neighbours that are all plain numbers, or all not."""
    out: list[tuple[list, bool]] = []
    for n in sizes:
        plain = is_number(n)
        if not out or out[-1][1] is not plain:
            out.append(([], plain))
        out[-1][0].append(n)
    return out


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}  # by the names of primitives


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Have a function be the rule of these primitives."""

    def register(fn: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = fn
        return fn

    return register
