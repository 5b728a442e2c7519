"""Functions of the host inside programs: called with arrays whenever the program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..context import thread
from ..core.gate import Primitive, Tracer
from ..core.tensor import Tensor
from ..ops.functions.views.join import stack
from ..ops.functions.views.split import select
from ..ops.primitives.batching import front
from ..ops.primitives.views import expand, reshape
from .custom import is_followed, is_moved
from .staging import Stage

METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


class Callback(Primitive):
    """``fn(results, *arrays)`` gives a sequence of arrays of the shapes and types ``results``.

    ``method``: how it is called over a batch (``METHODS``): once for each example, or once for all,
    its arrays with one more dimension. ``effect``: it is called even where nobody uses its results.
    ``refusals``: the errors for derivatives of it, and for batches without a ``method``.
    """

    def __init__(
        self, name: str, fn: Callable[..., Sequence[Any]], results: Sequence[tuple], *,
        method: str | None = None, effect: bool = False,
        no_derivative: Exception | None = None, no_batch: Exception | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, self._forward, ())
        self.fn, self.results, self.method = fn, list(results), method
        self.no_derivative, self.no_batch = no_derivative, no_batch
        self.multi, self.outward = True, effect
        self.shape = lambda *given, **params: self.results
        self.batch = self._batch

    def _forward(self, *arrays: Any) -> list:
        found = self.fn(self.results, *arrays)
        return [np.asarray(x, kind) for x, (_, kind) in zip(found, self.results, strict=True)]

    def __call__(self, *args: Any, **params: Any) -> Any:
        given = [a for a in args if isinstance(a, Tensor)]
        if self.no_derivative is not None and any(is_followed(a) or is_moved(a) for a in given):
            raise self.no_derivative
        if not any(isinstance(a, Tracer) for a in given):
            level = next((i for i in reversed(thread.stack) if isinstance(i, Stage)), None)
            if level is not None:
                return level.process(self, args, params)
        return super().__call__(*args, **params)

    def _like(self, results: Sequence[tuple]) -> Callback:
        return Callback(
            self.name, self.fn, results, method=self.method, effect=self.outward,
            no_derivative=self.no_derivative, no_batch=self.no_batch,
        )  # fmt: skip

    def _batch(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        if self.method is None:
            raise self.no_batch or ValueError(f"{self.name}: has no way to be called over a batch")
        if self.method.startswith("sequential"):
            rows = [
                self(*[a if d is None else select(a, d, i)
                       for a, d in zip(args, dims, strict=True)])
                for i in range(size)
            ]  # fmt: skip
            outs = tuple(stack(list(column)) for column in zip(*rows, strict=True))
            return outs, (0,) * len(outs)
        given = [self._whole(a, d, size) for a, d in zip(args, dims, strict=True)]
        results = [((size, *shape), kind) for shape, kind in self.results]
        return self._like(results)(*given), (0,) * len(results)

    def _whole(self, a: Any, d: int | None, size: int) -> Any:
        if d is not None:
            return front(a, d)
        if self.method == "legacy_vectorized":
            return a
        shape = tuple(a.meta()[0])
        one = reshape(a, shape=(1, *shape))
        return one if self.method == "expand_dims" else expand(one, shape=(size, *shape))


__all__ = ["METHODS", "Callback"]
