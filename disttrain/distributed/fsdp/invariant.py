"""``fully_shard(..., deterministic="global")``: virtual shards over sharded parameters.

Ranks compute neighbouring shards at the same time, so the reduce-scatter of one backward joins a
subtree of all shards, and what a rank keeps between the backwards of a step are sums of *shards* of
gradients. Only the root has this; the units below it work as ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...comm.group.group import ProcessGroup
from ...context import thread
from ...core.types.dtypes import numpy_type
from ...errors import ConfigError
from ...nn.module import Module
from ..invariant.shards import VirtualShards
from ..invariant.strategy import ShardRun, common_seed
from ..invariant.tree_sum import TreeSum
from ..invariant.weights import mean
from .shards.params import ShardedParameter, add_gradient
from .unit import Unit

_WIDE_ENOUGH = 4  # bytes: narrower sums are rounded at every reduction


class ShardedRun(ShardRun):
    """The invariant mode of the tree of ``units`` below ``module``."""

    def __init__(self, module: Module, units: list[Unit], virtual_shards: int) -> None:
        sharding = units[0].sharding
        groups = [sharding.group, *([sharding.replicas] if sharding.replicas else [])]
        for unit in units:
            _check(unit, groups[0])
            unit.choices.divide_factor = 1.0  # the mean is taken at the end, over all shards
        rank = sharding.rank
        if sharding.replicas is not None:
            rank += sharding.replicas.rank * sharding.world
        shards = VirtualShards(
            virtual_shards, rank, sharding.total, common_seed(groups), strided=True
        )

        def join(array: np.ndarray) -> None:
            for group in groups:
                group.all_reduce(array)

        super().__init__(module, shards, join)
        self.units = units
        self.sums: dict[ShardedParameter, TreeSum] = {}
        module.register_forward_pre_hook(lambda m, args: self._before_forward())
        module.register_forward_hook(lambda m, args, out: self.leave(), always_call=True)

    def _before_forward(self) -> None:
        if thread.grad_enabled:
            for unit in self.units:
                _check_choices(unit)
                for member in unit.members:
                    node = member.sharded._node
                    if node is not None and node.store is None:
                        node.store = self._store
        self.enter()

    def _store(self, param: ShardedParameter, g: Any) -> None:
        """A shard of a gradient, reduced over the ranks."""
        if not self._running:
            self.begin()
        self.sums.setdefault(param, TreeSum()).add(self.shards.index, g.local)

    def deliver(self) -> None:
        if not self.shards.last:
            return
        sums, self.sums = self.sums, {}
        divisor = self.weights.divisor()
        for param, terms in sums.items():
            total = terms.total()
            if total is not None:
                add_gradient(param, mean(total, divisor))


def _check(unit: Unit, group: ProcessGroup) -> None:
    if unit.sharding.group is not group:
        raise ConfigError(
            f"fully_shard: unit {unit.name!r} lies on another group than the root, which "
            'deterministic="global" does not allow; give all units one mesh'
        )
    kind = numpy_type(unit.policy.reduce_dtype)
    kinds = [kind] if kind is not None else [m.sharded.array.dtype for m in unit.members]
    if any(k.itemsize < _WIDE_ENOUGH for k in kinds):
        raise ConfigError(
            f"fully_shard: gradients of unit {unit.name!r} are summed in "
            f"{'/'.join(sorted({k.name for k in kinds}))}, which is rounded once per reduction, so "
            'the result would depend on the number of ranks; deterministic="global" needs '
            "MixedPrecisionPolicy(reduce_dtype=float32)"
        )


def _check_choices(unit: Unit) -> None:
    """Every backward of a virtual shard is reduced, at its end, as a plain sum."""
    c = unit.choices
    if not (c.sync and c.all_reduce and c.last_backward and c.divide_factor == 1.0):
        raise ConfigError(
            f"fully_shard: unit {unit.name!r} was told to leave out a reduction, or to divide by "
            'another factor, which deterministic="global" does not allow: it reduces every virtual '
            "shard, and takes the mean at the end of a step"
        )
