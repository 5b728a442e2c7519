"""What is known of dimensions: the symbols of a capture by their names, the ranges that a program
allows, and relations between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..backends.null import NullArray
from ..compile.sizes.shapes import Found
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..errors import CaptureError, DisttrainError
from ..ops.primitives.aliases import as_strided, unstride
from ..ops.primitives.write import view_write
from ..polynomials import LEAST
from . import operands
from .dims import Dim, Place
from .running import Step
from .schema import reaches_beyond
from .sizes import COMPARISONS, Size, SizeError, renamed
from .values import Graph, Name, Node, Value

_PIN = re.compile(r"(s\d+) == (\d+)\Z")
_EQUAL = re.compile(r"(s\d+) == (s\d+)\Z")
_NEAR = 65  # a size is fixed where none nearer than this does
_ANY = 1 << 34  # elements: larger than any memory, so no bound at all (int64's, say)
_TURNED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def fixed(found: Found, places: Sequence[Place], names: Sequence[str]) -> set[tuple[int, int]]:
    """Dimensions that the program fixes. Raises ``CaptureError`` for one that was asked for."""
    asked = {(p.leaf, p.dim): p for p in places}
    out: set[tuple[int, int]] = set()
    for sizes, why in found.fixed:
        for at in sizes:
            out.add(_refused(asked[at], names, f"a number of it is needed: {why}"))
    order = dict(zip(found.scope.names, found.sizes, strict=True))
    values = dict(zip(found.scope.names, found.scope.values, strict=True))
    for text, line in found.scope.relations.items():
        symbol = _pinned(text, values)
        if symbol is not None:
            why = f"it must be {int(values[symbol])} at {line}"
            out.add(_refused(asked[order[symbol]], names, why))
    return out


def _pinned(text: str, values: Mapping[str, float]) -> str | None:
    """The symbol that a relation leaves no other size."""
    match = _PIN.match(text)
    if match is not None:
        return match[1]
    relation = Size(text)
    if relation.tree[0] != "==" or len(relation.names) != 1:
        return None
    (symbol,) = relation.names
    if "number" not in (relation.tree[2][0], relation.tree[3][0]):
        return None
    steps = (sign * n for n in range(1, _NEAR) for sign in (-1, 1))
    near = (n for n in (int(values[symbol]) + step for step in steps) if n > 0)
    return None if any(_holds(relation, {symbol: int(n)}) for n in near) else symbol


def _refused(place: Place, names: Sequence[str], why: str) -> tuple[int, int]:
    if place.asked:
        raise CaptureError(
            f"export: dimension {place.dim} of {names[place.leaf]} ({place.of.name!r}) cannot "
            f"change: {why}. Leave it out of dynamic, or change that line"
        )
    return place.leaf, place.dim


class Symbols:
    """The dimensions of one capture: ``names`` of symbols, ``dims`` with the ranges that are left,
    ``relations`` that each call has to satisfy besides."""

    def __init__(self, found: Found | None, places: Sequence[Place]) -> None:
        self.names: dict[str, str] = {}
        self.dims: dict[str, Dim] = {}
        self.relations: tuple[tuple[Size, str], ...] = ()
        self.examples: dict[str, int] = {}  # the sizes of the capture
        if found is None:
            return
        where = {(p.leaf, p.dim): p for p in places}
        symbols = zip(found.scope.names, found.sizes, strict=True)
        order = {symbol: where[at] for symbol, at in symbols}
        same = _united(order, found.scope.relations)
        for symbol, value in zip(found.scope.names, found.scope.values, strict=True):
            dim = order[same.get(symbol, symbol)].of
            self.names[symbol] = dim.name
            self.dims.setdefault(dim.name, _copy(dim))
            self.examples[dim.name] = int(value)
        kept = []
        for text, line in found.scope.relations.items():
            relation = Size(renamed(text, self.names))
            if not self._is_taken(relation, line):
                kept.append((relation, line))
        self.relations = tuple(dict(kept).items())

    def _is_taken(self, relation: Size, line: str) -> bool:
        """Whether a relation holds for all sizes, or was put into the range of a dimension."""
        names = sorted(relation.names)
        sign = relation.tree[0]
        if sign in ("==", "<=", ">=") and relation.tree[2] == relation.tree[3]:
            return True
        if len(names) == 2 and sign == "==" and all(p[0] == "name" for p in relation.tree[2:]):
            raise CaptureError(
                f"export: {names[0]!r} and {names[1]!r} must be equal at {line}; give both "
                "dimensions one name in dynamic"
            )
        if len(names) != 1:
            return not names and bool(relation.evaluate({}))
        dim = self.dims[names[0]]
        if sign in COMPARISONS and self._bound(relation, dim, line):
            return True
        while dim.min < self.examples[dim.name] and not _holds(relation, {dim.name: dim.min}):
            if dim.given[0]:
                raise CaptureError(
                    f"export: {dim.name!r} cannot be {dim.min}: {relation} is needed at {line}"
                )
            dim.min += 1
        tried = range(dim.min, min(dim.max if dim.max is not None else dim.min + 64, dim.min + 64))
        values = {*tried, *((dim.max,) if dim.max is not None else ())}
        whole = dim.max is not None and dim.max - dim.min < 64
        return whole and all(_holds(relation, {dim.name: n}) for n in values)

    def _bound(self, relation: Size, dim: Dim, line: str) -> bool:
        """Narrow a range by ``name sign number``, if it is one."""
        sign, _, left, right = relation.tree
        if left[0] == "number" and right[0] == "name":
            sign, left, right = _TURNED[sign], right, left
        if left[0] != "name" or right[0] != "number" or sign not in ("<", "<=", ">", ">="):
            return False
        n = int(right[1])
        low = {">": n + 1, ">=": n}.get(sign, dim.min)
        high = {"<": n - 1, "<=": n}.get(sign, dim.max)
        low = max(low, dim.min)
        high = None if high is not None and high >= _ANY else high
        high = dim.max if high is None else high if dim.max is None else min(high, dim.max)
        if (low > dim.min and dim.given[0]) or (
            high is not None and dim.given[1] and dim.max is not None and high < dim.max
        ) or (high is not None and high < low):  # fmt: skip
            raise CaptureError(
                f"export: {dim.name!r} is to be {dim.range()}; {relation} is needed at {line}"
            )
        dim.min, dim.max = low, high
        return True


def _united(order: Mapping[str, Place], relations: Iterable[str]) -> dict[str, str]:
    """Symbols that must be equal to others, where nobody asked for both of them by name: what they
    are equal to."""
    same: dict[str, str] = {}

    def root(symbol: str) -> str:
        while symbol in same:
            symbol = same[symbol]
        return symbol

    for text in relations:
        match = _EQUAL.match(text)
        if match is None:
            continue
        a, b = root(match[1]), root(match[2])
        if a == b or (order[a].asked and order[b].asked):
            continue
        if order[b].asked or (not order[a].asked and int(b[1:]) < int(a[1:])):
            a, b = b, a
        same[b] = a
    return {symbol: root(symbol) for symbol in same}


def _copy(dim: Dim) -> Dim:
    out = Dim(dim.name, min=dim.min, max=dim.max)
    out.given = dim.given
    return out


def _holds(relation: Size, values: Mapping[str, int]) -> bool:
    try:
        return bool(relation.evaluate(values))
    except SizeError:
        return False


# --- how free they are ----------------------------------------------------------------------------
def narrowness(program: Checked) -> int:
    """How many relations between sizes leave out some that are in range."""
    return sum(_leaves_out(relation, program.dims) for relation, _ in program.relations)


def _leaves_out(relation: Size, dims: Mapping[str, Dim]) -> bool:
    if len(relation.names) != 1:
        return relation.tree[0] == "=="
    dim = dims[next(iter(relation.names))]
    last = dim.min + _NEAR if dim.max is None else min(dim.max, dim.min + _NEAR)
    return not all(_holds(relation, {dim.name: n}) for n in range(dim.min, last + 1))


def is_freer(a: Checked, b: Checked) -> bool:
    """Whether more sizes of ``a`` may change than of ``b``, or in more ways."""
    if len(a.dims) != len(b.dims):
        return len(a.dims) > len(b.dims)
    return narrowness(a) < narrowness(b)


# --- the least sizes ------------------------------------------------------------------------------
class Checked(Protocol):
    """What is needed of a program."""

    graph: Graph
    inputs: tuple[Value, ...]
    dims: dict[str, Dim]
    examples: dict[str, int]
    relations: tuple[tuple[Size, str], ...]
    state: dict[str, Tensor]
    constants: dict[str, Tensor]


def check_least(program: Checked, differs: Callable[[str, int], str | None]) -> None:
    """See that the program is right for the least sizes of its dimensions, too: symbols were sizes
    of 2 and more. ``differs(name, size)``: why it is not what the function gives there. Where it is
    not, the least is 2; an error where another was asked for."""
    for dim in program.dims.values():
        while dim.min < LEAST:
            why = _at_least(program, dim, differs)
            if why is None:
                break
            if dim.given[0]:
                raise CaptureError(f"export: {dim.name!r} cannot be {dim.min}: {why}")
            dim.min += 1


def _at_least(program: Checked, dim: Dim, differs: Callable) -> str | None:
    values = {**program.examples, dim.name: dim.min}
    for relation, line in program.relations:
        if not _holds(relation, values):
            if len(relation.names) > 1:
                return None  # (each call sees to it)
            return f"{relation} is needed at {line}"
    found: str | None = disagreement(program, values) or differs(dim.name, dim.min)
    return found


def disagreement(program: Checked, sizes: Mapping[str, int]) -> str | None:
    """Where the shapes of a program are not what the rules of its primitives say for these
    sizes."""
    return _Shapes(program, sizes).of(program.graph)


class _Shapes:
    """Shapes of a program for given sizes."""

    def __init__(self, program: Checked, sizes: Mapping[str, int]) -> None:
        self.sizes, self.values = sizes, program.graph.values
        self.constants = {**program.state, **program.constants}

    def of(self, graph: Graph) -> str | None:
        """What is wrong in a graph."""
        for node in graph.nodes:
            try:
                why = self._fault(node, graph.values)
            except _NO_SHAPE as error:
                why = f"{type(error).__name__}: {error}"
            if why is not None:
                return f"{node.primitive} at {node.line or 'an unknown line'}: {why}"
            for inner in Graph((), (node,), ()).graphs():
                why = self.of(inner)
                if why is not None:
                    return why
        return None

    def _fault(self, node: Node, values: Mapping[str, Value]) -> str | None:
        prim, args, params = Step(node, self.constants, []).made(self.sizes)

        def given(a: Any) -> Any:
            value = values.get(a) or self.values[a] if a.__class__ is Name else None
            return a if value is None else NullArray(value.sized(self.sizes), value.dtype)

        arrays = [given(a) for a in args]
        beyond = _beyond(prim, arrays, params) or operands.fault(node.primitive, arrays, params)
        if beyond is not None:
            return beyond
        if prim.shape is None:
            return None
        try:
            said = prim.shape(*arrays, **params)
        except (AttributeError, TypeError):  # (rules of a few are written for arrays with data)
            return None
        found = list(said) if prim.multi else [said]
        if len(found) != len(node.outputs):
            return f"it has {len(found)} results, not {len(node.outputs)}"
        for name, (shape, kind) in zip(node.outputs, found, strict=True):
            want = values[name].sized(self.sizes), np.dtype(values[name].dtype)
            if (tuple(shape), np.dtype(kind)) != want:
                return f"it gives {kind}{list(shape)}, not {want[1]}{list(want[0])}"
        return None


# What rules of shapes raise for what does not fit.
_NO_SHAPE = (
    DisttrainError, ArithmeticError, AssertionError, LookupError, RecursionError, StopIteration,
    ValueError, TypeError, AttributeError,
)  # fmt: skip


def _beyond(prim: Primitive, given: Sequence[Any], params: Mapping[str, Any]) -> str | None:
    """Whether a node would reach memory that is not its arguments'."""
    if prim in (as_strided, unstride):
        size = params["shape"] if prim is unstride else given[0].shape
        return reaches_beyond(params, size)
    if prim is not view_write:
        return None
    now = given[0]
    for link, how in params["chain"]:
        if link is as_strided and (why := reaches_beyond(how, now.shape)) is not None:
            return why
        now = NullArray(*link.shape(now, **how))
    value = given[1]
    shape = value.shape if hasattr(value, "shape") else ()
    fits = np.broadcast_shapes(tuple(shape), now.shape) == tuple(now.shape)
    return None if fits else f"{list(shape)} is written to {list(now.shape)}"


__all__ = ["Symbols", "check_least", "disagreement", "fixed", "is_freer", "narrowness"]
