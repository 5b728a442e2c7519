"""Nodes whose rules run on Tensors in every walk, for arrays of kinds that have no operators."""

from __future__ import annotations

import functools
from typing import Any

from .algebra import Algebra
from .node import Node
from .tensor import Tensor, wrap


class TensorNode(Node):
    """A node of arrays of another kind than numpy's: one text of each rule serves all of them.

    ``on_host``: which inputs are the host's numbers that went along with a device's arrays, where
    their gradients go back to.
    """

    on_host: tuple[int, ...] = ()
    on_device = True

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        if tensors:
            found = super().run(g, True, wanted)
            return self._sent_back(found) if self.on_host else found
        if g.__class__ is tuple:
            g = tuple([None if x is None else wrap(x) for x in g])
        else:
            g = wrap(g)
        found = super().run(g, True, wanted)
        if self.on_host:
            found = self._sent_back(found)
        return tuple([r.array if isinstance(r, Tensor) else r for r in found])

    def _sent_back(self, found: tuple) -> tuple:
        sent = list(found)
        for i in self.on_host:
            r = sent[i]
            if isinstance(r, Tensor):
                if r.ndim:  # a number's gradient: add it up before it travels
                    r = Algebra.sum_to(r, ())
                sent[i] = Algebra.to_host(r)
        return tuple(sent)

    def shown(self) -> Any:
        if self.__class__ is TensorNode:
            self.__class__ = _named(self.name())
        return self


@functools.cache
def _named(name: str) -> type:
    """The class that such nodes show to programs."""
    return type(name, (TensorNode,), {})
