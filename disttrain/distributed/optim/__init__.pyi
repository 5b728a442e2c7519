"""Names of disttrain.distributed.optim. Made by scripts/stubs; not to be edited."""

from .apply_optimizer_in_backward import _apply_optimizer_in_backward as _apply_optimizer_in_backward
from .apply_optimizer_in_backward import _get_in_backward_optimizers as _get_in_backward_optimizers
from .functional import FunctionalOptimizer as FunctionalOptimizer
from .functional import as_functional_optim as as_functional_optim
from .post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from disttrain.rpc.optim.optimizer import DistributedOptimizer as DistributedOptimizer
