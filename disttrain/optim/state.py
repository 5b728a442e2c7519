"""The state of an optimizer: hooks around it, and the state dict in PyTorch's layout.

Knows no update rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from ..context import thread
from ..core import HookHandle, Tensor, wrap
from ..core.types import dtypes
from ..core.types.device import CPU
from ..errors import ConfigError
from ..ops.primitives.moving import moved
from .groups import Groups

STEP_PRE, STEP_POST = "step_pre", "step_post"
SAVE_PRE, SAVE_POST = "state_dict_pre", "state_dict_post"
LOAD_PRE, LOAD_POST = "load_state_dict_pre", "load_state_dict_post"
EVERYWHERE = "optim.state.hooks"  # the rank's slot for hooks of all optimizers


def _everywhere(kind: str) -> dict[int, Callable]:
    hooks: dict[str, dict[int, Callable]] = thread.rank.slot(EVERYWHERE, dict)
    return hooks.setdefault(kind, {})


def register_optimizer_step_pre_hook(hook: Callable) -> HookHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer of this rank."""
    return HookHandle(_everywhere(STEP_PRE), hook)


def register_optimizer_step_post_hook(hook: Callable) -> HookHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer of this rank."""
    return HookHandle(_everywhere(STEP_POST), hook)


class State(Groups):
    """The part of Optimizer with hooks and state dicts."""

    singles: tuple[str, ...] = ("step",)  # state that is one number, in a type of its own
    state: defaultdict[Any, dict[str, Any]]
    _hooks: dict[str, dict[int, Callable]]

    # -- hooks ---------------------------------------------------------------------------------

    def _add_hook(self, kind: str, hook: Callable, prepend: bool = False) -> HookHandle:
        if "_hooks" not in self.__dict__:
            self._hooks = {}
        hooks = self._hooks.setdefault(kind, {})
        before = list(hooks.items()) if prepend else []
        handle = HookHandle(hooks, hook)
        for key, value in before:
            del hooks[key]
            hooks[key] = value
        return handle

    def _own_hooks(self, kind: str) -> list[Callable]:
        return list(self._hooks.get(kind, {}).values()) if self._hooks else []

    def register_step_pre_hook(self, hook: Callable) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ones."""
        return self._add_hook(STEP_PRE, hook)

    def register_step_post_hook(self, hook: Callable) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._add_hook(STEP_POST, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._add_hook(SAVE_PRE, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Call ``hook(optimizer, state_dict)`` after it; what it returns replaces the dict."""
        return self._add_hook(SAVE_POST, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable, prepend: bool = False
    ) -> HookHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; what it returns is loaded."""
        return self._add_hook(LOAD_PRE, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable, prepend: bool = False
    ) -> HookHandle:
        """Call ``hook(optimizer)`` after loading."""
        return self._add_hook(LOAD_POST, hook, prepend)

    # -- state dict ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters as numbers, in the order of the groups."""
        for hook in self._own_hooks(SAVE_PRE):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in self._own_hooks(SAVE_POST):
            changed = hook(self, out)
            out = out if changed is None else changed
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned. State tensors get the type of their parameter
        (except ``step``); hyperparameters are replaced, with those that were not saved as before.
        """
        state_dict = state_dict.copy()
        for hook in self._own_hooks(LOAD_PRE):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        self._check_fit(saved)
        numbers = [i for group in saved for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        by_number = dict(zip(numbers, params))
        counted_there = {i for group in saved if group.get("capturable") for i in group["params"]}
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = by_number.get(key)
            if p is not None:
                value = self._adopt(value, p, key in counted_there)
            state[key if p is None else p] = value
        groups = []
        for mine, theirs in zip(self.param_groups, saved):
            new = {k: deepcopy(v) for k, v in theirs.items() if k != "params"}
            groups.append({**mine, **new, "params": mine["params"]})
        self.state, self.param_groups = state, groups
        for hook in self._own_hooks(LOAD_POST):
            hook(self)

    def _check_fit(self, saved: list[dict[str, Any]]) -> None:
        name = type(self).__name__
        if len(saved) != len(self.param_groups):
            raise ConfigError(
                f"{name}: loaded state dict has a different number of parameter groups: "
                f"{len(saved)} were saved, this optimizer has {len(self.param_groups)}"
            )
        for k, (mine, theirs) in enumerate(zip(self.param_groups, saved)):
            if len(mine["params"]) != len(theirs["params"]):
                raise ConfigError(
                    f"{name}: loaded state dict contains a parameter group that doesn't match the "
                    f"size of optimizer's group: group {k} was saved with "
                    f"{len(theirs['params'])} parameters, here it has {len(mine['params'])}"
                )

    def _adopt(self, saved: dict[str, Any], p: Tensor, counted_there: bool) -> dict[str, Any]:
        """One parameter's state as copies, in the parameter's element type. ``counted_there``: also
        single numbers lie where the parameter does."""
        shape = p.meta()[0]
        for name, value in saved.items():
            given = value.shape if isinstance(value, (Tensor, np.ndarray)) else shape
            if tuple(given) != shape and sorted(given) == sorted(shape):
                raise ConfigError(
                    f"{type(self).__name__}.load_state_dict: {name} was saved with shape "
                    f"{list(given)}, its parameter has {list(shape)}"
                )
        return {
            name: _copied(value, p, name == "step", counted_there or name not in self.singles)
            for name, value in saved.items()
            if value is not None
        }


def _copied(value: Tensor | float | list, p: Tensor, keep: bool = False, there: bool = True) -> Any:
    """A copy; tensors in it get the type of ``p`` unless they ``keep`` theirs, and lie where it
    does, or on the host unless ``there``."""
    if isinstance(value, (Tensor, np.ndarray)):
        array: Any = value.array if isinstance(value, Tensor) else value
        kind = p.meta()[1]
        kind = array.dtype if keep or kind.kind not in "fcV" else kind
        if isinstance(array, np.ndarray):
            out = wrap(np.array(array, kind))
            return moved(out, p.device) if there else out
        where = p.device if there else CPU
        return wrap(array).to(where, dtypes.of(kind), copy=True)
    if isinstance(value, dict):
        return {k: _copied(v, p) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(v, p) for v in value)
    return deepcopy(value)
