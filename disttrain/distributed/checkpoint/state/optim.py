"""Optimizer states by parameter names, for models under any parallelism. See ``state_dict``.

What belongs to a vector of ``FullyShardedDataParallel`` is gathered and cut by it
(``fsdp.optim_save``, ``fsdp.optim_load``); other state lies as its parameter does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ....core import Tensor, no_grad, wrap
from ....core.types import dtypes
from ....errors import StateDictError
from ....nn.module import Module
from ....optim import Optimizer
from ...fsdp.flat import optim_load, optim_save
from ...fsdp.flat.optim_slots import Slot, slots_of
from .names import Names
from .values import like


def slots(model: Module, names: Names) -> list[Slot]:
    """What optimizers train, under clean names."""
    found = slots_of(model)
    for s in found:
        s.names = tuple(names.clean(n) for n in s.names)
    return found


def kind_of(name: str) -> np.dtype:
    """The numpy type of an element type's name."""
    return dtypes.as_dtype(name).np


# -- out -----------------------------------------------------------------------------------------


def save(model: Module, optimizers: Iterable[Any], names: Names, sharded: bool) -> dict[str, Any]:
    """State and groups of ``optimizers`` together."""
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    found = slots(model, names)
    for optim in optimizers:
        begin(optim)
        one = optim_save.save(model, optim, sharded=sharded, slots=found)
        state |= one["state"]
        groups += one["param_groups"]
    return {"state": state, "param_groups": groups}


def begin(optim: Any) -> None:
    """Give an optimizer that has not stepped the state that its first step would make."""
    if optim.state:
        return
    if isinstance(optim, Optimizer) and type(optim).choose is not Optimizer.choose:
        for group in optim.param_groups:
            _, states, _ = optim.choose(group)
            for p in group["params"]:
                if p.requires_grad and states:
                    optim._state_of(p, states, group)
        return
    _step_by_nothing(optim)


def _step_by_nothing(optim: Any) -> None:
    """A step with zero gradients and learning rates, which changes no parameter."""
    kept = []
    for group in optim.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                return
            if p.requires_grad:
                with no_grad():
                    p.grad = p.detach() * 0
                kept.append(p)
    rates = [group.get("lr") for group in optim.param_groups]
    for group in optim.param_groups:
        if "lr" in group:
            group["lr"] = wrap(np.zeros((), np.float32)) if isinstance(group["lr"], Tensor) else 0.0
    optim.step(closure=None)
    for group, rate in zip(optim.param_groups, rates, strict=True):
        if "lr" in group:
            group["lr"] = rate
    for p in kept:
        p.grad = None


def flattened(out: dict[str, Any]) -> dict[str, Any]:
    """``"state.NAME.KEY"`` and ``"param_groups.NAME.KEY"``."""
    flat = {f"state.{n}.{k}": v for n, values in out["state"].items() for k, v in values.items()}
    for group in out["param_groups"]:
        for name in group["params"]:
            flat |= {f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"}
    return flat


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """The inverse of ``flattened``; each parameter has a group of its own."""
    state: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        kind, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        (state if kind == "state" else settings).setdefault(name, {})[last] = value
    return {"state": state, "param_groups": [{**v, "params": [n]} for n, v in settings.items()]}


# -- in ------------------------------------------------------------------------------------------


def load(
    model: Module, optimizers: Iterable[Any], names: Names, given: dict[str, Any], from_rank0: bool
) -> None:
    """Let every optimizer take its part of ``given``."""
    found = slots(model, names)
    for optim in optimizers:
        begin(optim)
        one = optim_load.to_load(
            model, given, optim, from_rank0=from_rank0, slots=found, fit=like
        )  # fmt: skip
        named = one.pop("named_groups")
        one["param_groups"] = _own_groups(optim, found, named)
        one["state"] = {k: v for k, v in one["state"].items() if not isinstance(k, str)}
        optim.load_state_dict(one)


def _own_groups(
    optim: Optimizer, found: list[Slot], saved: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The optimizer's groups as they are now, with the saved settings of their parameters."""
    name_of: dict[int, list[str]] = {}
    for s in found:
        name_of.setdefault(id(s.param), []).extend(s.names)
    settings = {n: g for g in saved for n in g["params"]}
    out, count = [], 0
    for group in optim.param_groups:
        own = [n for p in group["params"] for n in name_of.get(id(p), [])]
        theirs = next((settings[n] for n in own if n in settings), None)
        if theirs is None and own:
            raise StateDictError(
                f"set_optimizer_state_dict: the state dict has no group with {own[:3]}; it was "
                "made with other parameters than this optimizer trains"
            )
        values = {k: v for k, v in (theirs or group).items() if k != "params"}
        out.append({**values, "params": list(range(count, count + len(group["params"])))})
        count += len(group["params"])
    return out
