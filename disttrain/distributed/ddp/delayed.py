"""Gradients that are averaged later than the buckets, in one go: when another one is there.

Knows groups and leaves; no buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.device.memory import memory_of
from ...comm.group.group import ProcessGroup
from ...core.backward.engine import on_finish
from ...core.tensor import Tensor, wrap
from ...errors import ConfigError
from ...nn.module import Module


class Delayed:
    """The gradients of ``params``, one behind the other, reduced when ``trigger`` gets its own."""

    def __init__(
        self, params: Sequence[Tensor], trigger: Tensor, group: ProcessGroup,
        sync_wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.params, self.group, self.sync_wanted = list(params), group, sync_wanted
        self.memory = memory_of(self.params[0].array)
        self.flats: list[Any] = []
        self.views: list[Tensor] = []
        self.works: list[Any] = []
        for kind in dict.fromkeys(p.array.dtype for p in self.params):
            members = [p for p in self.params if p.array.dtype == kind]
            flat = self.memory.flat(group, sum(p.array.size for p in members), kind)
            flat.fill(0)
            self.flats.append(flat)
        room = {flat.dtype: flat for flat in self.flats}
        for p in self.params:
            flat = room[p.array.dtype]
            slot = flat[: p.array.size].reshape(p.array.shape)
            self.views.append(wrap(self.memory.held(slot)))
            room[p.array.dtype] = flat[p.array.size :]
        self.clear()
        self.handle = trigger.register_hook(self._reduce)

    def clear(self) -> None:
        """Before a backward: gradients that were dropped are zeros in their place again."""
        raw = self.memory.raw
        for p, view in zip(self.params, self.views, strict=True):
            if p._grad is None:
                raw(view.array).fill(0)
                p._grad = view
            elif p._grad is not view:
                raw(view.array)[...] = raw(p._grad.array)
                p._grad = view

    def _reduce(self, grad: Tensor) -> None:
        """The hook of ``trigger``."""
        if not self.sync_wanted():
            return
        for flat in self.flats:
            np.multiply(flat, self.memory.full((), 1 / self.group.size, flat.dtype), out=flat)
            self.works.append(self.group.all_reduce(flat, async_op=True))
        on_finish(self._wait)

    def _wait(self) -> None:
        works, self.works = self.works, []
        for work in works:
            work.wait()


def check_arguments(late: tuple, where: tuple) -> None:
    """What contradicts itself among the arguments of the wrapper."""
    if (late[0] is None) != (late[1] is None):
        raise ConfigError(
            "DistributedDataParallel: delay_all_reduce_named_params and param_to_hook_all_reduce "
            "need to be set at the same time: the parameters, and the one whose gradient comes "
            "after theirs"
        )
    if where[0] is not None and where[1] is not None:
        raise ConfigError(
            "DistributedDataParallel: Cannot specify both process_group and device_mesh arguments"
        )


def name_of(module: Module, param: Tensor | None) -> str:
    """What ``module`` calls its parameter; nothing for none."""
    return next((n for n, p in module.named_parameters() if p is param), "")
