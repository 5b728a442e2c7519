"""Optimizer state dicts by parameter names, made into what this rank's optimizer loads.

Values may be whole or sharded in any way; each rank takes its part. With ``from_rank0`` the first
rank alone has the dict, and sends value by value, of which each rank keeps its part. See
``optim_slots``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....backends.device.memory import memory_of
from ....core import Tensor, wrap
from ....core.types import dtypes
from ....errors import ConfigError, StateDictError
from ....nn.module import Module
from ...collectives import objects
from ...groups.state import group_or_default
from ..names import clean_tensor_name
from ..settings import OptimStateKeyType
from .full_params import as_local
from .moves import raw_of
from .optim_slots import Slot, numbered, slots_of, trained

_SENT = "sent"


def to_load(
    model: Module,
    state_dict: dict[str, Any] | None,
    optim: object = None,
    optim_input: object = None,
    *,
    group: objects.ProcessGroup | None = None,
    from_rank0: bool = False,
    slots: list[Slot] | None = None,
    fit: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """The part of ``state_dict`` that this rank's optimizer takes, with parameters as numbers. A
    collective where values are sharded, or ``from_rank0``. ``slots``: what the model trains, under
    names of one's own; with ``fit(value, param)`` other state is made to lie as its parameter does,
    and the groups are given by names, too."""
    if from_rank0:
        group = group_or_default(group)
    source = _Source(state_dict, group, from_rank0)
    slots = slots_of(model) if slots is None else slots
    by_name = {n: s for s in slots for n in s.names}
    mine: dict[str, dict[str, Any]] = {}
    for name, key in source.entries():
        slot = by_name.get(name)
        value = source.value(name, key)
        if slot is not None:
            mine.setdefault(slot.name, {})[key] = _own(slot, value, fit)
    for name in source.names():
        if name in by_name:
            mine.setdefault(by_name[name].name, {})
    numbers = numbered(trained(optim, optim_input, model))
    state: dict[Any, Any] = {}
    for number, of in _by_number(slots, numbers).items():
        found = _joined(of, mine)
        if found is not None:
            state[number] = found
    for name in source.names():
        if name not in by_name:
            state[name] = source.state[name]
    groups = _numbered_groups(source.groups, by_name, numbers)
    out = {"state": state, "param_groups": groups}
    return out if fit is None else {**out, "named_groups": source.groups}


class _Source:
    """A state dict that every rank has, or the first one sends."""

    def __init__(self, given: dict[str, Any] | None, group: Any, from_rank0: bool) -> None:
        self.group, self.sends = group, from_rank0 and group.size > 1
        if self.sends:
            told = None
            if group.rank == 0:
                assert given is not None
                told = _outline(given)
            outline = objects.broadcast(group, told, 0)
            self.state, self.groups = outline["state"], outline["param_groups"]
            self.given = given if group.rank == 0 else None
        else:
            if given is None:
                raise ConfigError(
                    "optim_state_dict_to_load: this rank was given no state dict (None); only rank "
                    "0 may have one alone, with rank0_only=True in FullOptimStateDictConfig, or "
                    "with scatter_full_optim_state_dict"
                )
            self.state, self.groups = given["state"], given["param_groups"]
            self.given = given

    def names(self) -> list[Any]:
        return list(self.state)

    def entries(self) -> list[tuple[Any, str]]:
        return [(n, k) for n, values in self.state.items() for k in values]

    def value(self, name: str, key: str) -> Any:
        value = self.state[name][key]
        if not self.sends or not (isinstance(value, dict) and _SENT in value):
            return value
        shape, kind = value[_SENT]
        array = np.empty(shape, dtypes.as_dtype(kind).np)
        if self.given is not None:
            given = self.given["state"][name][key].detach().array
            array[...] = memory_of(given).numbers(raw_of(given))
        self.group.broadcast(array, 0)
        return wrap(array)


def _outline(given: dict[str, Any]) -> dict[str, Any]:
    """A state dict with tensors told by shape and type only."""
    state = {
        name: {
            k: {_SENT: (tuple(v.shape), v.dtype.name)} if isinstance(v, Tensor) and v.ndim else v
            for k, v in values.items()
        }
        for name, values in given["state"].items()
    }
    return {"state": state, "param_groups": given["param_groups"]}


def _own(slot: Slot, value: Tensor, fit: Callable[..., Any] | None) -> Any:
    """This rank's part of a value: a vector where it has one element per element."""
    if not isinstance(value, Tensor) or value.ndim == 0 or tuple(value.shape) != slot.shape:
        return value
    if slot.unit is None:
        return value if fit is None else fit(value, slot.param)
    cut, home = slot.cut(as_local(value)), slot.unit.weights[0].places.home
    mine = home.empty(cut.shape, cut.dtype)
    slot.unit.weights[0].write(mine, cut)
    return _Part(mine)


class _Part(NamedTuple):
    """This rank's elements of a state value, where the unit's shards lie."""

    raw: Any


def _by_number(slots: list[Slot], numbers: dict[int, int]) -> dict[int, list[Slot]]:
    out: dict[int, list[Slot]] = {}
    for s in slots:
        number = numbers.get(id(s.param))
        if number is not None:
            out.setdefault(number, []).append(s)
    return dict(sorted(out.items()))


def _joined(slots: list[Slot], mine: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The state of what one optimizer parameter stands for: a parameter, or a whole vector."""
    have = [s for s in slots if mine.get(s.name)]
    if not have:
        return None
    unit = slots[0].unit
    if unit is None:
        return mine[slots[0].name]
    if unit.use_orig:
        if not slots[0].param.numel():
            return None
        shape = tuple(slots[0].param.shape)
        held = unit.weights[0].held
        return {k: wrap(held(v.raw.reshape(shape))) if isinstance(v, _Part) else v
                for k, v in mine[slots[0].name].items()}  # fmt: skip
    out: dict[str, Any] = {}
    for key in mine[have[0].name]:
        values = [mine.get(s.name, {}).get(key) for s in slots]
        if any(isinstance(v, _Part) for v in values):
            out[key] = _vector(slots, values)
        else:
            out[key] = _one_value(slots, key, values)
    return out


def _vector(slots: list[Slot], values: list[Any]) -> Tensor:
    unit = slots[0].unit
    assert unit is not None
    w = unit.weights[0]
    layout = w.layout
    kinds = {v.raw.dtype for v in values if isinstance(v, _Part)}
    if len(kinds) > 1 or any(v is not None and not isinstance(v, _Part) for v in values):
        raise ConfigError(
            "All unflattened parameters comprising a single flat parameter must have state tensors "
            f"of one type and of their own shapes; {[s.name for s in slots]} have {kinds}"
        )
    local = w.places.home.zeros(layout.chunk, kinds.pop())
    for s, v in zip(slots, values, strict=True):
        if v is not None:
            a, b = layout.local(s.index, unit.sharding.rank)
            local[a:b] = v.raw
    return wrap(w.held(local))


def _one_value(slots: list[Slot], key: str, values: list) -> Any:
    """What all members of a vector share, such as the number of steps."""
    plain = [_number(v) for v in values]
    if any(type(p) is not type(plain[0]) or p != plain[0] for p in plain[1:]):
        raise ConfigError(
            "All unflattened parameters comprising a single flat parameter must have scalar state "
            f"with the same value and dtype; {key!r} of {[s.name for s in slots]} is {plain}. Wrap "
            "them apart, or use use_orig_params=True"
        )
    first = values[0]
    return wrap(first.array.copy("C")) if isinstance(first, Tensor) else first


def _number(value: Tensor) -> Any:
    return value.item() if isinstance(value, Tensor) and value.array.size == 1 else value


def _numbered_groups(
    groups: list[dict], by_name: dict[str, Slot], numbers: dict[int, int]
) -> list[dict]:
    out = []
    for g in groups:
        ids = set()
        for name in g["params"]:
            slot = by_name.get(name)
            number = None if slot is None else numbers.get(id(slot.param))
            if number is not None:
                ids.add(number)
        out.append({**{k: v for k, v in g.items() if k != "params"}, "params": sorted(ids)})
    return out


def rekey(
    state_dict: dict[str, Any],
    key_type: OptimStateKeyType,
    model: Module,
    optim_input: object,
    optim: object,
) -> dict[str, Any]:
    """An optimizer's state dict of an unwrapped ``model`` by names or by numbers."""
    if key_type not in (OptimStateKeyType.PARAM_NAME, OptimStateKeyType.PARAM_ID):
        raise ConfigError(f"rekey_optim_state_dict: Invalid OptimStateKeyType {key_type}")
    names: dict[int, str] = {}
    for name, p in model.named_parameters():
        names[id(p)] = clean_tensor_name(name)
    numbers = numbered(trained(optim, optim_input, model))
    pairs = {n: names[i] for i, n in numbers.items() if i in names}
    to: dict[Any, Any]
    if key_type is OptimStateKeyType.PARAM_ID:
        to = {name: n for n, name in pairs.items()}
    else:
        to = dict(pairs)
    unknown = [k for k in state_dict["state"] if k not in to]
    if unknown:
        raise StateDictError(
            f"rekey_optim_state_dict: the state dict has state for {unknown[:3]}, which the model "
            "and optimizer do not have; give those that it was made with"
        )
    groups = [{**g, "params": [to[k] for k in g["params"]]} for g in state_dict["param_groups"]]
    if key_type is OptimStateKeyType.PARAM_ID:
        groups = [{**g, "params": sorted(g["params"])} for g in groups]
    return {"state": {to[k]: v for k, v in state_dict["state"].items()}, "param_groups": groups}
