"""``same`` in a compiled function: an effect, which every replay calls with the values of then.

Only what tensors say is known anew in a replay: a value with numbers of Python's own is checked by
a function that runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import tree
from ...comm.calls.header import Site
from ...core.effects import Effect, aside, not_repeated, performed
from ...core.tensor import Tensor
from ...nn import Module
from .sites import here

__outward__ = ()  # it is an effect
_FIXED = (str, bytes, bool, type(None))  # replays look whether these are what they were

Add = Callable[[Site, Any, Mapping[int, Tensor]], None]


def repeated(add: Add, x: Any) -> None:
    """Call ``add`` with the line of the program, ``x``, and what stands for tensors in it; now, and
    in every replay of the capture that runs on this thread."""
    leaves, build = tree.flatten(x)
    if not all(isinstance(leaf, (Tensor, Module, *_FIXED)) for leaf in leaves):
        not_repeated(
            "same(...) checks what is no tensor, text or module, which a replay would not read "
            "anew; check numbers outside of the function"
        )
        aside(lambda: add(here(), x, {}))
        return
    modules = [leaf for leaf in leaves if isinstance(leaf, Module)]
    own = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    effect = _Check(add, leaves, build, own)
    performed("same", effect, [*given, *own])


class _Check(Effect):
    """Of a value made of ``leaves`` by ``build``; ``own``: tensors of modules in it. Keeps no other
    tensors."""

    def __init__(
        self, add: Add, leaves: list, build: Callable[[list], Any], own: list[Tensor]
    ) -> None:
        self._add, self._build, self._own = add, build, own
        self._site: Site | None = None
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def __call__(self, *tensors: Tensor) -> None:
        self._site = self._site or here()  # of the first call: the program's
        leaves, count = list(self._leaves), len(self._places)
        for i, t in zip(self._places, tensors[:count], strict=True):
            leaves[i] = t
        now = {id(old): t for old, t in zip(self._own, tensors[count:], strict=True)}
        self._add(self._site, self._build(leaves), now)

    def rehearse(self, arrays: object) -> None:
        """There is nothing to check."""

    def __repr__(self) -> str:
        return "<same>"


__all__ = ["repeated"]
