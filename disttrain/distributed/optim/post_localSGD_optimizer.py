"""Local steps with models averaged now and then (post-local SGD; Lin et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...optim import Optimizer
from ...trace import warn


class PostLocalSGDOptimizer(Optimizer):
    """Steps ``optim`` and then lets ``averager`` decide whether the parameters are averaged.

    While the averager warms up, gradients are to be averaged at every step (by DDP, with
    ``post_localSGD_hook`` told the same number of steps)."""

    def __init__(self, optim: Optimizer, averager: Any) -> None:
        self.optim, self.averager = optim, averager
        self.defaults = optim.defaults
        self._hooks: dict[str, dict[int, Callable]] = {}
        self._stepping = self.stepped = False

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Those of the local optimizer."""
        return self.optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of the local optimizer."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The local optimizer's, with the averager's ``step``."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; without a ``step`` the averager warms up again."""
        self.optim.load_state_dict(state_dict)
        if "step" not in state_dict:
            warn(
                "PostLocalSGDOptimizer: Loaded state dict does not contain a step counter for an "
                "averager. Setting step counter to 0.",
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A local step, then perhaps an average; what the local optimizer returns."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(params=self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or fill them with zeros."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the local optimizer."""
        self.optim.add_param_group(param_group)


__all__ = ["PostLocalSGDOptimizer"]
