"""Optimizers that step each parameter as soon as backward has its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core import Tensor
from ...errors import ConfigError
from ...nn import Module
from ...optim import Optimizer


def _apply_optimizer_in_backward(
    optimizer_class: type[Optimizer],
    params: Iterable[Tensor],
    optimizer_kwargs: dict[str, Any],
    register_hook: bool = True,
) -> None:
    """Give each parameter an optimizer of its own, which steps in the middle of backward when the
    parameter has its gradient; the gradient is dropped then. Several may be given to one.

    Wrapped in DDP afterwards, parameters are stepped when their gradients are averaged.

    ``register_hook=False``: only note the optimizers, for somebody else to step them (a
    communication hook, once the gradient is reduced)."""
    for p in params:
        if getattr(p._node, "store", None) is not None:
            raise ConfigError(
                "_apply_optimizer_in_backward: a parameter is given whose gradients are reduced "
                "over ranks already, and would be stepped before that; call it before the module "
                "is wrapped"
            )
        known = getattr(p, "_in_backward_optimizers", None)
        if known is None:
            p._in_backward_optimizers = known = []  # type: ignore[attr-defined]
            p._optimizer_classes, p._optimizer_kwargs = [], []  # type: ignore[attr-defined]
            p._in_backward_handles = []  # type: ignore[attr-defined]
        known.append(optimizer_class([p], **optimizer_kwargs))
        p._optimizer_classes.append(optimizer_class)  # type: ignore[attr-defined]
        p._optimizer_kwargs.append(optimizer_kwargs)  # type: ignore[attr-defined]
        if register_hook and not p._in_backward_handles:  # type: ignore[attr-defined]
            handle = p.register_post_accumulate_grad_hook(_step)
            p._in_backward_handles.append(handle)  # type: ignore[attr-defined]


def _step(p: Tensor) -> None:
    for optimizer in p._in_backward_optimizers:  # type: ignore[attr-defined]
        optimizer.step()
    p.grad = None


def _get_in_backward_optimizers(module: Module) -> list[Optimizer]:
    """The optimizers of all parameters of ``module``, for checkpoints."""
    return [o for p in module.parameters() for o in getattr(p, "_in_backward_optimizers", ())]


__all__ = ["_apply_optimizer_in_backward", "_get_in_backward_optimizers"]
