"""What an optimizer's parameters are in terms of the model: slots.

A slot is one parameter of the module as if nothing were wrapped: its names, the object that the
optimizer trains for it, and where its elements lie in that object's state on this rank. Moving
state between ranks is here; state dicts are made of it in ``optim_save`` and ``optim_load``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Tensor
from ....nn.module import Module
from ..module import SLOT
from ..names import clean_tensor_name
from .full_params import gather_vector
from .layout import views
from .moves import raw_of
from .param import FLAT_PARAM
from .unit import FlatUnit


@dataclass(eq=False)
class Slot:
    """One parameter: ``names`` in all its places, ``param`` that the optimizer has. In a unit:
    number ``index`` of its vector."""

    names: tuple[str, ...]
    param: Any
    unit: FlatUnit | None = None
    index: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole parameter."""
        if self.unit is not None:
            return self.unit.weights[0].layout.pieces[self.index].shape
        return tuple(self.param.shape)

    @property
    def name(self) -> str:
        return self.names[0]

    def is_sharded_state(self, value: Tensor) -> bool:
        """Whether a state value has one element per element of the trained object."""
        return (
            self.unit is not None
            and isinstance(value, Tensor)
            and value.ndim > 0
            and tuple(value.shape) == tuple(self.param.shape)
        )

    def part(self, value: Tensor) -> Any:
        """This slot's elements in the state value of the trained object, as a vector."""
        flat = raw_of(value.detach().array).reshape(-1)
        if self.param is not self.unit.flat:  # type: ignore[union-attr]
            return flat
        a, b = self.unit.weights[0].layout.local(self.index, self.unit.sharding.rank)  # type: ignore[union-attr]
        return flat[a:b]

    def cut(self, whole: Any) -> Any:
        """This rank's elements of a whole state value, as a vector."""
        lo, hi = self.unit.weights[0].layout.part(self.index, self.unit.sharding.rank)  # type: ignore[union-attr]
        return whole.reshape(-1)[lo:hi]


def slots_of(model: Module) -> list[Slot]:
    """The slots of ``model``, in the order of its modules; alike on every rank."""
    units: dict[int, tuple[FlatUnit, int]] = {}  # by the object that stands for a member
    for m in model.modules():
        place = m.__dict__.get(SLOT)
        if place is not None and isinstance(place.unit, FlatUnit):
            for i, member in enumerate(place.unit.members):
                shown = member.sharded if place.unit.use_orig else member.full
                units[id(shown)] = (place.unit, i)
    names: dict[Any, list[str]] = {}
    for path, name, p in _members(model):
        if p is None:
            continue
        full = clean_tensor_name(f"{path}.{name}" if path else name)
        known = units.get(id(p))
        key = (id(known[0]), known[1]) if known else id(p)
        names.setdefault(key, []).append(full)
    out, done = [], set()
    for _, _, p in _members(model):
        known = units.get(id(p)) if p is not None else None
        key = (id(known[0]), known[1]) if known else id(p)
        if p is None or key in done:
            continue
        done.add(key)
        unique = tuple(dict.fromkeys(names[key]))
        if known is None:
            out.append(Slot(unique, p))
        else:
            unit, i = known
            trained = unit.members[i].sharded if unit.use_orig else unit.flat
            out.append(Slot(unique, trained, unit, i))
    return out


def _members(model: Module) -> Iterable[tuple[str, str, Any]]:
    """(path, name, parameter or what stands for it) of all modules."""
    flat: dict[Any, tuple[str, ...]] = {}
    for m in model.modules():
        place = m.__dict__.get(SLOT)
        if place is not None and isinstance(place.unit, FlatUnit) and not place.unit.use_orig:
            flat |= place.unit.orders
    for path, module in model.named_modules(remove_duplicate=False):
        for name in flat.get(module, tuple(module._parameters)):
            if name != FLAT_PARAM:
                yield path, name, module.__dict__.get(name, module._parameters.get(name))


def trained(optim: Any, optim_input: Any, model: Module) -> list[list[Any]]:
    """The parameters of every group: of the optimizer, or as one would be given them."""
    if optim is not None:
        return [list(g["params"]) for g in optim.param_groups]
    if optim_input is None:
        return [list(model.parameters())]
    given = list(optim_input)
    if given and isinstance(given[0], dict):
        return [list(g["params"]) for g in given]
    return [given]


def numbered(groups: list[list[Any]]) -> dict[int, int]:
    """``id(parameter)`` -> its number in state dicts."""
    numbers: dict[int, int] = {}
    for group in groups:
        for p in group:
            numbers.setdefault(id(p), len(numbers))
    return numbers


def gather_parts(slots: list[Slot], parts: list[Any], kind: np.dtype) -> list[Any]:
    """Whole state values, as Tensors hold them, of some slots of one unit, from every rank's parts
    (None: none here). A collective of the unit's group."""
    unit = slots[0].unit
    assert unit is not None
    w = unit.weights[0]
    layout, rank = w.layout, unit.sharding.rank
    local = w.places.home.zeros(layout.chunk, kind)
    for slot, part in zip(slots, parts, strict=True):
        if part is not None:
            a, b = layout.local(slot.index, rank)
            local[a:b] = part
    whole = views(gather_vector(unit, local), layout)
    return [w.held(whole[slot.index]) for slot in slots]
