"""Gradients that are averaged later than the buckets, in one go: when another one is there.

Knows groups and leaves; no buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.engine import on_finish
from ...core.tensor import Tensor, wrap


class Delayed:
    """The gradients of ``params``, one behind the other, reduced when ``trigger`` gets its own."""

    def __init__(
        self, params: Sequence[Tensor], trigger: Tensor, group: Any,
        sync_wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.params, self.group, self.sync_wanted = list(params), group, sync_wanted
        self.flats: list[np.ndarray] = []
        self.views: list[Tensor] = []
        self.works: list[Any] = []
        for kind in dict.fromkeys(p.array.dtype for p in self.params):
            members = [p for p in self.params if p.array.dtype == kind]
            flat = group.empty(sum(p.array.size for p in members), kind)
            flat.fill(0)
            self.flats.append(flat)
        room = {flat.dtype: flat for flat in self.flats}
        for p in self.params:
            flat = room[p.array.dtype]
            self.views.append(wrap(flat[: p.array.size].reshape(p.array.shape)))
            room[p.array.dtype] = flat[p.array.size :]
        self.clear()
        self.handle = trigger.register_hook(self._reduce)

    def clear(self) -> None:
        """Before a backward: gradients that were dropped are zeros in their place again."""
        for p, view in zip(self.params, self.views, strict=True):
            if p._grad is None:
                view.array.fill(0)
                p._grad = view
            elif p._grad is not view:
                view.array[...] = p._grad.array
                p._grad = view

    def _reduce(self, grad: Tensor) -> None:
        """The hook of ``trigger``."""
        if not self.sync_wanted():
            return
        for flat in self.flats:
            np.multiply(flat, np.array(1 / self.group.size).astype(flat.dtype), out=flat)
            self.works.append(self.group.all_reduce(flat, async_op=True))
        on_finish(self._wait)

    def _wait(self) -> None:
        works, self.works = self.works, []
        for work in works:
            work.wait()
