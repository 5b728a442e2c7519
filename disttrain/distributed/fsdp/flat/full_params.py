"""Whole parameters in the modules' places, outside of forward and backward: ``summon_full_params``
and the state dicts show them so.

``expose`` puts any tensors into the places of a unit's parameters; ``gather_vector`` makes the
values, in full precision and apart from the unit's own weights. Knows units of
``FullyShardedDataParallel``; which modules have some is told by ``units_below``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....core import Tensor, wrap
from ....errors import ShapeError
from ....nn.parameter import Parameter, replace_data
from .layout import views
from .moves import FlatWeights, raw_of
from .param import FLAT_PARAM
from .unit import FlatUnit


def gather_vector(unit: FlatUnit, local: Any = None) -> Any:
    """The unit's whole vector (or that of which ``local`` is this rank's chunk), with its padding:
    raw arrays where the unit's shards lie. A collective; with one rank in the group the chunk
    itself."""
    w = unit.weights[0]
    if local is None:
        w.refresh()
        local = w.local
    if w.layout.world == 1:
        return local
    use, home = w.places.use, w.places.home
    with use.here():
        out = use.empty(w.layout.padded, local.dtype)
        unit.sharding.group.all_gather_single(out, use.take(local))
        return use.numbers(out) if home.on_host else out


@contextmanager
def expose(unit: FlatUnit, values: list[Any]) -> Iterator[None]:
    """Inside the block the unit's modules hold ``values`` in its members' places, registered as
    parameters in the order in which the module had them."""
    before = {m: dict(m._parameters) for m in unit.orders}
    inner = unit.modules[0]
    before.setdefault(inner, dict(inner._parameters))
    for m, value in zip(unit.members, values, strict=True):
        for module, name in m.places:
            module._parameters[name] = value
            if not unit.use_orig:
                module.__dict__.pop(name, None)
    if not unit.use_orig:
        inner._parameters.pop(FLAT_PARAM, None)
    for module, order in unit.orders.items():
        _sort(module._parameters, order)
    unit.exposed = values
    try:
        yield
    finally:
        unit.exposed = None
        for module, params in before.items():
            module._parameters.clear()
            module._parameters.update(params)
        if not unit.use_orig:
            for m in unit.members:
                for module, name in m.places:
                    module.__dict__[name] = m.full


def _sort(params: dict[str, Any], order: tuple[str, ...]) -> None:
    items = {k: params[k] for k in order if k in params}
    items.update(params)
    params.clear()
    params.update(items)


class Summons:
    """What ``summon_full_params`` was asked for."""

    def __init__(self, writeback: bool, rank0_only: bool, offload: bool, grads: bool) -> None:
        self.writeback, self.rank0_only = writeback, rank0_only
        self.offload, self.grads = offload, grads


@contextmanager
def summoned(units: list[FlatUnit], wanted: Summons) -> Iterator[None]:
    """Whole parameters of ``units`` inside the block."""
    for unit in units:
        if not unit.resting:
            raise AssertionError(
                f"FSDP: Cannot manually unshard parameters during forward/backward: unit "
                f"{unit.name or 'of the root'!r} is in use; leave the forward or backward first"
            )
    with ExitStack() as stack:
        for unit in units:
            if unit.weights and unit.exposed is None:
                stack.enter_context(_summoned(unit, wanted))
        yield


@contextmanager
def _summoned(unit: FlatUnit, wanted: Summons) -> Iterator[None]:
    w, flat = unit.weights[0], unit.flat
    assert flat is not None
    vector = gather_vector(unit)
    if (wanted.offload or unit.offloads) and not wanted.writeback and vector is w.local:
        vector = vector.copy()  # as if it had come from elsewhere
    grads = _gather_grads(unit) if wanted.grads else None
    if wanted.rank0_only and unit.sharding.group.rank:
        yield
        return
    parts = views(vector, w.layout)
    shown = vector if unit.use_orig else vector[: w.layout.numel]
    held = w.held
    replace_data(flat, wrap(held(shown)))
    if unit.use_orig:
        values, kept = _whole_originals(unit, parts, grads)
    else:
        needs = flat.requires_grad
        values, kept = [Parameter(wrap(held(p)), requires_grad=needs) for p in parts], []
        for value, grad in zip(values, grads or [], strict=bool(grads)):
            value.grad = None if grad is None else wrap(held(grad))
    latest: list[Any] = []
    try:
        with expose(unit, values):
            try:
                yield
            finally:
                _collect(unit, values, parts)
                latest = [None if v.grad is None else raw_of(v.grad.array) for v in values]
    finally:
        replace_data(flat, wrap(held(w.local)))
        _give_back(unit, wanted.writeback, vector, kept)
        if wanted.writeback and grads is not None:
            _write_grads(unit, latest)


def _whole_originals(
    unit: FlatUnit, parts: list[Any], grads: list[Any] | None
) -> tuple[list[Any], list[Any]]:
    """The program's own parameters, whole; and what they held before."""
    kept, held = [], unit.weights[0].held
    unit.mark_parts(False)
    for i, (m, part) in enumerate(zip(unit.members, parts, strict=True)):
        p = m.sharded
        kept.append((p, p.grad))
        p.grad = None
        replace_data(p, wrap(held(part)))
        if grads is not None and grads[i] is not None:
            p.grad = wrap(held(grads[i]))
    return [m.sharded for m in unit.members], kept


def _collect(unit: FlatUnit, values: list[Any], parts: list[Any]) -> None:
    """Parameters that the program has replaced in the block go into the vector."""
    for m, value, part in zip(unit.members, values, parts, strict=True):
        module, name = m.places[0]
        now = module._parameters.get(name)
        now = value if now is None else now
        if raw_of(now.array) is part:
            continue
        if tuple(now.array.shape) != part.shape:
            raise ShapeError(
                "FSDP: Cannot writeback when the parameter shape changes: "
                f"{m.name} has become {list(now.array.shape)} inside summon_full_params; needed is "
                f"{list(part.shape)}"
            )
        unit.weights[0].write(part, raw_of(now.array))


def _give_back(unit: FlatUnit, writeback: bool, vector: Any, kept: list[Any]) -> None:
    """The chunk takes what was written (``writeback``); programs' parameters are parts again."""
    w = unit.weights[0]
    if writeback and vector is not w.local:
        rank, chunk = unit.sharding.rank, w.layout.chunk
        w.local[...] = vector[rank * chunk : (rank + 1) * chunk]
    unit.mark_parts(True)
    for (p, grad), piece in zip(kept, w.pieces or [], strict=bool(kept)):
        replace_data(p, wrap(w.held(piece)))
        p.grad = grad


def _grad_chunk(unit: FlatUnit) -> tuple[Any, list[bool]]:
    """This rank's chunk of the gradients, and which members have one here."""
    w, n = unit.weights[0], len(unit.members)
    assert w.param is not None
    if w.pieces is None:
        g = w.param.grad
        return (None, [False] * n) if g is None else (raw_of(g.array), [True] * n)
    chunk = w.places.home.zeros(w.layout.chunk, w.kind)
    have = [False] * n
    for i, m in enumerate(unit.members):
        g = m.sharded.grad
        if g is not None:
            a, b = w.layout.local(i, unit.sharding.rank)
            chunk[a:b] = raw_of(g.array).reshape(-1)
            have[i] = True
    return chunk, have


def _gather_grads(unit: FlatUnit) -> list[Any]:
    """Whole gradients; None for members that have one nowhere. A collective."""
    w = unit.weights[0]
    chunk, have = _grad_chunk(unit)
    flags = np.array(have, np.uint8)
    if w.layout.world > 1:
        every = np.empty(flags.size * w.layout.world, np.uint8)
        unit.sharding.group.all_gather_single(every, flags)
        flags = every.reshape(w.layout.world, -1).max(0)
    if not flags.any():
        return [None] * len(unit.members)
    if chunk is None:
        chunk = w.places.home.zeros(w.layout.chunk, w.kind)
    vector = gather_vector(unit, chunk.copy())
    return [g if f else None for g, f in zip(views(vector, w.layout), flags, strict=True)]


def _write_grads(unit: FlatUnit, latest: list[Any]) -> None:
    """Gradients as the block left them, cut for this rank."""
    w: FlatWeights = unit.weights[0]
    rank = unit.sharding.rank
    assert w.param is not None
    for i, (m, new) in enumerate(zip(unit.members, latest, strict=True)):
        lo, hi = w.layout.part(i, rank)
        a, b = w.layout.local(i, rank)
        if new is None or hi <= lo:
            continue
        if w.pieces is not None:
            _own_grad(m.sharded).reshape(-1)[...] = new.reshape(-1)[lo:hi]
        else:
            _own_grad(w.param)[a:b] = new.reshape(-1)[lo:hi]


def _own_grad(p: Parameter) -> Any:
    if p.grad is None:
        memory = memory_of(p.array)
        p.grad = wrap(memory.held(memory.zeros(p.array.shape, p.array.dtype)))
    return raw_of(p.grad.array)


def as_local(value: Tensor) -> Any:
    """The raw array of a value of a state dict, whole: of a sharded tensor gathered (a
    collective)."""
    gather = getattr(value, "full_tensor", None)
    whole = value if gather is None else gather()
    return raw_of(whole.detach().array) if isinstance(whole, Tensor) else np.asarray(whole)
