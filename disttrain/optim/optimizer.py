"""Optimizer: parameter groups, state, hooks, and the state dict in PyTorch's layout.

A subclass declares its update as one mutating primitive (``rules.py``) and says in ``plan`` which
state tensors and numbers it needs; everything else is here. A step that no interpreter watches runs
the update on the arrays directly; otherwise (capture, autocast, profiling) it goes through the gate
like every operation. State tensors are made outside the gate, so that to a captured step they are
inputs that live on, not constants.

This file knows no update rule and no schedule.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..context import SLOW, thread
from ..core import HookHandle, Primitive, Tensor, enable_grad, no_grad, wrap
from ..core.gate import touched
from ..errors import ConfigError

ndarray = np.ndarray


class _Required:
    """The default of a hyperparameter that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _with_hooks(step: Callable) -> Callable:
    """``step`` with the hooks registered on its optimizer, called once however often inherited."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self.stepped = True
        if not (self._pre_hooks or self._post_hooks) or self._stepping:
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            for hook in tuple(self._pre_hooks.values()):
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            out = step(self, *args, **kwargs)
            for hook in tuple(self._post_hooks.values()):
                hook(self, args, kwargs)
        finally:
            self._stepping = False
        return out

    return wrapper


class Optimizer:
    """Base of all optimizers.

    ``params``: tensors, (name, tensor) pairs, or dicts with ``params`` and hyperparameters of a
    group of their own. ``defaults``: hyperparameters of groups that do not give them.
    """

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._pre_hooks: dict[int, Callable] = {}
        self._post_hooks: dict[int, Callable] = {}
        self._stepping = False
        self.stepped = False  # whether step was ever called; schedulers look at it
        if isinstance(params, Tensor):
            raise TypeError(
                f"{type(self).__name__}: params is one Tensor; an iterable of tensors or dicts is "
                "needed, for example [tensor]"
            )
        groups = list(params)
        if not groups:
            raise ConfigError(
                f"{type(self).__name__}: got an empty parameter list; at least one tensor is "
                "needed. Does the module have parameters when the optimizer is made?"
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # -- groups --------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with hyperparameters of its own."""
        name = type(self).__name__
        if not isinstance(param_group, dict):
            raise TypeError(f"{name}: param_group is {type(param_group).__name__}; needed: a dict")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                f"{name}: parameters in a set have no fixed order, which would differ between "
                "ranks and runs; use a list"
            )
        params = list(params)
        if params and all(isinstance(p, tuple) for p in params):
            param_group["param_names"] = [n for n, _ in params]
            params = [p for _, p in params]
        param_group["params"] = params
        for p in params:
            self._check_param(p)
        for key, default in self.defaults.items():
            if default is required and key not in param_group:
                raise ConfigError(f"{name}: a parameter group gives no {key}, which it must")
            param_group.setdefault(key, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn(
                f"{name}: a parameter group contains the same parameter twice", stacklevel=3
            )
        have = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in have for p in params):
            raise ConfigError(f"{name}: some parameters appear in more than one parameter group")
        self.check(param_group)
        self.param_groups.append(param_group)

    def _check_param(self, p: Any) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor):
            raise TypeError(f"{name}: can only optimize Tensors, but one is {type(p).__name__}")
        if not p.is_leaf and not p.retains_grad:
            raise ConfigError(
                f"{name}: can't optimize a non-leaf Tensor (shape {list(p.shape)}, made by "
                f"{p.grad_fn.name()}); give the leaves that it was computed from"
            )

    def check(self, group: dict[str, Any]) -> None:
        """Raise ``ConfigError`` where a hyperparameter has no meaning."""
        name = type(self).__name__
        for key in ("lr", "eps", "weight_decay", "momentum", "lr_decay"):
            if key in group and not float(group[key]) >= 0.0:
                raise ConfigError(f"{name}: Invalid {key}: {group[key]}; it must be at least 0")
        for key in ("rho", "alpha"):
            if key in group and not 0.0 <= group[key] <= 1.0:
                raise ConfigError(f"{name}: Invalid {key}: {group[key]}; it must be in 0..1")
        for k, beta in enumerate(group.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ConfigError(
                    f"{name}: Invalid beta parameter at index {k}: {beta}; it must be in [0, 1)"
                )
        if group.get("differentiable"):
            raise ConfigError(f"{name}: differentiable=True is not available; use dt.func.grad")

    # -- steps ---------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p._grad = None
                elif p._grad is not None:
                    g = p._grad = p._grad if p._grad._node is None else p._grad.detach()
                    g.zero_()

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient. ``closure`` computes the loss anew (with
        gradients); its result is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._update(group)
        return loss

    def plan(self, group: dict[str, Any]) -> tuple[Primitive, tuple[str, ...], dict[str, Any]]:
        """The update rule, the names of the state tensors it is given, and its numbers."""
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer defines plan(group), or step(closure)"
        )

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        """The first value of a state tensor: zeros laid out as ``p``; one zero for ``step``."""
        if name == "step":
            return wrap(np.zeros((), np.float32))
        if p.is_meta:
            return wrap(NullArray(*p.meta()))
        return wrap(np.zeros_like(p.array, subok=False))

    def _update(self, group: dict[str, Any]) -> None:
        rule, names, numbers = self.plan(group)
        direct, run = thread.mode != SLOW, rule.forward
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            state = self.state[p]
            try:
                tensors = [state[name] for name in names]
            except KeyError:
                for name in names:
                    if name not in state:
                        state[name] = self.initial(name, p, group)
                tensors = [state[name] for name in names]
            if direct and p.array.__class__ is ndarray:
                run(p.array, grad.array, *[t.array for t in tensors], **numbers)
                touched(p)
            else:
                rule(p, grad, *tensors, **numbers)

    # -- hooks ---------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ones."""
        return HookHandle(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return HookHandle(self._post_hooks, hook)

    # -- state dict ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters as numbers, in the order of the groups."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned. State tensors get the type of their parameter
        (except ``step``); hyperparameters are replaced."""
        name, saved = type(self).__name__, state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ConfigError(
                f"{name}.load_state_dict: {len(saved)} parameter groups were saved, this "
                f"optimizer has {len(self.param_groups)}"
            )
        for k, (mine, theirs) in enumerate(zip(self.param_groups, saved)):
            if len(mine["params"]) != len(theirs["params"]):
                raise ConfigError(
                    f"{name}.load_state_dict: group {k} was saved with {len(theirs['params'])} "
                    f"parameters, here it has {len(mine['params'])}"
                )
        numbers = [i for group in saved for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        by_number = dict(zip(numbers, params))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = by_number.get(key)
            state[key if p is None else p] = value if p is None else _adopt(value, p)
        groups = []
        for mine, theirs in zip(self.param_groups, saved):
            new = {k: deepcopy(v) for k, v in theirs.items() if k != "params"}
            groups.append({**mine, **new, "params": mine["params"]})
        self.state, self.param_groups = state, groups

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pre_hooks, self._post_hooks, self._stepping = {}, {}, False
        self.stepped = False


def _adopt(saved: dict[str, Any], p: Tensor) -> dict[str, Any]:
    """One parameter's state as copies, in the parameter's element type."""
    out: dict[str, Any] = {}
    shape, kind = p.meta()
    for name, value in saved.items():
        if isinstance(value, (Tensor, ndarray)):
            array = value.array if isinstance(value, Tensor) else value
            wanted = array.dtype if name == "step" or kind.kind not in "fcV" else kind
            out[name] = wrap(np.array(array, wanted))
            if name != "step" and array.size == math.prod(shape) and array.shape != shape:
                raise ConfigError(
                    f"load_state_dict: {name} was saved with shape {list(array.shape)}, its "
                    f"parameter has {list(shape)}"
                )
        elif name == "step" and isinstance(value, (int, float)):
            out[name] = wrap(np.array(value, np.float32))
        elif value is not None:
            out[name] = deepcopy(value)
    return out
