"""The first nan or inf: in which operation of forward, or of backward, and in which module.

A loss that is not finite is looked into when its backward begins: the graph is there, with most of
the values that went through it; others are computed again. In backward each gradient is looked at
as it is made. Either is told when an optimizer steps with gradients that are not finite, so that
programs which skip such steps are left alone.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import context
from ..core import Tensor
from ..core.node import AccumulateGrad, Output
from ..nn import Module
from .places import Place, forward_of, here, unwrapped
from .session import Held, Session, Walked, node_of, tensors
from .values import array_of, fetched, is_finite, is_near, version_of

ndarray = np.ndarray
_ON_DEVICE_EVERY = 16  # a loss on a device is fetched in one of so many walks
_TRIES = 4  # graphs that are looked into, while no step has used what came of them
# Whose rules give finite numbers for finite ones, but for sums that overflow: not looked at.
_SAFE = frozenset(
    "add add_ sub sub_ neg sum mean relu relu6 leaky_relu threshold hardtanh gelu silu tanh "
    "sigmoid softplus softmax log_softmax cross_entropy nll_loss mse "
    "linear matmul addmm bmm conv conv2d convolution conv1d conv3d conv_transpose embedding "
    "batch_norm layer_norm group_norm rms_norm attention scaled_dot_product_attention "
    "max_pool max_pool1d max_pool2d avg_pool2d adaptive_avg_pool2d masked_scale native_dropout "
    "where masked_fill cat stack clone copy copy_ contiguous to_copy cast boundary getitem index "
    "tril triu expand reshape".split()
)
_LEAVES = 2  # whose gradients are looked at after a walk, others after the next
_MASKS = frozenset({"masked_fill", "where", "full", "index_put", "scatter", "tril", "triu"})
_SCALED_TIMES = 3  # of losses that a GradScaler has scaled, which skips such steps


class Suspect:
    """Where the first number that is not finite was seen."""

    def __init__(self, kind: str, place: Place, text: str, module: Module | None) -> None:
        self.kind, self.place, self.text, self.module = kind, place, text, module
        self.key: tuple[str, int] | None = None  # of its operation, in the next graph


class Numbers:
    """non-finite-forward and non-finite-backward."""

    by_nodes = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self.suspect: Suspect | None = None
        self.tries = self.scaled_times = 0
        self.now: Walked | None = None
        self.order: dict[str, int] = {}
        self.wanted: tuple[str, int] | None = None  # whose line is asked for, of the next graph
        self.told: Suspect | None = None
        self.anomaly = False
        self.risky: dict[Any, bool] = {}  # by primitive
        self.scaled_roots: list[Any] = []  # nodes of losses that a GradScaler has multiplied
        self.scale = 0.0

    # -- forward -------------------------------------------------------------------------------

    def scaled(self, scaler: Any, out: Any) -> None:
        self.scaled_roots.append(node_of(out))
        self.scale = scaler._scale

    def before_walk(self, found: Walked) -> None:
        found.scaled = any(n in found.walk.pending for n in self.scaled_roots)
        self.now = found
        if self.scaled_roots:
            self.scaled_roots = []
        if self.wanted is not None:
            self._line(found)
        if self.suspect is not None:  # a program without an optimizer
            if any(isinstance(t, Tensor) and self._is_bad(t, found) for t in found.roots):
                self._tell()
        elif self.tries < _TRIES:
            for root in found.roots:
                if isinstance(root, Tensor) and self._is_bad(root, found):
                    self._look(root, found)
                    break
            else:
                self.scaled_times = 0
        if self.suspect is None and not found.walk.tensors and self._is_risky(found):
            found.walk.watchers += (self,)

    def _is_risky(self, found: Walked) -> bool:
        """Whether a backward could make what is not finite."""
        for node in found.walk.pending:
            prim = getattr(node, "prim", None)
            if prim is None:
                if node.__class__ is not AccumulateGrad:
                    return True
            elif self._may_break(prim):
                return True
        return False

    def _may_break(self, prim: Any) -> bool:
        known = self.risky.get(prim)
        if known is None:
            known = self.risky[prim] = not prim.view and prim.name not in _SAFE
        return known

    def after_walk(self, found: Walked) -> None:
        """Look at some gradients: sums may have overflowed."""
        if self.suspect is not None or self.tries >= _TRIES:
            return
        if found.scaled and self.scale > 1.0:
            return
        count = len(found.leaves)
        for i in range(min(_LEAVES, count)):
            leaf = found.leaves[(found.number * _LEAVES + i) % count].leaf
            array = None if leaf is None else array_of(leaf._grad)
            if array is not None and array.dtype.kind == "f" and not is_near(array):
                self.tries += 1
                name = self.session.names.tensors([leaf])[0]
                text = f"the gradient of {name} has {_said(array)}, as of a sum that overflows"
                self.suspect = Suspect("non-finite-backward", found.place, text, None)
                return

    def _is_bad(self, root: Tensor, found: Walked) -> bool:
        array = array_of(root)
        if array is None and (found.number % _ON_DEVICE_EVERY or root.is_meta):
            return False
        array = fetched(root) if array is None else array
        if array is None or array.dtype.kind not in "fc":
            return False
        if array.size == 1 and array.dtype.kind == "f":
            return not math.isfinite(array.item())
        return not is_finite(array)

    def _look(self, root: Tensor, found: Walked) -> None:
        value = fetched(root)
        if found.scaled:
            self.scaled_times += 1
            if not np.isnan(value).any() or self.scaled_times < _SCALED_TIMES:
                return
        self.tries += 1
        node, text = _first(root, self.session)
        module = None if node is None else self.session.module_of(node)
        where = "" if module is None else f" in {self.session.names.module(module)}"
        place = (None if module is None else forward_of(unwrapped(module))) or found.place
        self.suspect = Suspect(
            "non-finite-forward", place,
            f"the loss is {_said(value)}: {text.format(where)} (backward at {found.place})", module,
        )  # fmt: skip
        if node is not None:
            self.suspect.key = _key(node, found)
        if found.scaled:
            self._tell()

    # -- backward ------------------------------------------------------------------------------

    def on_node(self, node: Any, g: Any, results: tuple) -> None:
        """A node of backward has run."""
        if self.suspect is not None or node.__class__ is AccumulateGrad:
            return
        prim = getattr(node, "prim", None)
        if prim is not None and not self._may_break(prim):
            return
        for edge, r in zip(node.edges, results):
            if r.__class__ is not ndarray or r is g or r.dtype.kind != "f":
                continue
            if is_near(r) if edge.__class__ is AccumulateGrad else is_finite(r):
                continue
            self._backward(node, g, r)
            return

    def _backward(self, node: Any, g: Any, r: np.ndarray) -> None:
        found = self.now
        if found is None or self.tries >= _TRIES:
            return
        if found.scaled and self.scale > 1.0:
            return
        self.tries += 1
        module = self.session.module_of(node)
        where = "" if module is None else f" in {self.session.names.module(module)}"
        place = (None if module is None else forward_of(unwrapped(module))) or found.place
        came = "a gradient that was finite"
        if g.__class__ is ndarray and not is_finite(g):
            came = "one that was not finite either, as of a sum that overflows"
        text = (
            f"the backward of {_name(node)}{where} gives {_said(r)}, from {came} "
            f"(backward at {found.place})"
        )
        self.suspect = Suspect("non-finite-backward", place, text, module)
        self.suspect.key = _key(node, found)

    # -- steps ---------------------------------------------------------------------------------

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        if self.suspect is None:
            return
        grads = [a for p in held.params if (a := fetched(p._grad)) is not None]
        if any(a.dtype.kind in "fc" and not np.isfinite(a).all() for a in grads):
            self._tell()
        elif held.reached:
            self.suspect = None

    def cleared(self, ids: set[int]) -> None:
        """Gradients that were thrown away were used by no step."""
        last = self.session.last
        if self.suspect is not None and last is not None and not ids.isdisjoint(last.reached):
            self.suspect = None

    def _tell(self) -> None:
        found = self.told = self.suspect
        self.suspect = None
        self.tries = _TRIES
        assert found is not None
        self.wanted = found.key
        if self.wanted is not None and not context.thread.anomaly:
            self._watch_lines(True)
        self.session.add(found.kind, found.place, found.text)

    # -- lines ---------------------------------------------------------------------------------

    def _watch_lines(self, on: bool) -> None:
        """Let nodes know their lines until the next backward."""
        me = context.thread
        if on != self.anomaly:
            self.anomaly = me.anomaly = on
            me.check_nan = not on
            me.refresh()

    def _line(self, found: Walked) -> None:
        for node in _nodes(found):
            if node.site and _key(node, found) == self.wanted:
                text = f"that operation, {_name(node)}, ran at {node.site}"
                assert self.told is not None
                self.session.findings.more(self.told.kind, self.told.place, text)
                break
        self.wanted = None
        self._watch_lines(False)

    def end(self) -> None:
        self._watch_lines(False)


def _name(node: Any) -> str:
    prim = getattr(node, "prim", None)
    if prim is None:
        return "compiled code" if hasattr(node, "joint") else node.name()
    return prim.name.strip("_")


def _nodes(found: Walked) -> list[Any]:
    """Those of a walk in the order in which they were made."""
    nodes = [n for n in found.walk.pending if n.__class__ is not AccumulateGrad]
    return sorted(nodes, key=lambda n: n.seq)


def _key(node: Any, found: Walked) -> tuple[str, int]:
    """Of an operation, the same in the next graph of the program: its name, and its number among
    those of that name."""
    name = _name(node)
    alike = [n for n in _nodes(found) if _name(n) == name]
    return name, alike.index(node) if node in alike else -1


def _said(array: Any) -> str:
    return "nan" if np.isnan(array).any() else "inf"


# --- where it comes from, of a graph --------------------------------------------------------------


def _first(root: Tensor, session: Session) -> tuple[Any, str]:
    """The node that made the first bad number which leads to ``root``, and a text in which its
    module is left open."""
    graph = _Graph(root)
    value = fetched(root)
    bad: Callable[[Any], bool] = _has_nan if np.isnan(value).any() else _has_inf
    node, _ = graph.end_of(root.graph_node())
    if node.__class__ is AccumulateGrad:
        return None, "it was given to the program so"
    while True:
        step = graph.back(node, bad)
        if step is None:
            break
        kind, at = step
        if kind == "leaf":
            name = session.names.tensors([at.variable])[0]
            return None, f"{name} is {_said(graph.leaf(at))} already"
        if kind == "given":
            text = f"{_name(node)}{{}} is given {_said(at)} by the program, as in its data"
            return node, text
        node = at
    hidden = graph.unknown(node)
    if hidden is not None and not any(map(_has_inf, graph.inputs(node))):
        return hidden, f"{_name(hidden)}{{}}, or {_name(node)} after it, makes the first one"
    if bad is _has_nan and any(_has_inf(v) for v in graph.inputs(node)):
        return _infinite(graph, node)
    return node, f"{_name(node)}{{}} makes the first one"


def _infinite(graph: _Graph, node: Any) -> tuple[Any, str]:
    """As ``_first``, of a node that makes nan where infinities go in: who makes those."""
    at = node
    while (step := graph.back(at, _has_inf)) is not None and step[0] == "node":
        at = step[1]
    if step is not None or _name(at) in _MASKS or at is node:
        return node, f"{_name(node)}{{}} makes the first one, of which an input has inf"
    return at, f"{_name(at)}{{}} makes inf, and {_name(node)} the first nan of it"


def _has_nan(array: Any) -> bool:
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def _has_inf(array: Any) -> bool:
    return array.dtype.kind in "fc" and not bool(np.isfinite(array).all())


class _Graph:
    """Values in a graph that was not walked yet: kept ones, and those that they determine."""

    def __init__(self, root: Tensor) -> None:
        self.values: dict[tuple[Any, int], Any] = {}
        node, index = self.end_of(root.graph_node())
        self.values[node, index] = fetched(root)
        self._learn(node)

    @staticmethod
    def end_of(edge: Any) -> tuple[Any, int]:
        return (edge.node, edge.index) if edge.__class__ is Output else (edge, 0)

    def _learn(self, root: Any) -> None:
        seen, todo = {root}, [root]
        while todo:
            node = todo.pop()
            outs = getattr(node, "out", None)
            for i, out in enumerate(outs if outs.__class__ is tuple else (outs,)):
                if isinstance(out, Tensor) and (out._st is None or out._st.version == out._seen):
                    self.values.setdefault((node, i), fetched(out))
            saved = getattr(node, "saved", None) or ()
            for i, edge in enumerate(node.edges):
                if edge is None:
                    continue
                if i < len(saved) and isinstance(saved[i], Tensor) and _is_as_saved(node, i):
                    self.values.setdefault(self.end_of(edge), fetched(saved[i]))
                below = self.end_of(edge)[0]
                if below not in seen:
                    seen.add(below)
                    todo.append(below)
        for node in sorted(seen, key=lambda n: n.seq):
            if node.__class__ is not AccumulateGrad and (node, 0) not in self.values:
                self._compute(node)

    def _compute(self, node: Any) -> None:
        prim = getattr(node, "prim", None)
        if prim is None or prim.random or prim.mutates or prim.multi or node.saved is None:
            return
        args = []
        for i, edge in enumerate(node.edges):
            given = node.saved[i] if i < len(node.saved) else None
            if edge is not None:
                given = self.leaf(edge) if edge.__class__ is AccumulateGrad else self.values.get(
                    self.end_of(edge)
                )  # fmt: skip
            elif isinstance(given, Tensor):
                given = fetched(given)
            if given is None:
                return
            args.append(given)
        try:
            with np.errstate(all="ignore"):
                out = prim.forward(*args, **node.params)
        except Exception:  # it is only looked at: what cannot be computed stays unknown
            return
        self.values[node, 0] = np.asarray(out)

    def leaf(self, acc: Any) -> Any:
        return None if acc.leaf is None else fetched(acc.leaf)

    def inputs(self, node: Any) -> list[Any]:
        """The values that are known of what goes into a node."""
        found = [
            self.leaf(e) if e.__class__ is AccumulateGrad else self.values.get(self.end_of(e))
            for e in node.edges if e is not None
        ]  # fmt: skip
        found += [fetched(a) for a in self._given(node)]
        return [v for v in found if v is not None]

    def unknown(self, node: Any) -> Any:
        """A node whose value is not known, and goes into this one: of compiled code, or of an
        operation that could make what is not finite."""
        for edge in node.edges:
            if edge is not None and edge.__class__ is not AccumulateGrad:
                below, index = self.end_of(edge)
                prim = getattr(below, "prim", None)
                known = (below, index) in self.values or (prim is not None and prim.name in _SAFE)
                if not known:
                    return below
        return None

    def _given(self, node: Any) -> list[Tensor]:
        saved = getattr(node, "saved", None) or ()
        return [
            s for i, s in enumerate(saved)
            if isinstance(s, Tensor) and (i >= len(node.edges) or node.edges[i] is None)
        ]  # fmt: skip

    def back(self, node: Any, bad: Callable[[Any], bool]) -> tuple[str, Any] | None:
        """What bad thing goes into a node, through nodes whose values are not known."""
        seen, todo = {node}, [node]
        while todo:
            at = todo.pop()
            for given in self._given(at):
                array = fetched(given)
                if array is not None and bad(array):
                    return "given", array
            for edge in at.edges:
                if edge is None:
                    continue
                if edge.__class__ is AccumulateGrad:
                    array = self.leaf(edge)
                    if array is not None and bad(array):
                        return "leaf", edge
                    continue
                below, index = self.end_of(edge)
                value = self.values.get((below, index))
                if value is not None and bad(value):
                    return "node", below
                if value is None and below not in seen:
                    seen.add(below)
                    todo.append(below)
        return None


def _is_as_saved(node: Any, i: int) -> bool:
    versions = getattr(node, "versions", None)
    return version_of(node.saved[i]) == (0 if versions is None else versions[i])


class CompiledLoss:
    """non-finite-forward, of a compiled step: its results are looked at, which no backward is, and
    a parameter that it may have stepped."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.times: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def called(self, compiled: Any, out: Any) -> None:
        given = tensors(out)
        if any(t.requires_grad for t in given):
            return  # what comes of it has a backward
        bad = next((a for t in given if not t.ndim and (a := _not_finite(t)) is not None), None)
        said = "" if bad is None else f"gives {_said(bad)}"
        if not isinstance(out, Tensor) and (said or not given):  # some of it may be a metric
            left = self._of_parameters()
            said = left and (said or left)
        if not said:
            return
        times = self.times[compiled] = self.times.get(compiled, 0) + 1
        if times == 2:
            name = getattr(compiled.fn, "__name__", type(compiled.fn).__name__)
            text = f"compiled {name} {said}; run it eagerly to learn where"
            self.session.add("non-finite-forward", here(), text)

    def _of_parameters(self) -> str:
        """What a step that gives nothing has left in the smallest parameters."""
        for held in self.session.holders():
            small = min(held.params, key=lambda p: p.numel(), default=None)
            bad = None if small is None else _not_finite(small)
            if small is not None and bad is not None:
                return f"leaves {_said(bad)} in {self.session.names.tensors([small])[0]}"
        return ""


def _not_finite(t: Tensor) -> np.ndarray | None:
    array = array_of(t)
    floats = array is not None and array.dtype.kind == "f"
    return array if floats and not np.isfinite(array).all() else None


CHECKS = (Numbers, CompiledLoss)
__all__ = ["CHECKS", "Numbers"]
