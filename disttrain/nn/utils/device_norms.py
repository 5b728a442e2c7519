"""Norms of gradients on devices, and clipping by them, without a wait of the host: every number on
the way is a tensor there.

What is cut over ranks has its norms joined by them, in one message for all that lies alike. Knows
tensors and what their arrays say of themselves; no device by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...backends.array_kinds import ArrayKind
from ...backends.device.memory import memory_of
from ...core import Tensor, no_grad, wrap
from ...core.types import dtypes


def on_device(tensors: Sequence[Tensor]) -> bool:
    """Whether the numbers of one of ``tensors`` lie on a device."""
    return any(not t.is_sparse and not memory_of(t.array).on_host for t in tensors)


def total_norm(tensors: Sequence[Tensor], p: float, parts: Sequence[Any] = ()) -> Tensor:
    """The norm of all elements of ``tensors`` together, 0-d and on their device (the first one,
    where they lie on several, or some on the host). ``parts``:
    parameters of which other ranks have the rest, and perhaps the gradients; their ``over_parts``
    joins what the ranks have found, in one number for all of them."""
    how = "sum" if math.isfinite(p) else "max" if p > 0 else "min"
    alike: dict[Any, tuple[Any, list[Any]]] = {}
    for t in tensors:
        array: Any = t.array
        where = array.where() if isinstance(array, ArrayKind) else None
        key = ("alone", t.device) if where is None else ("spread", *where)
        if where is not None and array.together(()) is None:  # sums that are not done
            array = array.as_gradient(array)
        join = None if where is None else array.over_parts
        alike.setdefault(key, (join, []))[1].append(getattr(array, "local", array))
    several: dict[Any, list[Any]] = {}
    for param in parts:
        several.setdefault(param.over_parts, []).append(param)
    with no_grad():
        norms = [_joined(_norms(arrays, p), p, how, join) for join, arrays in alike.values()]
        norms += [_joined(_of_parts(ps, p), p, how, join) for join, ps in several.items()]
        found: Any = norms[0] if len(norms) == 1 else ops.cat(_together(norms))
        return ops.norm(found, p)


def _together(norms: list[Any]) -> list[Any]:
    there = next(n.device for n in norms if not memory_of(n.array).on_host)
    return [n if n.device == there else n.to(there) for n in norms]


def _norms(arrays: list[Any], p: float) -> Any:
    return ops.stack([_norm(wrap(a), p) for a in arrays])


def _of_parts(params: list[Any], p: float) -> Any:
    """The norm of the gradients of ``params`` together, which may be none here."""
    grads = [q.grad.array for q in params if q.grad is not None]
    if not grads:
        grads = [params[0].detach()[:0].array]
    return ops.norm(_norms(grads, p), p).reshape(1)


def _joined(values: Tensor, p: float, how: str, join: Any) -> Any:
    """``values``, norms of parts, over all ranks that have one."""
    if join is None:
        return values
    if how == "sum" and p:
        values = values**p
    memory = memory_of(values.array)
    with memory.here():
        join(memory.raw(values.array), how)
    return values ** (1.0 / p) if how == "sum" and p else values


def _norm(part: Tensor, p: float) -> Any:
    if not part.numel():
        start = math.inf if p == -math.inf else 0.0
        return ops.full((), start, dtype=dtypes.float32, device=part.device)
    return ops.norm(part.float() if part.dtype.itemsize < 4 else part, p)


def scale(tensors: Sequence[Any], max_norm: float, total: Any) -> None:
    """Multiply ``tensors`` by max_norm / ``total`` where that is below 1, in place."""
    local = getattr(total.array, "local", None)  # a number that every rank has
    total = total if local is None else wrap(local)
    with no_grad():
        factor = ops.clamp(max_norm / (total + 1e-6), max=1.0)
        for t in tensors:
            t.mul_(factor.to(t.device, t.dtype))
