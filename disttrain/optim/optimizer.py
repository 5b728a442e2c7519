"""Optimizer: the base of all optimizers, and the step of those that update element by element.

A subclass declares its update as a mutating primitive (``rules.py``) and says in ``choose`` which
rule a group takes, with which state tensors and hyperparameters; everything else is here. A step
that no interpreter watches runs the update on the arrays directly; otherwise (capture, autocast,
profiling) it goes through the gate like every operation. State tensors are made outside the gate,
so that to a captured step they are inputs that live on, not constants.

This file knows no update rule and no schedule.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..backends.device.array import DeviceArray, Located
from ..backends.null import NullArray
from ..context import SLOW, thread
from ..core import Primitive, Tensor, enable_grad, no_grad, set_grad_enabled, wrap
from ..core.writes import check_captured, touched
from ..errors import ConfigError, DeviceError, DTypeError
from ..steps import stepped
from .differentiable import differentiable_update
from .groups import as_groups, required
from .rules import prepared, together
from .state import (
    EVERYWHERE,
    STEP_POST,
    STEP_PRE,
    State,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

ndarray = np.ndarray


def _with_hooks(step: Callable) -> Callable:
    """``step`` with the hooks registered on its optimizer, called once however often inherited."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: int, **kwargs: object) -> Any:
        self.stepped = True
        everywhere = thread.rank.slots.get(EVERYWHERE)
        if self._stepping:
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            if self._hooks or everywhere:
                out = _hooked(step, self, everywhere or {}, args, kwargs)
            else:
                out = step(self, *args, **kwargs)
        finally:
            self._stepping = False
        stepped(self)
        return out

    return wrapper


def _hooked(step: Callable, self: Optimizer, everywhere: dict, args: tuple, kwargs: dict) -> Any:
    for hook in (*everywhere.get(STEP_PRE, {}).values(), *self._own_hooks(STEP_PRE)):
        changed = hook(self, args, kwargs)
        if changed is None:
            continue
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise ConfigError(
                f"{type(self).__name__}: a step pre-hook must return None or a tuple of "
                f"(new_args, new_kwargs); it returned {type(changed).__name__}"
            )
        args, kwargs = changed
    out = step(self, *args, **kwargs)
    for hook in (*self._own_hooks(STEP_POST), *everywhere.get(STEP_POST, {}).values()):
        hook(self, args, kwargs)
    return out


class Optimizer(State):
    """Base of all optimizers.

    ``params``: tensors, (name, tensor) pairs, or dicts with ``params`` and hyperparameters of a
    group of their own. ``defaults``: hyperparameters of groups that do not give them.

    Of the arguments that PyTorch's optimizers share, ``maximize`` goes up instead of down and
    ``differentiable`` records the step for backward; ``foreach`` and ``fused`` change nothing here:
    every step is one pass over memory. ``capturable``: the counts of parameters on accelerators lie
    there, so that a step in a CUDA graph goes on when it is replayed; rates may be tensors there.
    """

    # Of the class, since what wraps an optimizer and passes for one makes none of its own.
    _hooks: dict[str, dict[int, Callable]] = {}
    _stepping = stepped = False
    by_elements = True  # each element's step needs its own numbers alone

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._hooks = {}
        self.stepped = False  # whether step was ever called; schedulers look at it
        self.check(defaults)
        for group in as_groups(type(self).__name__, params):
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

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
        if self.defaults.get("differentiable"):
            with set_grad_enabled(True):
                for group in self.param_groups:
                    self._update_recorded(group)
            return loss
        with no_grad():
            for group in self.param_groups:
                self._update(group)
        return loss

    def choose(self, group: dict[str, Any]) -> tuple[Primitive, tuple[str, ...], dict[str, Any]]:
        """The update rule, the names of the state tensors it is given, and its hyperparameters
        as the group has them (numbers, or Tensors of one element)."""
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer defines choose(group), or step(closure)"
        )

    def plan(self, group: dict[str, Any]) -> tuple[Primitive, tuple[str, ...], dict[str, Any]]:
        """As ``choose``, with plain numbers; ``capturable`` with those of a device as they are."""
        rule, names, hyper = self.choose(group)
        plain = _plain_or_there if group.get("capturable") else _plain
        return rule, names, {k: plain(v) for k, v in hyper.items()}

    def initial(self, name: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        """The first value of a state tensor: zeros laid out as ``p``; one zero for ``step``."""
        if name == "step":
            return single(0.0)
        if p.is_meta:
            return wrap(NullArray(*p.meta()))
        if isinstance(p.array, ArrayKind):
            return wrap(p.array.zeros())
        return wrap(np.zeros_like(p.array, subok=False))

    def _state_of(self, p: Tensor, names: tuple[str, ...], group: dict[str, Any]) -> list[Tensor]:
        """The state tensors of ``p``, made when they are first asked for."""
        self._refuse_fused(p, group)
        state = self.state[p] if names else {}
        for name in sorted(names, key="step".__ne__):
            if name not in state:
                state[name] = self.initial(name, p, group)
                if name in self.singles and group.get("capturable"):
                    state[name] = _counting_there(state[name], p)
        return [state[name] for name in names]

    def _update(self, group: dict[str, Any]) -> None:
        rule, names, numbers = self.plan(group)
        direct, run = thread.mode != SLOW, prepared(rule, numbers)
        states: Any = self.state
        away: dict[tuple, list] = {}  # on accelerators: all at once, in few launches
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            if grad.is_sparse:
                self._update_sparse(p, grad, group)
                continue
            try:
                state = states[p] if names else states
                tensors = [state[name] for name in names]
            except KeyError:
                tensors = self._state_of(p, names, group)
            own = p.array
            if direct and own.__class__ is ndarray:
                run(own, grad.array, *[t.array for t in tensors])
                touched(p)
                continue
            if (
                direct and self.by_elements and isinstance(own, ArrayKind)
            ):  # the parts of it that lie here
                parts = own.together([grad.array, *[t.array for t in tensors]])
                if parts is not None:
                    there = own.here()
                    if there is None:
                        run(*parts)
                    else:
                        away.setdefault((there.platform, there.index), []).append(parts)
                    touched(p)
                    continue
            self._refuse_fused(p, group)
            check_captured(p, f"{type(self).__name__}.step")
            rule(p, grad, *tensors, **numbers)
        for (platform, index), sets in away.items():
            with Located(platform, index):
                together(rule, numbers)(sets)

    def _refuse_fused(self, p: Tensor, group: dict[str, Any]) -> None:
        if group.get("fused") and p.is_meta:
            raise DeviceError(
                f"{type(self).__name__}: `fused=True` requires all the params to be floating point "
                "Tensors of supported devices; one is on the meta device, which has no memory"
            )

    def _update_one(self, p: Tensor, grad: Tensor | None, group: dict[str, Any]) -> None:
        """One parameter with another gradient than its own."""
        rule, names, numbers = self.plan(group)
        rule(p, grad, *self._state_of(p, names, group), **numbers)

    def _update_sparse(self, p: Tensor, grad: Tensor | None, group: dict[str, Any]) -> None:
        """One step with a gradient that has few rows. To be defined where that has a meaning."""
        raise DTypeError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam "
            "instead; SGD and Adagrad take them too"
        )

    def _update_recorded(self, group: dict[str, Any]) -> None:
        """As ``_update``, as operations that backward goes through."""
        rule, names, hyper = self.choose(group)
        for p in group["params"]:
            if p._grad is not None:
                tensors = self._state_of(p, names, group)
                differentiable_update(rule, p, p._grad, tensors, hyper)

    # -- copies --------------------------------------------------------------------------------

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if type(self).choose is not Optimizer.choose:
            for state in self.state.values():
                if isinstance(state, dict) and type(state.get("step")) in (int, float):
                    state["step"] = single(state["step"])  # older versions kept a number

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_hooks", {})
        self.__dict__.setdefault("_stepping", False)
        self.__dict__.setdefault("stepped", False)


def single(value: float) -> Tensor:
    """One number as a state tensor, in the widest type that parameters have by default."""
    return wrap(np.asarray(value, np.float32))


def _counting_there(value: Tensor, p: Tensor) -> Tensor:
    """A single number of the host's, on the device of ``p`` where that is an accelerator's."""
    own = p.array
    if own.__class__ is not DeviceArray:
        return value
    number = value.array.item()
    return wrap(own.here().make(lambda xp: xp.full((), number, value.array.dtype)))


def _plain_or_there(value: Tensor | float) -> Any:
    """As ``_plain``; a tensor of an accelerator as its raw array."""
    if isinstance(value, Tensor) and value.array.__class__ is DeviceArray:
        return value.array.data
    return _plain(value)


def _plain(value: Any) -> Any:
    """A hyperparameter as the kernels take it: a float, or a switch."""
    kind = value.__class__
    return value if kind is float or kind is bool else float(value)


__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
    "single",
]
