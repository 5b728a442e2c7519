"""Optimizers for many ranks: spread state, averaged models, steps inside backward."""

from .apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,
    _get_in_backward_optimizers,
)
from .functional import FunctionalOptimizer, as_functional_optim
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer
