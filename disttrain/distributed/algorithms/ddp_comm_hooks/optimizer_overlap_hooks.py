"""Optimizer steps that follow each bucket's reduction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....core.tensor import Tensor
from ....errors import ConfigError
from ....futures import Future
from ...ddp import GradBucket
from .default_hooks import Hook


class _OptimizerHookState:
    """An optimizer with ``step_param(param, grad)``, and which parameters it steps (None: all)."""

    __slots__ = ("functional_optimizer", "params_to_optimize")

    def __init__(self, functional_optim: Any, params: Iterable[Tensor] | None = None) -> None:
        if not hasattr(functional_optim, "step_param"):
            raise ConfigError(
                f"Class {type(functional_optim)} must implement method step_param(param, grad); "
                "distributed.optim.as_functional_optim gives such an object"
            )
        self.functional_optimizer = functional_optim
        self.params_to_optimize = None if params is None else set(params)


def _hook_then_optimizer(hook: Hook, optimizer_state: _OptimizerHookState) -> Hook:
    """``hook``, and then a step of each parameter of its bucket."""

    def hook_then_optimizer_wrapper(hook_state: object, bucket: GradBucket) -> Future[Tensor]:
        future = hook(hook_state, bucket)

        def optimizer_step(future: Future) -> Tensor:
            reduced = future.value()
            bucket.set_buffer(reduced)
            chosen = optimizer_state.params_to_optimize
            for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True):
                if chosen is None or p in chosen:
                    optimizer_state.functional_optimizer.step_param(p, g)
            return reduced

        return future.then(optimizer_step)

    return hook_then_optimizer_wrapper


__all__: list[str] = []
