"""Units that were zero for all that was seen: looked at in a graph now and then."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..core import Tensor
from ..core.node import AccumulateGrad, Output
from .places import forward_of
from .session import Session, Walked
from .values import array_of

_EVERY = 10  # walks; later rarely
_NAMES = frozenset({"relu", "relu6", "hardtanh", "threshold"})
_SAMPLES, _ROWS, _MANY_ROWS = 4, 64, 128  # graphs, and rows, that must have been seen
_SHARE, _UNITS, _FEW = 0.9, 16, 4


class _Layer:
    """What is known of the units of one ReLU."""

    def __init__(self, units: int) -> None:
        self.live = np.zeros(units, bool)
        self.samples = self.rows = 0


class Dead:
    """dead-activations."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.layers: dict[Any, _Layer] = {}
        self.modules: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def before_walk(self, found: Walked) -> None:
        number = found.number
        if number % _EVERY or (number > 10 * _EVERY and number % (10 * _EVERY)):
            return
        count = 0
        seen = set()
        for node in _rectifiers(found):
            name = node.prim.name.strip("_")
            array = _values(node)
            if array is None or array.ndim < 2 or not len(array):
                continue
            module = self.session.module_of(node)
            if module is None:
                key: Any = (name, count)
            else:
                key = self.modules.setdefault(module, len(self.modules)), array.ndim
                key = (*key, array.shape[1 if array.ndim > 3 else -1])
            count += 1
            self._take(key, array, key not in seen)
            seen.add(key)
            self._judge(key, module, found)

    def _take(self, key: Any, array: np.ndarray, new: bool) -> None:
        axis = 1 if array.ndim > 3 else array.ndim - 1
        others = tuple([i for i in range(array.ndim) if i != axis])
        live = (array != 0).any(axis=others)
        layer = self.layers.get(key)
        if layer is None or layer.live.shape != live.shape:
            layer = self.layers[key] = _Layer(live.size)
        layer.live |= live
        layer.samples += new
        layer.rows += array.size // live.size

    def _judge(self, key: Any, module: Any, found: Walked) -> None:
        layer = self.layers[key]
        if layer.samples < _SAMPLES or layer.rows < _ROWS:
            return
        dead, units = int((~layer.live).sum()), layer.live.size
        most = units >= _UNITS and layer.rows >= _MANY_ROWS and dead >= _SHARE * units
        if not most and (dead < units or units < _FEW):
            return
        name = "a ReLU" if module is None else self.session.names.module(module)
        place = (None if module is None else forward_of(module)) or found.place
        text = f"{name}: {dead} of {units} units were zero for all {layer.rows} rows seen"
        self.session.add("dead-activations", place, text)
        layer.samples = -(1 << 30)  # once


def _rectifiers(found: Walked) -> list[Any]:
    """The nodes of ReLUs in the order in which they were made, but for those after which come no
    parameters: they are part of a loss, which may be zero."""
    nodes = [n for n in found.walk.pending if n.__class__ is not AccumulateGrad]
    inner: set = set()  # nodes with parameters between them and the loss
    out = []
    for node in sorted(nodes, key=lambda n: -n.seq):
        prim: Any = getattr(node, "prim", None)
        inside = node in inner and prim is not None
        if inside and (prim.name.strip("_") in _NAMES or _cuts_at_zero(node)):
            out.append(node)
        edges = [e.node if e.__class__ is Output else e for e in node.edges if e is not None]
        if node in inner or any(e.__class__ is AccumulateGrad for e in edges):
            inner.update(edges)
    return out[::-1]


def _values(node: Any) -> np.ndarray | None:
    """What it gave, as far as that is kept."""
    if isinstance(node.out, Tensor):
        return array_of(node.out)
    given = node.saved[0] if node.saved and _cuts_at_zero(node) else None
    array = array_of(given) if isinstance(given, Tensor) else None
    return None if array is None else np.maximum(array, 0)


def _cuts_at_zero(node: Any) -> bool:
    """``x.clamp(min=0)``."""
    return node.prim.name == "clip" and node.params.get("low") == 0


CHECKS = (Dead,)
__all__ = ["CHECKS", "Dead"]
