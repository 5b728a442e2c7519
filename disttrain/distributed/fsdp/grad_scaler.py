"""Scaling of the loss for gradients in float16, where every rank has a part of the gradients.

Micikevicius et al., Mixed Precision Training, ICLR 2018. A step is skipped on all ranks when one of
them finds a gradient that is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...comm.reduce_ops import ReduceOp
from ...core import no_grad
from ...errors import AutogradError, ConfigError
from ..state import group_or_default, is_initialized


class ShardedGradScaler:
    """``scale(loss).backward()``, ``step(optimizer)``, ``update()``.

    The scale grows by ``growth_factor`` after ``growth_interval`` good steps and shrinks by
    ``backoff_factor`` after one that was skipped. ``process_group``: the ranks that must agree.
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        if growth_factor <= 1.0 or backoff_factor >= 1.0:
            raise ConfigError(
                f"ShardedGradScaler: growth_factor={growth_factor}, backoff_factor={backoff_factor}"
                " given; needed are one above 1 and one below"
            )
        self._scale, self._enabled = float(init_scale), enabled
        self._backoff, self._growth, self._interval = backoff_factor, growth_factor, growth_interval
        self._good = 0
        self._found: dict[int, bool] = {}
        self.process_group = process_group

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        """What losses are multiplied by."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """``outputs`` (a tensor, or lists and tuples of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(t) for t in outputs)
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and see whether those of
        all ranks are finite. A collective."""
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise AutogradError(
                "ShardedGradScaler: unscale_() has already been called on this optimizer since the "
                "last update()"
            )
        finite = True
        there: list[Any] = []  # of gradients on devices, which are asked together
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    g: Any = p.grad
                    if g is not None:
                        local = getattr(g, "_local_tensor", g)
                        if isinstance(local.array, np.ndarray):
                            finite = finite and bool(np.isfinite(local.array).all())
                        else:
                            there.append(ops.isfinite(local).all())
                        g.mul_(1.0 / self._scale)
            if there:
                finite = finite and bool(ops.stack(there).all())
        self._found[id(optimizer)] = not self._all(finite)

    def _all(self, finite: bool) -> bool:
        if self.process_group is None and not is_initialized():
            return finite
        bad = np.array([0 if finite else 1], np.int64)
        group_or_default(self.process_group).all_reduce(bad, ReduceOp.MAX)
        return not bad[0]

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``, unless a gradient is not finite on any rank."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        return None if self._found[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Choose the scale of the next step."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._found.values()):
            self._scale, self._good = self._scale * self._backoff, 0
        else:
            self._good += 1
            if self._good == self._interval:
                self._scale, self._good = self._scale * self._growth, 0
        self._found.clear()

    def state_dict(self) -> dict[str, Any]:
        """The scale and how it has come about."""
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
        if not self._enabled:
            return
        self._scale = state_dict["scale"]
        self._growth, self._backoff = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._interval, self._good = state_dict["growth_interval"], state_dict["_growth_tracker"]
