"""Clipping by the norm of all gradients of a model of which some are sharded.

Every gradient counts once: what is sharded is summed over its group, what every rank has whole is
not. Knows the units of ``FullyShardedDataParallel``, and sharded tensors by ``full_tensor``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....comm.calls.reduce_ops import ReduceOp
from ....comm.group.group import ProcessGroup
from ....core import no_grad, wrap
from ....core.types import dtypes
from ....nn.utils.clip import clip_grad_norm_, norm_of, type_of_norm
from ....nn.utils.device_norms import on_device
from ....trace import warn
from .unit import FlatUnit


def clip(root: Any, units: list[FlatUnit], max_norm: float, norm_type: float) -> Any:
    """Clip the gradients of ``root.parameters()``; gives the total norm as a 0-d tensor."""
    if on_device(list(root.parameters())):
        return clip_grad_norm_(root.parameters(), max_norm, norm_type)
    groups: dict[int, tuple[Any, list[Any]]] = {}
    sharded: set[int] = set()
    for unit in units:
        if not unit.weights or unit.sharding.group.size == 1:
            continue
        _, mine = groups.setdefault(id(unit.sharding.group), (unit.sharding.group, []))
        owners: list[Any] = [m.sharded for m in unit.members] if unit.use_orig else [unit.flat]
        for p in owners:
            sharded.add(id(p))
            if p.grad is not None:
                mine.append(p.grad)
    whole = [p.grad for p in root.parameters() if p.grad is not None and id(p) not in sharded]
    sums = [over(group, power_sum(mine, norm_type), norm_type) for group, mine in groups.values()]
    total = finish([*sums, power_sum(whole, norm_type)], norm_type)
    grads = [g for _, mine in groups.values() for g in mine] + whole
    if not grads:
        warn(
            f"clip_grad_norm_: called with max_norm={max_norm} and norm_type={norm_type} on rank "
            f"{root.rank} with no gradients -- returning the total norm in the default dtype "
            f"{dtypes.get_default_dtype()}",
        )
        return wrap(np.asarray(total, dtypes.get_default_dtype().np))
    scale = max_norm / (total + 1e-6)
    if scale < 1.0:
        with no_grad():
            for g in grads:
                g.mul_(scale)
    return wrap(np.asarray(total, type_of_norm(g.meta()[1] for g in grads)))


def power_sum(grads: list[Any], p: float) -> float:
    """What norms of parts are combined from: the largest size (the smallest, where ``p`` is
    -inf), or the sum of p-th powers."""
    with np.errstate(over="ignore"):
        norms = [norm_of(g, p) for g in grads if g.numel()]
    if math.isinf(p):
        return max(norms, default=0.0) if p > 0 else min(norms, default=math.inf)
    return float(sum(n**p for n in norms))


def over(group: ProcessGroup, value: float, p: float) -> float:
    """``value`` of all ranks of ``group`` together."""
    both = np.array([value], np.float64)
    how = ReduceOp.SUM if math.isfinite(p) else ReduceOp.MAX if p > 0 else ReduceOp.MIN
    group.all_reduce(both, how)
    return float(both[0])


def finish(parts: list[float], p: float) -> float:
    """The norm from what parts contribute."""
    if math.isinf(p):
        return max(parts) if p > 0 else min(parts)
    return float(sum(parts) ** (1.0 / p))
