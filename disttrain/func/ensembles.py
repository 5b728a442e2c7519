"""Modules for transforms: several of one class as one set of stacked tensors, and normalisation
that keeps no statistics. Knows a module by its tables only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import AutogradError, ConfigError
from ..ops.functions.views.join import stack


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of ``models`` (of one class, all training or none), stacked
    by name: new leaves, for ``vmap`` over ``functional_call``."""
    models = list(models)
    if not models:
        raise AutogradError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise AutogradError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise AutogradError("stack_module_state: Expected all models to be of the same class.")
    tables = [
        [dict(m.named_parameters()) for m in models],
        [dict(m.named_buffers()) for m in models],
    ]
    params, buffers = (
        {name: _leaf([table[name] for table in each]) for name in each[0]} for each in tables
    )
    return params, buffers


def _leaf(tensors: list[Tensor]) -> Tensor:
    requires = {t.requires_grad for t in tensors}
    if len(requires) > 1:
        raise AutogradError(
            "stack_module_state: Expected tensors from each model to have the same .requires_grad"
        )
    return stack(tensors).detach().requires_grad_(requires.pop())


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Have all batch norms inside go by their batch alone, in place: their running statistics
    become None."""
    if not hasattr(root, "modules"):
        raise ConfigError(f"replace_all_batch_norm_modules_: needed a module; {root!r} given")
    for module in root.modules():
        if getattr(module, "normalizes_batches", False):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
