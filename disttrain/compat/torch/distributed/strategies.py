"""What ``torch.distributed`` has for training beside DDP itself: differentiable collectives, hooks,
optimizers, pipelines, checkpoints. The project's modules have the same names below its own
package."""

from __future__ import annotations

from ...publish import Shim
from .sharding import Function, Same

_HERE, _OURS = "torch.distributed", "disttrain.distributed"
_HOOKS = "algorithms.ddp_comm_hooks"
_AVERAGES = "algorithms.model_averaging"
_COMPOSABLE = "_composable"
_MODULES = (
    "_functional_collectives",
    f"{_COMPOSABLE}.contract",
    f"{_COMPOSABLE}.replicate",
    "checkpoint",
    "checkpoint.api",
    "checkpoint.default_planner",
    "checkpoint.filesystem",
    "checkpoint.format_utils",
    "checkpoint.hf_storage",
    "checkpoint.metadata",
    "checkpoint.optimizer",
    "checkpoint.planner",
    "checkpoint.planner_helpers",
    "checkpoint.staging",
    "checkpoint.state_dict_loader",
    "checkpoint.state_dict_saver",
    "checkpoint.stateful",
    "checkpoint.storage",
    "algorithms.join",
    "nn",
    "nn.functional",
    "optim",
    "optim.apply_optimizer_in_backward",
    "optim.post_localSGD_optimizer",
    "optim.zero_redundancy_optimizer",
    _HOOKS,
    f"{_HOOKS}.ddp_zero_hook",
    f"{_HOOKS}.debugging_hooks",
    f"{_HOOKS}.default_hooks",
    f"{_HOOKS}.optimizer_overlap_hooks",
    f"{_HOOKS}.post_localSGD_hook",
    f"{_HOOKS}.powerSGD_hook",
    f"{_HOOKS}.quantization_hooks",
    _AVERAGES,
    f"{_AVERAGES}.averagers",
    f"{_AVERAGES}.hierarchical_model_averager",
    f"{_AVERAGES}.utils",
    "pipelining",
    "pipelining.microbatch",
    "pipelining.schedules",
    "pipelining.stage",
    "tensor.parallel",
    "tensor.parallel.api",
    "tensor.parallel.loss",
    "tensor.parallel.style",
)


def modules() -> dict[str, Shim]:
    """The modules by name, parents before children."""
    composable = Same(f"{_HERE}.{_COMPOSABLE}", f"{_OURS}.{_COMPOSABLE}")
    for name in ("contract", "replicate"):
        vars(composable)[name] = Function(f"{_OURS}.{_COMPOSABLE}.{name}", name)
    return {
        composable.__name__: composable,
        **{f"{_HERE}.{name}": Same(f"{_HERE}.{name}", f"{_OURS}.{name}") for name in _MODULES},
    }
