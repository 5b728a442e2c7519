"""The modules of torch that models are built and trained with: ``torch.nn`` and ``torch.optim``."""

from __future__ import annotations

import disttrain as dt

from ....nn.utils import fusion
from ...publish import Shim
from ..distributed import reducers
from ..top import spelled
from . import layers

_FUSED = (
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
)  # fmt: skip


def _module(name: str, source: object, *names: str, **given: object) -> dict[str, Shim]:
    return {name: Shim(name).take(source, names or None).give(**given)}


def nn_modules() -> dict[str, Shim]:
    """``torch.nn`` and what is below it."""
    nn, grad = dt.nn, Shim("torch.nn.grad").take(dt.nn.grad)
    parallel = nn.parallel
    parallel_names = {name: getattr(parallel, name) for name in parallel.__all__}
    return {
        "torch.nn": Shim("torch.nn").take(nn),
        "torch.nn.functional": Shim("torch.nn.functional")
        .take(nn.functional)
        .give(grad=grad, **spelled.functional()),
        "torch.nn.grad": grad,
        "torch.nn.init": Shim("torch.nn.init")
        .take(nn.init)
        .give(
            _calculate_fan_in_and_fan_out=nn.init._calculate_fan_in_and_fan_out,
            _calculate_correct_fan=nn.init._fan,
        ),
        "torch.nn.utils": Shim("torch.nn.utils").take(nn.utils).give(**spelled.utils()),
        **_module("torch.nn.utils.rnn", nn.utils.rnn),
        **_module("torch.nn.utils.clip_grad", nn.utils.clip),
        **_module("torch.nn.utils.fusion", fusion, *_FUSED),
        **_module("torch.nn.utils.parametrize", nn.utils.parametrize),
        **_module("torch.nn.utils.parametrizations", nn.utils.parametrizations),
        "torch.nn.utils.prune": Shim("torch.nn.utils.prune").give(
            **{n: v for n, v in vars(nn.utils.prune).items() if not n.startswith("__")}
        ),
        **_module(
            "torch.nn.parameter", nn, "Parameter", "Buffer", "UninitializedParameter",
            "UninitializedBuffer", UninitializedTensorMixin=nn.parameter._Uninitialized,
        ),
        **layers.modules(),
        "torch.nn.utils.stateless": Shim("torch.nn.utils.stateless")
        .take(nn.utils.stateless)
        .give(_functional_call=dt.func.functional_call),
        "torch.nn.parallel": Shim("torch.nn.parallel").give(**parallel_names),
        "torch.nn.parallel.scatter_gather": Shim("torch.nn.parallel.scatter_gather").give(
            _is_namedtuple=lambda obj: isinstance(obj, tuple) and hasattr(obj, "_fields"),
            scatter=parallel.scatter, gather=parallel.gather,
            scatter_kwargs=parallel.scatter_kwargs,
        ),
        **_module("torch.nn.parallel.data_parallel", parallel, "DataParallel", "data_parallel"),
        **_module("torch.nn.parallel.parallel_apply", parallel, "parallel_apply"),
        **_module("torch.nn.parallel.replicate", parallel, "replicate"),
        "torch.nn.parallel.distributed": Shim("torch.nn.parallel.distributed").give(
            **parallel_names, **reducers.NAMES
        ),
    }  # fmt: skip


_OPTIMIZERS = (
    "ASGD Adadelta Adagrad Adam AdamW Adamax LBFGS NAdam RAdam RMSprop Rprop SGD Optimizer"
)


def optim_modules() -> dict[str, Shim]:
    """``torch.optim`` and what is below it."""
    optim = dt.optim
    one_each = {
        f"torch.optim.{kind.lower()}": Shim(f"torch.optim.{kind.lower()}").take(optim, [kind])
        for kind in _OPTIMIZERS.split()
    }
    one_each["torch.optim.optimizer"].take(optim.optimizer)
    one_each |= _module("torch.optim.sparse_adam", optim, "SparseAdam")
    schedules = Shim("torch.optim.lr_scheduler").take(optim.lr_scheduler)
    averages = Shim("torch.optim.swa_utils").take(dt.nn.utils.swa).give(SWALR=schedules.SWALR)
    return {
        **_module("torch.optim", optim),
        **one_each,
        "torch.optim.lr_scheduler": schedules.give(
            EPOCH_DEPRECATION_WARNING=optim.lr_scheduler.EPOCH_DEPRECATION_WARNING,
            _LRScheduler=optim.lr_scheduler._LRScheduler,
        ),
        "torch.optim.swa_utils": averages,
    }
