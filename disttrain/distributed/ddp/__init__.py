"""Data-parallel training: the wrapper, its bucket plan and the reducer that performs it."""

from .module import DistributedDataParallel
from .reducer.grad_bucket import GradBucket

__outward__ = (
    "DistributedDataParallel (DDP)",
    "; compile the module inside of it: DistributedDataParallel(dt.compile(model))",
)

__all__ = ["DistributedDataParallel", "GradBucket"]
