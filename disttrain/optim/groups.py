"""Parameter groups of an optimizer: what may stand in them, and what hyperparameters may be.

Knows no update rule and no state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..core import Tensor
from ..errors import ConfigError, DTypeError
from ..trace import warn


class _Required:
    """The default of a hyperparameter that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

# Hyperparameter: what it is called in messages, and the bounds it must keep.
_BOUNDS = {
    "lr": ("learning rate", 0.0, math.inf),
    "eps": ("epsilon value", 0.0, math.inf),
    "weight_decay": ("weight_decay value", 0.0, math.inf),
    "momentum": ("momentum value", 0.0, math.inf),
    "lr_decay": ("lr_decay value", 0.0, math.inf),
    "momentum_decay": ("momentum_decay value", 0.0, math.inf),
    "rho": ("rho value", 0.0, 1.0),
    "initial_accumulator_value": ("initial_accumulator_value value", 0.0, math.inf),
}


def take(group: dict[str, Any], *names: str) -> dict[str, Any]:
    """These hyperparameters of a group."""
    return {name: group[name] for name in names}


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters among the arguments of an optimizer's constructor (its ``locals()``)."""
    others = ("self", "params", "__class__")
    return {name: value for name, value in arguments.items() if name not in others}


class Groups:
    """The part of Optimizer that holds groups of parameters with their hyperparameters."""

    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]

    def check(self, values: dict[str, Any]) -> None:
        """Raise ``ConfigError`` where a hyperparameter among the defaults has no meaning."""
        name = type(self).__name__
        for label, t in self._tensors_among(values):
            if math.prod(t.meta()[0]) != 1:
                raise ConfigError(
                    f"{name}: Tensor {label} must be 1-element; one of shape {list(t.shape)} was "
                    "given"
                )
        for key, (label, low, high) in _BOUNDS.items():
            value: Any = values.get(key)
            if value is None or value.__class__ is tuple:
                continue  # a program's own optimizer may mean something by it
            if not low <= value <= high:
                wanted = f"at least {low}" if high == math.inf else f"in {low}..{high}"
                raise ConfigError(f"{name}: Invalid {label}: {value}; it must be {wanted}")
        for k, beta in enumerate(values.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ConfigError(
                    f"{name}: Invalid beta parameter at index {k}: {beta}; it must be in [0, 1)"
                )
        self._check_flags(values)

    @staticmethod
    def _tensors_among(values: dict[str, Any]) -> list[tuple[str, Tensor]]:
        """The hyperparameters that were given as Tensors, with their names."""
        first = {"lr": values.get("lr"), "weight_decay": values.get("weight_decay")}
        both = {f"betas[{i}]": beta for i, beta in enumerate(values.get("betas", ()))}
        return [(k, v) for k, v in {**first, **both}.items() if isinstance(v, Tensor)]

    def _check_flags(self, values: dict[str, Any]) -> None:
        name = type(self).__name__
        if not values.get("fused"):
            return
        for other, text in (
            ("differentiable", "`fused` does not support `differentiable`"),
            ("foreach", "`fused` and `foreach` cannot be `True` together"),
        ):
            if values.get(other):
                raise DTypeError(f"{name}: {text}; give one of them")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with hyperparameters of its own."""
        name = type(self).__name__
        if not isinstance(param_group, dict):
            raise TypeError(
                f"{name}: param_group must be a dict, but got {type(param_group).__name__}"
            )
        params = param_group["params"] = self._read(param_group)
        for p in params:
            self._check_param(p)
        for key, default in self.defaults.items():
            if default is required and key not in param_group:
                raise ConfigError(f"{name}: a parameter group gives no {key}, which it must")
            param_group.setdefault(key, default)
        if len({id(p) for p in params}) != len(params):
            warn(
                f"{name}: optimizer contains a parameter group with duplicate parameters; each of "
                "them is updated as often as it is named",
            )
        for group in self.param_groups:
            self._check_beside(param_group, group)
        self.param_groups.append(param_group)

    def _read(self, group: dict[str, Any]) -> list[Any]:
        """The tensors of a group; names that come with them are put into ``param_names``."""
        name, params = type(self).__name__, group["params"]
        if isinstance(params, Tensor):
            return [params]
        if isinstance(params, set):
            raise TypeError(
                f"{name}: optimizer parameters need to be organized in ordered collections; the "
                "order of a set would differ between ranks and runs. Use a list"
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if not names:
            return params
        if len(names) != len(params):
            raise ConfigError(
                f"{name}: all optimizer params should be with/without names. Some param names are "
                f"missing: {len(names)} of {len(params)} have one"
            )
        group["param_names"] = names
        return [p for _, p in params]

    def _check_param(self, p: Tensor) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor):
            raise TypeError(
                f"{name}: optimizer can only optimize Tensors, but one of the params is "
                f"{type(p).__name__}"
            )
        if not (self.defaults.get("differentiable") or p.is_leaf or p.retains_grad):
            raise ConfigError(
                f"{name}: can't optimize a non-leaf Tensor (shape {list(p.shape)}, made by "
                f"{p.grad_fn.name()}); give the leaves that it was computed from"
            )

    def _check_beside(self, new: dict[str, Any], group: dict[str, Any]) -> None:
        """Raise unless ``new`` may stand beside ``group``."""
        name, has_names = type(self).__name__, "param_names" in new
        if has_names != ("param_names" in group):
            raise ConfigError(
                f"{name}: all optimizer param groups should be with/without names. cannot add "
                f"param group {'with' if has_names else 'without'} names to the optimizer"
            )
        have = {id(p) for p in group["params"]}
        if any(id(p) in have for p in new["params"]):
            raise ConfigError(
                f"{name}: some parameters appear in more than one parameter group; each belongs "
                "into one"
            )


def as_groups(name: str, params: Iterable) -> list[dict[str, Any]]:
    """What an optimizer was given, as a list of groups."""
    if isinstance(params, Tensor):
        raise TypeError(
            f"{name}: params argument given to the optimizer should be an iterable of Tensors or "
            "dicts, but one Tensor was given; for example [tensor]"
        )
    groups = list(params)
    if not groups:
        raise ConfigError(
            f"{name}: optimizer got an empty parameter list; at least one tensor is needed. Does "
            "the module have parameters when the optimizer is made?"
        )
    return groups if isinstance(groups[0], dict) else [{"params": groups}]
