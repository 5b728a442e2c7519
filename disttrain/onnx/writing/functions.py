"""Whole functions of the operator set in what a program spells out.

``WHOLE`` has a pattern for each: a tuple of a primitive and its arguments, where a text is a name
that any value may have (the same each time), and a number is itself; ``COMPOSED`` has those that
are found in other ways. The nodes that a function is made of are written by their own rules as
well; those that nothing else uses are taken out of the model in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ...export import Graph, Name, Node
from .images import padded, resized
from .rules import convolution, normalization, recurrence
from .types import Ref, is_number, same_shape, same_size
from .writer import Writer

Found = dict[str, Any]
Pattern = tuple


# --- patterns ----------------------------------------------------------------------------------
# The negative side of elu, which has no number to overflow.
_BELOW: Pattern = ("expm1", ("where", ("le", "x", 0.0), "x", 0.0))
_ELU: Pattern = ("where", ("le", "x", 0.0), ("mul", _BELOW, "alpha"), "x")
_DIVIDED: Pattern = ("div", ("where", ("le", "x", 0.0), "x", 0.0), "alpha")
_CELU: Pattern = (
    "where", ("le", "x", 0.0),
    ("mul", ("expm1", ("where", ("le", _DIVIDED, 0.0), _DIVIDED, 0.0)), "alpha"), "x",
)  # fmt: skip
_MOVED: Pattern = ("add", "x", 3.0)
_CUT: Pattern = ("where", ("le", _MOVED, 0.0), 0.0, _MOVED)
_SWISH: Pattern = (
    "mul", "x", ("div", ("stepwise", ("where", ("lt", _MOVED, 6.0), _CUT, 6.0), "x"), 6.0)
)  # fmt: skip
_INSIDE: Pattern = ("logical_and", ("gt", "x", -3.0), ("lt", "x", 3.0))
_SIGMOID: Pattern = (
    "stepwise",
    (
        "where", _INSIDE, ("div", ("add", ("where", _INSIDE, "x", 0.0), 3.0), 6.0),
        ("div", ("stepwise", ("where", ("ge", _CUT, 6.0), 6.0, _CUT), _MOVED), 6.0),
    ),
    "x",
)  # fmt: skip


def _clipped(x: Any, low: Any, high: Any) -> Pattern:
    """What hardtanh spells out."""
    cut = ("where", ("le", x, low), low, x)
    return ("stepwise", ("where", ("ge", cut, high), high, cut), x)


def _scaled() -> list[Pattern]:
    """Channels by factors, and what is added: batch normalization by known statistics."""
    plain: Pattern = ("rsqrt", ("add", "var", "eps"))
    factor: Pattern = ("mul", plain, "weight")
    ways = (
        (factor, ("sub", "bias", ("mul", "mean", factor))),
        (plain, ("mul", ("neg", "mean"), plain)),
    )
    return [("add", ("mul", "x", ("reshape", a)), ("reshape", b)) for a, b in ways]


class Functions:
    """Finds them in one graph, and writes them by ``w``. ``value``: of an argument of a node."""

    def __init__(self, graph: Graph, w: Writer, value: Callable[[Any], Any]) -> None:
        self.graph, self.w, self.value = graph, w, value
        self.makers = {node.outputs[0]: node for node in graph.nodes if node.outputs}
        self.results = {o: (n, i) for n in graph.nodes for i, o in enumerate(n.outputs)}
        self.pairs: dict[tuple, Any] = {}  # recurrent layers of both directions
        self.uses: Counter[str] = Counter([a for node in graph.nodes for a in node.inputs])
        self.uses.update(o for o in graph.outputs if isinstance(o, Name))

    def find(self, node: Node) -> Any:
        """What a node gives as (part of) a whole function; None where it is none."""
        for pattern, since, write in WHOLE.get(node.primitive, ()):
            found: Found = {}
            if self.w.opset >= since and self._matches_node(pattern, node, found):
                refs = {k: self.value(v) for k, v in found.items()}
                out = write(self.w, refs)
                if out is not None:
                    return out
        compose = COMPOSED.get(node.primitive)
        return None if compose is None else compose(self, node)

    # --- matching -----------------------------------------------------------------------------
    def maker(self, a: Any) -> Node | None:
        """The node whose first result a value is, past those that change nothing."""
        return self.makers.get(self.plain(a)) if isinstance(a, Name) else None

    def plain(self, a: Any) -> Any:
        """The value past nodes that change nothing."""
        while isinstance(a, Name) and a in self.makers:
            node = self.makers[a]
            same = node.primitive == "clone" or (
                node.primitive == "cast"
                and self.graph.values[node.inputs[0]].dtype == self.graph.values[a].dtype
            )
            if not same:
                break
            a = node.args[0]
        return a

    def _matches(self, pattern: Any, a: Any, found: Found) -> bool:
        if isinstance(pattern, str):
            a = self.plain(a)
            return _equal(found.setdefault(pattern, a), a)
        if isinstance(pattern, tuple):
            node = self.maker(a)
            return node is not None and self._matches_node(pattern, node, found)
        return is_plain(a) and float(a) == float(pattern)

    def _matches_node(self, pattern: Pattern, node: Node, found: Found) -> bool:
        name, *parts = pattern
        if node.primitive != name or len(parts) > len(node.args):
            return False
        either = name in _EITHER and len(parts) == 2
        for order in (parts, parts[::-1]) if either else (parts,):
            trial = dict(found)
            if all(self._matches(p, a, trial) for p, a in zip(order, node.args, strict=False)):
                found.clear()
                found.update(trial)
                return True
        return False


_EITHER = frozenset(("add", "mul", "maximum", "minimum", "logical_and"))


def is_plain(a: Any) -> bool:
    """Whether an argument is a plain number."""
    return isinstance(a, (int, float, np.generic))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Name) or isinstance(b, Name):
        return isinstance(a, Name) and isinstance(b, Name) and a == b
    return is_plain(a) and is_plain(b) and float(a) == float(b)


# --- what patterns are written as --------------------------------------------------------------
def _op(kind: str, *named: str, **fixed: Any) -> Callable[[Writer, Found], Any]:
    """An operator of ``x`` whose attributes are numbers that were found, or ``fixed``."""

    def write(w: Writer, found: Found) -> Any:
        given: dict[str, Any] = {k: found[k] for k in named}
        if not all(map(is_plain, given.values())) or not isinstance(found["x"], Ref):
            return None
        given = {k: float(v) for k, v in given.items()} | fixed
        return w.node(kind, found["x"], **given)

    return write


def _clip(w: Writer, found: Found) -> Any:
    x, low, high = (found[k] for k in ("x", "low", "high"))
    if not (is_plain(low) and is_plain(high)):
        return None
    return w.node("Clip", x, w.operand(low, x.dtype), w.operand(high, x.dtype))


def _leaky(w: Writer, found: Found) -> Any:
    slope, x = found["slope"], found["x"]
    if is_plain(slope):
        return w.node("LeakyRelu", x, alpha=float(slope))
    fits = isinstance(slope, Ref) and slope.dtype == x.dtype and slope.rank <= x.rank
    return w.node("PRelu", x, slope) if fits else None


def _batch_norm(w: Writer, found: Found) -> Any:
    x, mean, variance, eps = (found[k] for k in ("x", "mean", "var", "eps"))
    if not is_plain(eps) or not all(isinstance(r, Ref) for r in (x, mean, variance)):
        return None
    each = [r for k in ("mean", "var", "weight", "bias") if (r := found.get(k)) is not None]
    shape = w.outs[0].shape
    fits = x.rank >= 2 and all(r.rank == 1 and r.dtype == x.dtype for r in each)
    if not fits or not same_shape(shape, x.shape) or not is_number(x.shape[1]):
        return None
    if not all(same_size(r.shape[0], x.shape[1]) for r in each):
        return None
    return normalization.inferred(
        w, x, mean, variance, found.get("weight"), found.get("bias"), float(eps)
    )


WHOLE: dict[str, tuple] = {  # by the primitive that ends them: (pattern, since when, how)
    "where": (
        (_ELU, 17, _op("Elu", "alpha")),
        (_CELU, 17, _op("Celu", "alpha")),
        (("where", ("gt", "x", 0.0), "x", ("mul", "x", "slope")), 17, _leaky),
    ),
    "mul": (
        (("mul", _ELU, "gamma"), 17, _op("Selu", "alpha", "gamma")),
        (("mul", "x", ("tanh", ("softplus", "x"))), 18, _op("Mish")),
        (_SWISH, 17, _op("HardSwish")),
    ),
    "stepwise": (
        (_clipped("x", "low", "high"), 17, _clip),
        (_SIGMOID, 17, _op("HardSigmoid", alpha=1 / 6, beta=0.5)),
    ),
    "div": ((("div", "x", ("add", ("abs", "x"), 1.0)), 17, _op("Softsign")),),
    "add": tuple((pattern, 17, _batch_norm) for pattern in _scaled()),
}  # fmt: skip


# --- functions with parameters that are no numbers ---------------------------------------------
def _with_bias(of: Functions, node: Node) -> Any:
    """A transposed convolution and its bias."""
    made, column = (of.maker(a) for a in node.args)
    if made is None or column is None or made.primitive != "conv_input_grad":
        return None
    bias = of.value(column.args[0]) if column.primitive == "reshape" else None
    if not isinstance(bias, Ref) or bias.rank != 1:
        return None
    g, weight = map(of.value, made.args)
    rank = len(of.w.outs[0].shape)
    if column.params["shape"] not in (
        (-1, *(1,) * (rank - 2)),
        (*(bias.shape or ()), *(1,) * (rank - 2)),
    ):
        return None
    return convolution.transposed(of.w, g, weight, bias, **made.params)


def _over_several(of: Functions, node: Node) -> Any:
    """A layer norm over several last dimensions."""
    made = of.maker(node.args[0])
    if made is None or made.primitive != "layer_norm" or made.args[1] is None:
        return None
    rows, *affine = (None if a is None else of.maker(a) for a in made.args)
    parts = [rows, *(m for m, a in zip(affine, made.args[1:], strict=True) if a is not None)]
    if any(m is None or m.primitive != "reshape" for m in parts):
        return None
    sources: list[Ref] = [of.value(m.args[0]) for m in parts if m is not None]
    x, weight, bias = sources[0], sources[1], sources[2:]
    shape = of.w.outs[0].shape
    if not same_shape(x.shape, shape) or not same_shape(weight.shape, shape[-weight.rank :]):
        return None
    if bias and not same_shape(bias[0].shape, weight.shape):
        return None
    return of.w.node("LayerNormalization", x, weight, *bias, axis=-weight.rank,
                     epsilon=float(made.params["eps"]))  # fmt: skip


def _both_directions(of: Functions, node: Node) -> Any:
    """What a recurrent layer gives of both directions, as one operator."""
    dim, parts = node.params["dim"], [of.results.get(of.plain(a)) for a in node.args]
    place = parts[0][1] if parts and parts[0] is not None else -1
    fits = (place == 0 and dim == 2 and len(parts) == 2) or (place > 0 and dim == 0)
    if not fits or len(parts) % 2 or not all(p is not None and p[1] == place for p in parts):
        return None
    nodes = [p[0] for p in parts if p is not None]
    found = [_pair(of, a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=True)]
    if any(f is None or place >= len(f) for f in found):
        return None
    w, outs = of.w, [f[place] for f in found if f is not None]
    if place == 0:
        time, rows, _ = w.outs[0].shape
        width = int(of.graph.values[node.args[0]].shape[2])
        turned = Ref(w.transpose(outs[0], (0, 2, 1, 3)).name, outs[0].dtype,
                     (time, rows, 2, width))  # fmt: skip
        return w.reshape(turned, w.outs[0].shape)
    return outs[0] if len(outs) == 1 else w.node("Concat", *outs, axis=0)


def _pair(of: Functions, a: Node, b: Node) -> Any:
    """The operator of two passes over one sequence, one of which goes backwards."""
    if a.primitive != "recurrence" or b.primitive != "recurrence":
        return None
    modes = [(n.params["mode"], n.params["backwards"]) for n in (a, b)]
    if modes != [(modes[0][0], False), (modes[0][0], True)]:
        return None
    key = a.outputs[0], b.outputs[0]
    if key not in of.pairs:
        mode = modes[0][0]
        given = [[of.value(x) for x in n.args] for n in (a, b)]
        both = [recurrence.Pass(of.w, args, mode) for args in given]
        of.pairs[key] = recurrence.passes(of.w, mode, both, False)
    return of.pairs[key]


def _dropout(of: Functions, node: Node) -> Any:
    """What a mask that is drawn for it leaves."""
    made = of.maker(node.args[1])
    if made is None or made.primitive != "dropout_mask" or of.uses[made.outputs[0]] != 1:
        return None
    p = float(made.params["p"])
    x, w = of.value(node.args[0]), of.w
    if p >= 1 or not np.isclose(node.params["scale"], 1 / (1 - p)):
        return None
    return w.node("Dropout", x, w.constant(p, np.float32), w.constant(True))


COMPOSED: dict[str, Callable[[Functions, Node], Any]] = {
    "add": _with_bias, "reshape": _over_several, "local_product": resized, "take": padded,
    "masked_scale": _dropout, "cat": _both_directions,
}  # fmt: skip
