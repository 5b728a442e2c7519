"""What is known of dimensions: the symbols of a capture by their names, the ranges that a program
allows, and relations between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..backends.null import NullArray
from ..compile.sizes.shapes import Found
from ..core.tensor import Tensor
from ..errors import CaptureError, DisttrainError
from .dims import Dim, Place
from .running import Step
from .sizes import COMPARISONS, Size, SizeError, renamed
from .values import Graph, Name, Value

_PIN = re.compile(r"(s\d+) == (\d+)\Z")
_TURNED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def fixed(found: Found, places: Sequence[Place], names: Sequence[str]) -> set[tuple[int, int]]:
    """Dimensions that the program fixes. Raises ``CaptureError`` for one that was asked for."""
    asked = {(p.leaf, p.dim): p for p in places}
    out: set[tuple[int, int]] = set()
    for sizes, why in found.fixed:
        for at in sizes:
            out.add(_refused(asked[at], names, f"a number of it is needed: {why}"))
    order = dict(zip(found.scope.names, found.sizes, strict=True))
    for text, line in found.scope.relations.items():
        match = _PIN.match(text)
        if match is not None:
            place = asked[order[match[1]]]
            out.add(_refused(place, names, f"it must be {match[2]} at {line}"))
    return out


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
        if found is None:
            return
        where = {(p.leaf, p.dim): p.of for p in places}
        for symbol, at in zip(found.scope.names, found.sizes, strict=True):
            dim = where[at]
            self.names[symbol] = dim.name
            self.dims.setdefault(dim.name, _copy(dim))
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
        high = dim.max if high is None else high if dim.max is None else min(high, dim.max)
        if (low > dim.min and dim.given[0]) or (
            high is not None and dim.given[1] and dim.max is not None and high < dim.max
        ) or (high is not None and high < low):  # fmt: skip
            raise CaptureError(
                f"export: {dim.name!r} is to be {dim.range()}; {relation} is needed at {line}"
            )
        dim.min, dim.max = low, high
        return True


def _copy(dim: Dim) -> Dim:
    out = Dim(dim.name, min=dim.min, max=dim.max)
    out.given = dim.given
    return out


def _holds(relation: Size, values: Mapping[str, int]) -> bool:
    try:
        return bool(relation.evaluate(values))
    except SizeError:
        return False


# --- the least sizes ------------------------------------------------------------------------------
class Checked(Protocol):
    """What is needed of a program."""

    graph: Graph
    inputs: tuple[Value, ...]
    dims: dict[str, Dim]
    state: dict[str, Tensor]
    constants: dict[str, Tensor]


def check_least(program: Checked) -> None:
    """See that the program's shapes are right for the least sizes of its dimensions, too: symbols
    were sizes of 2 and more. Where they are not, the least is 2; an error where another was asked
    for."""
    for dim in program.dims.values():
        while dim.min < 2:
            values = {n: max(2, d.min) for n, d in program.dims.items()} | {dim.name: dim.min}
            why = disagreement(program, values)
            if why is None:
                break
            if dim.given[0]:
                raise CaptureError(f"export: {dim.name!r} cannot be {dim.min}: {why}")
            dim.min += 1


def disagreement(program: Checked, sizes: Mapping[str, int]) -> str | None:
    """Where the shapes of a program are not what the rules of its primitives say for these
    sizes."""
    values = program.graph.values
    constants = {**program.state, **program.constants}
    for node in program.graph.nodes:
        try:
            prim, args, params = Step(node, constants, []).made(sizes)
            if prim.shape is None:
                continue
            given = [_null(values[a], sizes) if a.__class__ is Name else a for a in args]
            said = prim.shape(*given, **params)
        except (DisttrainError, ValueError, IndexError) as error:
            return f"{node.primitive} at {node.line}: {error}"
        except (AttributeError, TypeError):  # (rules of a few are written for arrays with data)
            continue
        said = list(said) if prim.multi else [said]
        for name, (shape, _) in zip(node.outputs, said, strict=True):
            want = values[name].sized(sizes)
            if tuple(shape) != want:
                return f"{node.primitive} at {node.line} gives {list(shape)}, not {list(want)}"
    return None


def _null(value: Value, sizes: Mapping[str, int]) -> Any:
    return NullArray(value.sized(sizes), np.dtype(value.dtype))


__all__ = ["Symbols", "check_least", "disagreement", "fixed"]
