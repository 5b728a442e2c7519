"""Optimizer state dicts by parameter names: whole values, or each rank's rows as sharded tensors.

Which state there is is compared by one exchange; then every kind of state of a unit is one gather.
Ranks may hold different parameters, and in different order. See ``optim_slots``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import wrap
from ....core.types import dtypes
from ....errors import StateDictError
from ....nn.module import Module
from ...collectives import objects
from ...groups.state import group_or_default
from .optim_slots import Slot, gather_parts, numbered, slots_of, trained
from .state import as_sharded

_CUT = "sharded"


def save(
    model: Module,
    optim: Any,
    optim_input: object = None,
    *,
    group: Any = None,
    rank0_only: bool = False,
    sharded: bool = False,
    state_dict: dict[str, Any] | None = None,
    slots: list[Slot] | None = None,
) -> dict[str, Any]:
    """``optim.state_dict()`` (or the ``state_dict`` given instead) by parameter names.

    Values that have one element per element of a parameter are whole, in its shape, or with
    ``sharded`` sharded tensors. With ``rank0_only`` other ranks get an empty dict. ``slots``: what
    the model trains, under names of one's own. A collective.
    """
    own = optim.state_dict() if state_dict is None else state_dict
    slots = slots_of(model) if slots is None else slots
    if rank0_only or any(s.unit is not None for s in slots):
        group = group_or_default(group)
    numbers = numbered(trained(optim, optim_input, model))
    local = {s.name: _state_of(s, own, numbers) for s in slots}
    everyone = _exchange(slots, local, group)
    empty = rank0_only and bool(group.rank)
    state: dict[str, Any] = {}
    for batch in _batches(slots):
        state |= _values(batch, local, everyone, group, sharded, empty)
    if empty:
        return {}
    ordered = {s.name: state[s.name] for s in slots if s.name in state}
    for key, value in own["state"].items():
        if isinstance(key, str) and key not in ordered and key not in local:
            ordered[key] = value
    return {"state": ordered, "param_groups": _named_groups(own, slots, numbers)}


def _state_of(slot: Slot, own: dict[str, Any], numbers: dict[int, int]) -> dict[str, Any]:
    number = numbers.get(id(slot.param))
    state = own["state"].get(number)
    return own["state"].get(slot.name, {}) if state is None else state


def _exchange(
    slots: list[Slot], local: dict[str, Any], group: objects.ProcessGroup | None
) -> list[dict[str, Any]]:
    """By global rank: which state every rank has, by slot; values where they are no tensors."""
    if group is None:
        return []
    mine = {
        s.name: {k: _told(s, v) for k, v in local[s.name].items()}
        for s in slots
        if s.unit is not None and local[s.name]
    }
    told = objects.all_gather(group, mine) if group.size > 1 else [mine]
    everyone: list[dict[str, Any]] = [{} for _ in range(max(group.ranks) + 1)]
    for rank, what in zip(group.ranks, told, strict=True):
        everyone[rank] = what
    _compare(slots, told)
    return everyone


def _compare(slots: list[Slot], told: list[dict[str, Any]]) -> None:
    """Flat parameters have state everywhere or nowhere."""
    for s in slots:
        if s.unit is None or s.unit.use_orig:
            continue
        mates = [told[r] for r in range(len(told)) if r < s.unit.sharding.group.size]
        have = [bool(t.get(s.name)) for t in mates]
        if have and have[0] and not all(have):
            raise StateDictError(
                "FSDP currently requires each rank to have at least the optimizer states needed by "
                f"rank 0's optimizer but some ranks are missing some of those states: {s.name!r} "
                f"on ranks {[r for r, h in enumerate(have) if not h]}; give every rank's optimizer "
                "the same parameters"
            )


def _told(slot: Slot, value: Any) -> Any:
    if slot.is_sharded_state(value):
        return {_CUT: value.dtype.name}
    return value


def _batches(slots: list[Slot]) -> list[list[Slot]]:
    """Slots of one unit together, in order; others alone."""
    by_unit: dict[int, list[Slot]] = {}
    for s in slots:
        by_unit.setdefault(id(s.unit) if s.unit is not None else id(s), []).append(s)
    return list(by_unit.values())


def _values(
    batch: list[Slot],
    local: dict[str, Any],
    everyone: list[dict],
    group: objects.ProcessGroup | None,
    sharded: bool,
    empty: bool,
) -> dict[str, Any]:
    """The state of the slots of one unit."""
    unit = batch[0].unit
    if unit is None:
        own = local[batch[0].name]
        return {batch[0].name: dict(own)} if own else {}
    mates = [everyone[r] for r in unit.sharding.group.ranks if r < len(everyone)]
    known = {s.name: _merged([t.get(s.name, {}) for t in mates]) for s in batch}
    out: dict[str, Any] = {name: {} for name, what in known.items() if what}
    for key in sorted({k for what in known.values() for k in what}):
        cut = [s for s in batch if isinstance(known[s.name].get(key), dict)
               and _CUT in known[s.name][key]]  # fmt: skip
        for s in batch:
            if key in known[s.name] and s not in cut:
                out[s.name][key] = known[s.name][key]
        kinds: dict[str, list[Slot]] = {}
        for s in cut:
            kinds.setdefault(known[s.name][key][_CUT], []).append(s)
        for kind, of in sorted(kinds.items()):
            _whole(of, key, dtypes.as_dtype(kind).np, local, out, sharded, empty)
    return out


def _whole(
    slots: list[Slot], key: str, kind: np.dtype, local: dict[str, Any], out: dict[str, Any],
    sharded: bool, empty: bool,
) -> None:  # fmt: skip
    parts = [s.part(local[s.name][key]) if key in local[s.name] else None for s in slots]
    for s, whole in zip(slots, gather_parts(slots, parts, kind), strict=True):
        if empty:
            continue
        assert s.unit is not None
        out[s.name][key] = as_sharded(whole, s.unit.sharding) if sharded else wrap(whole.copy("C"))


def _merged(told: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for t in told:
        for key, value in t.items():
            out.setdefault(key, value)
    return out


def _named_groups(own: dict[str, Any], slots: list[Slot], numbers: dict[int, int]) -> list[dict]:
    """The groups with names; a flat parameter stands for those of its members."""
    names: dict[Any, list[str]] = {}
    for s in slots:
        number = numbers.get(id(s.param))
        if number is not None:
            names.setdefault(number, []).append(s.name)
    groups = []
    for g in own["param_groups"]:
        listed = [n for i in g["params"] for n in ([i] if isinstance(i, str) else names.get(i, []))]
        groups.append({**{k: v for k, v in g.items() if k != "params"}, "params": listed})
    return groups
