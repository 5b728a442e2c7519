"""Data-parallel training: the wrapper, its bucket plan and the reducer that performs it."""

from .grad_bucket import GradBucket
from .module import DistributedDataParallel

__all__ = ["DistributedDataParallel", "GradBucket"]
