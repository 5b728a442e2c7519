"""An optimizer lent to other parameters for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import Tensor
from ..errors import StateDictError
from .optimizer import Optimizer

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within it ``optimizer`` has the parameters ``swapin_parameters`` (in the order of its
    groups) and the state and hyperparameters of a ``state_dict()``; afterwards its own again.

    A step changes the tensors that were given, in place. The optimizer must have made a step
    before. Raises ``StateDictError`` where the dict does not fit.
    """
    state, groups = _checked(optimizer, swapin_optim_state)
    values = iter(swapin_parameters.values())
    count = sum(len(g["params"]) for g in groups)
    if len(swapin_parameters) < count:
        raise _refuse(
            "requires the explicit parameter state to match optimizer.param_groups ordering: "
            f"{count} parameters are needed, {len(swapin_parameters)} were given"
        )
    own_state, own_groups = optimizer.state, [dict(g) for g in optimizer.param_groups]
    try:
        lent: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
            params = [next(values) for _ in theirs["params"]]
            mine.update(theirs, params=params)
            lent.update((p, dict(state.get(k, {}))) for p, k in zip(params, theirs["params"]))
        optimizer.state = lent
        yield
    finally:
        for group, before in zip(optimizer.param_groups, own_groups, strict=True):
            group.clear()
            group.update(before)
        optimizer.state = own_state


def _refuse(text: str) -> StateDictError:
    return StateDictError(f"{_NAME} {text}")


def _checked(optimizer: Optimizer, given: dict) -> tuple[dict[Any, dict], list[dict[str, Any]]]:
    """The state and the groups of a state dict that fits ``optimizer``."""
    if not optimizer.state:
        raise _refuse("requires initialized optimizer state: make a step first")
    if not isinstance(given, dict) or not isinstance(given.get("state"), dict):
        raise _refuse("requires swapin_optim_state to be what optimizer.state_dict() gives")
    state, groups = given["state"], given.get("param_groups")
    if not isinstance(groups, list) or len(groups) != len(optimizer.param_groups):
        raise _refuse(
            "got a different number of parameter groups than the live optimizer has "
            f"({len(optimizer.param_groups)})"
        )
    for k, (mine, theirs) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        if mine.keys() != theirs.keys():
            differ = sorted(mine.keys() ^ theirs.keys())
            raise _refuse(f"requires the keys of group {k} to be the live ones; {differ} differ")
        if len(mine["params"]) != len(theirs["params"]):
            raise _refuse(
                f"got {len(theirs['params'])} parameters in group {k}, a different number of "
                f"params than the live optimizer param group ({len(mine['params'])})"
            )
    known = {k for g in groups for k in g["params"]}
    if state.keys() - known:
        raise _refuse(f"got extra keys {sorted(map(str, state.keys() - known))} in the state")
    return state, groups
