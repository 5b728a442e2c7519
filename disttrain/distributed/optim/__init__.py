"""Optimizers for many ranks: spread state, averaged models, steps inside backward, parameters on
any workers (this last one is loaded when it is first asked for, with remote calls)."""

import importlib
from typing import Any

from .apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,
    _get_in_backward_optimizers,
)
from .functional import FunctionalOptimizer, as_functional_optim
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":
        found = importlib.import_module("...rpc.optim.optimizer", __name__).DistributedOptimizer
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), "DistributedOptimizer"})
