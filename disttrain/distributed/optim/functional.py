"""Optimizers that are handed gradients, parameter by parameter, instead of finding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import Tensor
from ...errors import ConfigError
from ...optim import Optimizer


def step_some(optimizer: Optimizer, gradients: Mapping[Tensor, Tensor]) -> None:
    """One step of ``optimizer`` that changes only the parameters in ``gradients``, by these
    instead of their own. The state of every parameter counts its own steps."""
    kept = [group["params"] for group in optimizer.param_groups]
    own = {p: p._grad for p in gradients}
    try:
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p in gradients]
        for p, g in gradients.items():
            p._grad = g
        optimizer.step()
    finally:
        for p, grad in own.items():
            p._grad = grad
        for group, params in zip(optimizer.param_groups, kept, strict=True):
            group["params"] = params


class FunctionalOptimizer:
    """An optimizer of a class, whose parameters come with their gradients at each step."""

    def __init__(self, optimizer_class: type[Optimizer], *args: Any, **kwargs: Any) -> None:
        self.optimizer = optimizer_class([{"params": []}], *args, **kwargs)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The one group, with the hyperparameters."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        """The state of every parameter that was ever stepped."""
        return self.optimizer.state

    def step_param(self, param: Tensor, grad: Tensor | None) -> None:
        """One step of ``param`` by ``grad`` (None: no step)."""
        if grad is not None:
            self.step_params([param], [grad])

    def step_params(self, params: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
        """One step of each parameter that has a gradient."""
        pairs = zip(params, grads, strict=True)
        given = {p: g for p, g in pairs if g is not None}
        group = self.optimizer.param_groups[0]
        group["params"] = list(given)
        try:
            step_some(self.optimizer, given)
        finally:
            group["params"] = []


def as_functional_optim(optim_cls: type, *args: object, **kwargs: object) -> FunctionalOptimizer:
    """An optimizer of class ``optim_cls`` with hyperparameters, without parameters."""
    if not (isinstance(optim_cls, type) and issubclass(optim_cls, Optimizer)):
        raise ConfigError(
            f"as_functional_optim: Optimizer {optim_cls} does not have a functional counterpart!; "
            "needed is a class of optimizers"
        )
    return FunctionalOptimizer(optim_cls, *args, **kwargs)
