"""Data-parallel training: the wrapper, its bucket plan and the reducer that performs it."""

from .module import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
