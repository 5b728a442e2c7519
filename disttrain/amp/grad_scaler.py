"""Scaling of losses, so that gradients in float16 do not vanish: a step whose gradients are not
finite is skipped. Micikevicius et al., Mixed Precision Training, ICLR 2018."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

import numpy as np

from ..backends.device.platform import offered, present
from ..core import no_grad
from ..core.effects import Effect, captured, not_repeated, performed
from ..core.tensor import Tensor, wrap
from ..core.types import dtypes
from ..errors import AutogradError, ConfigError
from ..ops.api import isfinite, stack, tensor
from ..ops.functions.sparse.structured import Structured
from ..trace import warn


class _Scale(Effect):
    """The scale of now, as a tensor of one element."""

    alone = True

    def __init__(self, scaler: GradScaler, kind: Any) -> None:
        self.scaler, self.now = scaler, wrap(np.empty((), kind))

    def __call__(self, *tensors: Tensor) -> Tensor:
        self.now.array = np.full((), self.scaler._scale, self.now.array.dtype)
        return self.now

    def gives(self) -> list[Tensor]:
        return [self.now]

    def __repr__(self) -> str:
        return "<the scale>"


class _Work(Effect):
    """A method of a scaler, on an optimizer whose ``leaves`` have gradients: what is given are
    these, and what else is written to."""

    counts = True

    def __init__(self, method: Any, leaves: list[Tensor], *args: Any, **kwargs: Any) -> None:
        self.method, self.leaves, self.args, self.kwargs = method, leaves, args, kwargs

    def __call__(self, *tensors: Tensor) -> Any:
        before = []  # (a replay sets gradients at its end)
        for leaf, grad in zip(self.leaves, tensors, strict=False):
            if leaf._grad is None or leaf._grad.array is not grad.array:
                before.append((leaf, leaf._grad))
                leaf._grad = grad
        try:
            return self.method(*self.args, **self.kwargs)
        finally:
            for leaf, old in before:
                leaf._grad = old

    def __repr__(self) -> str:
        return f"<{self.method.__name__.strip('_')} of {len(self.leaves)} gradients>"


class OptState(Enum):
    """Where an optimizer is between two calls of ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """``scale(loss).backward()``, ``step(optimizer)``, ``update()``.

    The scale grows by ``growth_factor`` after ``growth_interval`` good steps and shrinks by
    ``backoff_factor`` after one that was skipped. Each step waits once for the device, to know
    whether the gradients are finite.
    """

    refused: tuple = (dtypes.float16,)  # types of gradients that can have lost digits already
    __moving__: tuple[str, ...] = (
        "_begun",
        "_good",
        "_scale",
        "_states",
    )  # what effects look at as it is then

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if enabled and (growth_factor <= 1.0 or backoff_factor >= 1.0):
            raise ConfigError(
                f"{self._name()}: growth_factor={growth_factor}, backoff_factor={backoff_factor} "
                "given; needed are one above 1 and one below"
            )
        kind = str(device).partition(":")[0]
        if enabled and kind != "cpu" and not (kind in offered() and present(kind)[0]):
            warn(f"{self._name()}: no {kind} device here; it is enabled, but has no effect")
            enabled = False
        self._enabled, self._scale = bool(enabled), float(init_scale)
        self._growth, self._backoff = growth_factor, backoff_factor
        self._interval, self._good = growth_interval, 0
        self._begun = False  # whether anything has been scaled
        # By id, with what has it: an optimizer that is gone does not lend its number to another.
        self._states: dict[int, tuple[OptState, bool, object]] = {}

    def _name(self) -> str:
        return type(self).__name__

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        """What losses are multiplied by."""
        not_repeated("it reads the scale of a GradScaler")
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: object) -> Any:
        """``outputs`` (a tensor, or lists and tuples of them) times the scale."""
        if not self._enabled:
            return outputs
        self._begun = True
        if isinstance(outputs, Tensor):
            if not captured():
                return outputs * self._scale
            kind = outputs.meta()[1]
            if kind.name not in ("float32", "float64"):
                not_repeated(f"it scales a loss of type {kind.name}")
            return outputs * performed("loss_scale", _Scale(self, kind))
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(t) for t in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: object) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and see whether they are
        finite. Once for each step, before gradients are clipped."""
        if self._enabled:
            self._need_scale("unscale_")
            self._perform("unscale_gradients", optimizer, self._unscale, optimizer)

    def _need_scale(self, where: str) -> None:
        if not self._begun:
            raise AssertionError(
                f"{self._name()}: Attempted {where} but nothing was scaled. This may indicate your "
                "script did not use scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _perform(self, name: str, optimizer: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``method``, which reads numbers and decides by them; replays call it again."""
        if not captured():
            return method(*args, **kwargs)
        params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        states = [optimizer.state[p].values() for p in params if p in optimizer.state]
        kept = [t for values in states for t in values if isinstance(t, Tensor)]
        tensors = [*[p.grad for p in params], *params, *kept]
        effect = _Work(method, params, *args, **kwargs)
        return performed(name, effect, tensors, range(len(tensors)))

    def _unscale(self, optimizer: object) -> None:
        state, _, _ = self._state(optimizer)
        if state is not OptState.READY:
            done = "has already been called on this optimizer since the last update()"
            if state is OptState.STEPPED:
                done = "is being called after step()"
            raise AutogradError(f"{self._name()}: unscale_() {done}.")
        self._states[id(optimizer)] = OptState.UNSCALED, self._divide(optimizer), optimizer

    def _state(self, optimizer: object) -> tuple[OptState, bool, object]:
        return self._states.get(id(optimizer), (OptState.READY, True, optimizer))

    def _divide(self, optimizer: Any) -> bool:
        """Whether all gradients are finite."""
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if any(g.dtype in self.refused for g in grads):
            raise ValueError("Attempting to unscale FP16 gradients.")
        finite: dict[Any, list] = {}
        with no_grad():
            for g in grads:
                finite.setdefault(g.device, []).append(isfinite(self._values(g)).all())
                g.mul_(1.0 / self._scale)
            return all(bool(stack(flags).all()) for flags in finite.values())

    def _values(self, g: Tensor) -> Any:
        """The numbers of a gradient that are looked at here."""
        if not isinstance(g, Structured):
            return g
        return g.coalesce().values() if g.is_sparse else g._values()

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``, unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._need_scale("step")
        return self._perform("scaled_step", optimizer, self._step, optimizer, *args, **kwargs)

    def _step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        state, finite, _ = self._state(optimizer)
        if state is OptState.STEPPED:
            raise AutogradError(
                f"{self._name()}: step() has already been called since the last update()"
            )
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            out, finite = self._step_scaled(optimizer, state, *args, **kwargs)
            self._states[id(optimizer)] = OptState.STEPPED, finite, optimizer
            return out
        if state is OptState.READY:
            self._unscale(optimizer)
            finite = self._states[id(optimizer)][1]
        out = optimizer.step(*args, **kwargs) if finite else None
        self._states[id(optimizer)] = OptState.STEPPED, finite, optimizer
        return out

    def _step_scaled(
        self, optimizer: Any, state: OptState, *args: Any, **kwargs: Any
    ) -> tuple[Any, bool]:
        """The step of an optimizer that says it handles scaled gradients: it gets the scaler as an
        argument, or else ``grad_scale`` and ``found_inf`` for as long as it takes."""
        finite = self._state(optimizer)[1] if state is OptState.UNSCALED else self._look(optimizer)
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer; read self.grad_scale and self.found_inf instead",
                FutureWarning,
            )
            return optimizer.step(*args, grad_scaler=self, **kwargs), finite
        scaled = state is OptState.READY
        optimizer.grad_scale = tensor(self._scale) if scaled else None
        optimizer.found_inf = tensor(0.0 if finite else 1.0)
        try:
            return optimizer.step(*args, **kwargs), finite
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _look(self, optimizer: Any) -> bool:
        """Whether all gradients are finite, which stay as they are."""
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        with no_grad():
            return all(bool(isfinite(self._values(g)).all()) for g in grads)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Choose the scale of the next step."""
        if self._enabled:
            self._need_scale("update")
            if isinstance(new_scale, Tensor):
                not_repeated("it gives a GradScaler a tensor as its scale")
            performed("update_scale", _Work(self._update, [], new_scale))

    def _update(self, new_scale: float | Tensor | None) -> None:
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._states:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif not all(finite for _, finite, _ in self._states.values()):
            self._scale, self._good = self._scale * self._backoff, 0
        else:
            self._good += 1
            if self._good == self._interval:
                self._scale, self._good = self._scale * self._growth, 0
        self._states.clear()

    def break_off(self) -> None:
        """Forget what was seen since the last ``update``: the step begins again."""
        performed("forget_checks", _Work(self._forget, []))

    def _forget(self) -> None:
        self._states.clear()

    def get_growth_factor(self) -> float:
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        """What the scale grows by."""
        self._growth = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        """What the scale shrinks by."""
        self._backoff = new_factor

    def get_growth_interval(self) -> int:
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        """After how many good steps the scale grows."""
        self._interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale and how it has come about."""
        not_repeated("it reads the state of a GradScaler")
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": self._good,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        not_repeated("it sets the state of a GradScaler")
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth, self._backoff = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._interval, self._good = state_dict["growth_interval"], state_dict["_growth_tracker"]
