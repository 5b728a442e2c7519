"""Backward passes whose gradients do not go to ``.grad``: those of distributed autograd, which go
to a context. What the walk says is their home lies in ``.grad`` while the walk runs, so that the
reducer sees one place; then it goes home, and ``.grad`` is what it was.

Knows the reducer by its attributes.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from ....context import thread
from ....core.backward.engine import on_finish
from ....core.tensor import Tensor, wrap


class Home(Protocol):
    """Where the gradients of leaves are kept."""

    def get(self, leaf: Tensor) -> Tensor | None:
        """The gradient of a leaf, if it has one; what is written to it may get lost unless it is
        put back."""

    def put(self, leaf: Tensor, grad: Tensor) -> None:
        """Keep this gradient of a leaf, in place of what was there."""


def lend(r: Any) -> None:
    """Let the gradients of reducer ``r`` be those of the walk's home, if it has one, from now to
    its end; once for each walk."""
    walk = thread.walk
    home = walk.home
    if home is None or (r.lent is not None and r.lent() is walk):
        return
    r.lent = weakref.ref(walk)
    own = [p._grad for p in r.params]
    homes = [home.get(p) for p in r.params]
    for p, grad in zip(r.params, homes, strict=True):
        p._grad = grad
    _leave_memory(r, own)

    def last() -> None:  # after what the reducer will ask for
        on_finish(lambda: _give_back(r, home, own))

    on_finish(last, lambda: _restore(r, own))


def _leave_memory(r: Any, own: list[Tensor | None]) -> None:
    """Gradients of the program that lie in the buckets keep that memory; the buckets get other."""
    house = r.house
    left = set()
    for i, grad in enumerate(own):
        if grad is not None and grad is house.views[i] and house.place[i] not in left:
            left.add(house.place[i])
            house.let_go(i)


def _give_back(r: Any, home: Home, own: list[Any]) -> None:
    for i, p in enumerate(r.params):
        grad = p._grad
        if grad is None:
            continue
        lies_here = grad is r.house.views[i]
        home.put(p, wrap(grad.array.copy("C")) if lies_here else grad)
    _restore(r, own)


def _restore(r: Any, own: list[Any]) -> None:
    r.lent = None
    for p, grad in zip(r.params, own, strict=True):
        p._grad = grad
