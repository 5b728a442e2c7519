"""Whole functions of the operator set in what a program spells out.

``WHOLE`` has a pattern for each: a tuple of a primitive and its arguments, where a text is a name
that any value may have (the same each time), and a number is itself. The nodes that a function is
made of are written by their own rules as well; those that nothing else uses are taken out of the
model in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...export import Graph, Name, Node
from . import resizing
from .rules import normalization
from .types import Ref, is_number
from .writer import Writer

Found = dict[str, Any]

# The negative side of elu, which has no number to overflow.
_BELOW = ("expm1", ("where", ("le", "x", 0.0), "x", 0.0))
_ELU = ("where", ("le", "x", 0.0), ("mul", _BELOW, "alpha"), "x")
_SIGMOID_3 = ("div", ("clip6", ("add", "x", 3.0)), 6.0)


def _clipped(x: Any, low: Any, high: Any) -> tuple:
    """What hardtanh spells out."""
    cut = ("where", ("le", x, low), low, x)
    return ("stepwise", ("where", ("ge", cut, high), high, cut), x)


def _scaled(rank: int) -> tuple:
    """Channels by factors, and what is added: what batch normalization by known statistics is."""
    factor = ("mul", ("rsqrt", ("add", "var", "eps")), "weight")
    plain = ("rsqrt", ("add", "var", "eps"))
    out = []
    for scale, shift in (
        (factor, ("sub", "bias", ("mul", "mean", factor))),
        (plain, ("mul", ("neg", "mean"), plain)),
    ):
        out.append(("add", ("mul", "x", ("reshape", scale)), ("reshape", shift)))
    return tuple(out)


class Functions:
    """Finds them in one graph, and writes them by ``w``. ``value``: of an argument of a node."""

    def __init__(self, graph: Graph, w: Writer, value: Callable[[Any], Any]) -> None:
        self.graph, self.w, self.value = graph, w, value
        self.makers: dict[str, Node] = {}
        for node in graph.nodes:
            for o in node.outputs:
                self.makers[o] = node

    def find(self, node: Node) -> Any:
        """What a node gives as (part of) a whole function; None where it is none."""
        for pattern, needs, write in WHOLE.get(node.primitive, ()):
            found: Found = {}
            if self.w.opset >= needs and self._matches_node(pattern, node, found):
                refs = {k: self.value(v) for k, v in found.items()}
                out = write(self.w, refs)
                if out is not None:
                    return out
        return resizing.resized(self, node)

    # --- matching -----------------------------------------------------------------------------
    def maker(self, a: Any) -> Node | None:
        """The node that makes a value, past those that change nothing."""
        while isinstance(a, Name) and a in self.makers:
            node = self.makers[a]
            same = node.primitive == "clone" or (
                node.primitive == "cast"
                and self.graph.values[node.inputs[0]].dtype == self.graph.values[a].dtype
            )
            if not same:
                return node
            a = node.args[0]
        return None

    def plain(self, a: Any) -> Any:
        """The value past nodes that change nothing."""
        while isinstance(a, Name) and a in self.makers and self.makers[a] is not self.maker(a):
            a = self.makers[a].args[0]
        return a

    def _matches(self, pattern: Any, a: Any, found: Found) -> bool:
        if isinstance(pattern, str):
            a = self.plain(a)
            if pattern in found:
                return _equal(found[pattern], a)
            found[pattern] = a
            return True
        if isinstance(pattern, tuple):
            node = self.maker(a)
            return node is not None and self._matches_node(pattern, node, found)
        if isinstance(a, Name):
            return False
        return is_number_like(a) and float(a) == float(pattern)

    def _matches_node(self, pattern: tuple, node: Node, found: Found) -> bool:
        name, *parts = pattern
        if node.primitive != name or len(parts) > len(node.args):
            return False
        orders = [parts, parts[::-1]] if name in _EITHER and len(parts) == 2 else [parts]
        for order in orders:
            trial = dict(found)
            if all(self._matches(p, a, trial) for p, a in zip(order, node.args, strict=False)):
                found.clear()
                found.update(trial)
                return True
        return False


_EITHER = frozenset(("add", "mul", "maximum", "minimum"))


def is_number_like(a: Any) -> bool:
    """Whether an argument is a plain number."""
    return isinstance(a, (int, float, np.generic))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Name) or isinstance(b, Name):
        return isinstance(a, Name) and isinstance(b, Name) and a == b
    return is_number_like(a) and is_number_like(b) and float(a) == float(b)


# --- what they are written as ------------------------------------------------------------------------
def _op(kind: str, **named: str) -> Callable[[Writer, Found], Any]:
    """An operator of ``x`` whose attributes are numbers that were found."""

    def write(w: Writer, found: Found) -> Any:
        given = {k: found[v] for k, v in named.items()}
        if not all(map(is_number_like, given.values())) or not isinstance(found["x"], Ref):
            return None
        return w.node(kind, found["x"], **{k: float(v) for k, v in given.items()})

    return write


def _clip(w: Writer, found: Found) -> Any:
    low, high = (found.get(k) for k in ("low", "high"))
    if not (is_number_like(low) and is_number_like(high)):
        return None
    x = found["x"]
    return w.node("Clip", x, w.operand(low, x.dtype), w.operand(high, x.dtype))


def _leaky(w: Writer, found: Found) -> Any:
    slope, x = found["slope"], found["x"]
    if is_number_like(slope):
        return w.node("LeakyRelu", x, alpha=float(slope))
    return w.node("PRelu", x, slope) if isinstance(slope, Ref) else None


def _batch_norm(w: Writer, found: Found) -> Any:
    x, mean, variance = (found[k] for k in ("x", "mean", "var"))
    eps = found["eps"]
    if not is_number_like(eps) or not all(isinstance(r, Ref) for r in (x, mean, variance)):
        return None
    fits = x.rank >= 2 and mean.rank == variance.rank == 1 and mean.dtype == x.dtype
    column = w.outs[0].shape
    if not fits or len(column) != x.rank or not is_number(x.shape[1]):
        return None
    if mean.shape[0] != x.shape[1]:
        return None
    return normalization.inferred(
        w, x, mean, variance, found.get("weight"), found.get("bias"), float(eps)
    )


WHOLE: dict[str, tuple] = {  # by the primitive that ends them: (pattern, since when, how)
    "where": (
        (_ELU, 17, _op("Elu", alpha="alpha")),
        (("where", ("gt", "x", 0.0), "x", ("mul", "x", "slope")), 17, _leaky),
    ),
    "mul": (
        (
            ("mul", ("where", ("le", "x", 0.0), ("mul", _BELOW, "alpha"), "x"), "gamma"), 17,
            _op("Selu", alpha="alpha", gamma="gamma"),
        ),
        (("mul", "x", ("tanh", ("softplus", "x"))), 18, _op("Mish")),
    ),
    "stepwise": ((_clipped("x", "low", "high"), 17, _clip),),
    "div": ((("div", "x", ("add", ("abs", "x"), 1.0)), 17, _op("Softsign")),),
    "add": tuple((pattern, 17, _batch_norm) for pattern in _scaled(4)),
}  # fmt: skip
