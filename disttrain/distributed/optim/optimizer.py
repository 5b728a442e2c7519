"""``distributed.optim.optimizer``: PyTorch's path to ``disttrain.rpc.optim``."""

from ...rpc.optim.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
