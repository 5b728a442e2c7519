"""When the gradients of a stage are averaged over replicas: with the last micro-batch's backward.

A stage's module may be, or hold, a ``DistributedDataParallel`` or units of ``fully_shard``. Their
own ways to put communication off are used. Knows these by what they can do, not by their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ... import nn
from ...nn.module import Module
from .weighing import Count


class GradSync:
    """Puts gradient communication inside ``module`` off until the last backward."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.begin()

    def begin(self) -> None:
        """A step begins: look for replicas and shards again. (Not for every micro-batch.)"""
        self.replicas = self._found("prepare_backward")
        self.sharded = self._found("reduce_gradients")

    def _found(self, name: str) -> list[Any]:
        """Modules with the method ``name``; of nested ones the outermost."""
        found: list[Any] = []
        inside: set[int] = set()
        for m in self.module.modules() if isinstance(self.module, nn.Module) else ():
            if id(m) not in inside and callable(getattr(type(m), name, None)):
                found.append(m)
                inside.update(id(c) for c in m.modules())
        return found

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Around every forward: of its backward it is not known yet whether it is the last."""
        with ExitStack() as stack:
            for m in self.replicas:
                stack.enter_context(m.no_sync())
            yield

    @contextmanager
    def backward(
        self, last: bool, parts: bool = False, count: Count | None = None, counts: bool = True
    ) -> Iterator[None]:
        """Around every backward; ``last``: of the step; ``parts``: it is one of two parts.
        ``count``: how much its micro-batch counts; ``counts``: whether in this part."""
        for m in self.sharded:
            _set_all(m, last and not parts)
        with ExitStack() as stack:
            if count is not None:
                for m in self.replicas:
                    stack.enter_context(m._weighed(count.weight()))
                for m in self.sharded:
                    stack.enter_context(m._weighed(count.weight(counts)))
            for m in self.replicas:
                if last:
                    m.prepare_backward()
                else:
                    stack.enter_context(m.no_sync())
            yield
        if last and parts:
            for m in self.sharded:
                m.reduce_gradients()
                _set_all(m, True)


def _set_all(module: Module, on: bool) -> None:
    """Whether the next backward of ``module`` is the one that reduces, and drops the weights."""
    module.set_is_last_backward(on)
    module.set_requires_gradient_sync(on)
    module.set_reshard_after_backward(on)
