"""Which worker has which parameters of an optimizer, and its state under numbers that know no
worker. Pure: from groups of owners to plans, from parts of state dicts to a whole one and back.

Owners are any values that can be keys. Knows no call and no tensor.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...errors import StateDictError

NOT_SETTINGS = ("params", "param_names")  # what a group holds beside its hyperparameters


class Layout:
    """The parts of groups that each owner has.

    ``groups[k][i]`` owns parameter i of group k. An owner's own groups are those in which it has a
    parameter, in order; parameters keep their order, too. Groups that are added later come behind
    the others everywhere, so no number of an earlier one changes.
    """

    def __init__(self, groups: Sequence[Sequence[Hashable]]) -> None:
        self.sizes = [len(group) for group in groups]
        self.starts = [sum(self.sizes[:k]) for k in range(len(groups))]
        self.parts: dict[Any, dict[int, list[int]]] = {}
        for k, group in enumerate(groups):
            for i, owner in enumerate(group):
                self.parts.setdefault(owner, {}).setdefault(k, []).append(i)

    def numbers(self, owner: Hashable) -> list[int]:
        """The number in the whole of each parameter of an owner, in the owner's order."""
        return [self.starts[k] + i for k, places in self.parts[owner].items() for i in places]

    def part_of(self, groups: Sequence[dict[str, Any]], owner: Hashable) -> list[dict[str, Any]]:
        """An owner's groups out of all: its parameters (and their names), every setting."""
        return [_chosen(groups[k], places) for k, places in self.parts[owner].items()]

    def whole_state(
        self, parts: Mapping[Any, dict[str, Any]], groups: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """One state dict of those of all owners. Settings that an owner has replace those in
        ``groups``; of owners that disagree, the first has its way."""
        state: dict[Any, Any] = {}
        settings: dict[int, dict[str, Any]] = {}
        for owner, part in parts.items():
            numbers = self.numbers(owner)
            for key, value in part["state"].items():
                state[numbers[key] if isinstance(key, int) else key] = value
            for k, group in zip(self.parts[owner], part["param_groups"], strict=True):
                settings.setdefault(k, {n: v for n, v in group.items() if n != "params"})
        packed = []
        for k, group in enumerate(groups):
            own = {n: v for n, v in group.items() if n != "params"}
            names = {n: own[n] for n in ("param_names",) if n in own}
            start = self.starts[k]
            params = list(range(start, start + self.sizes[k]))
            packed.append({**own, **settings.get(k, {}), **names, "params": params})
        ordered = sorted(k for k in state if isinstance(k, int))
        others = [k for k in state if not isinstance(k, int)]
        return {"state": {k: state[k] for k in ordered + others}, "param_groups": packed}

    def split_state(self, whole: dict[str, Any]) -> dict[Any, dict[str, Any]]:
        """What each owner loads of a state dict: of one that was saved over any owners, or by an
        optimizer of one process. Raises ``StateDictError`` where it has other groups."""
        saved = whole["param_groups"]
        sizes = [len(group["params"]) for group in saved]
        if sizes != self.sizes:
            raise StateDictError(
                f"DistributedOptimizer.load_state_dict: groups of {sizes} parameters were saved, "
                f"this optimizer has groups of {self.sizes}; make it with the parameters in the "
                "same order and groups"
            )
        out = {}
        for owner, parts in self.parts.items():
            groups = [_chosen(saved[k], places) for k, places in parts.items()]
            keys = [number for group in groups for number in group["params"]]
            local = {key: n for n, key in enumerate(keys)}
            others = {k: v for k, v in whole["state"].items() if not isinstance(k, int)}
            state = {n: whole["state"][key] for key, n in local.items() if key in whole["state"]}
            for group in groups:
                group["params"] = [local[key] for key in group["params"]]
            out[owner] = {"state": {**state, **others}, "param_groups": groups}
        return out


def _chosen(group: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    return {n: [v[i] for i in places] if n in NOT_SETTINGS else v for n, v in group.items()}


def settings_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a group."""
    return {name: value for name, value in group.items() if name not in NOT_SETTINGS}


def plain(settings: Mapping[str, Any], others: tuple[type, ...]) -> dict[str, Any]:
    """Those settings that are data: numbers, text, ``others``, and tuples and lists of them. What
    else an optimizer keeps in its groups is its own."""
    kinds: tuple[type, ...] = (bool, int, float, complex, str, type(None), *others)

    def is_data(value: object) -> bool:
        if isinstance(value, (tuple, list)):
            return all(map(is_data, value))
        return isinstance(value, kinds)

    return {name: value for name, value in settings.items() if is_data(value)}


def changed(now: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``now`` that are new, or not as in ``known``."""
    return {n: v for n, v in now.items() if n not in known or not _same(v, known[n])}


def _same(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    if type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):  # arrays of other shapes than one element
        return False
